"""The SQL of a pass. D1 and D2 are drains of one queue, P is a person.

D1 holds the locks of its rows until it has written their answers, in one transaction at READ COMMITTED. If D1
dies or its COMMIT is lost, the locks are gone, and D2 sends the same rows.
"""

from django_txtasks.core.rows.history import COPY
from django_txtasks.core.rows.statements import HAS_ENDED

# The conditions of the worker's claim, without the filter of names: a row of any name goes.
_FREE = """
     WHERE status = 'pending' AND lane = '' AND queue_name = %(queue)s AND priority = %(priority)s {sound_id}
       AND (expires_at IS NULL OR expires_at > {now}) AND run_after <= {now} {after}
     ORDER BY run_after, id LIMIT %(limit)s """
_SIZE = """LENGTH(CAST(args AS {text})) + LENGTH(CAST(kwargs AS {text}))
         + COALESCE(LENGTH(CAST(headers AS {text})), 0)"""
SEE_DUE = f"SELECT id, CAST(run_after AS {{text}}), {_SIZE} FROM txtasks_task {{by_queue}} {_FREE}"
# D2 skips the rows that D1 has locked to send them.
LOCK_DUE = SEE_DUE + "{skip_locked}"
# In an ordered queue D2 waits for the first row, which D1 has locked, and then begins behind the rows that D1 has
# deleted. So at most one drain sends.
LOCK_FIRST = SEE_DUE + "{lock}"
# MariaDB would lock the rows that a search by the index walks past. So D1 sees rows without a lock, and locks them
# by their key, as a sweep does. Meanwhile D2 may have sent or postponed a row, or P may have cancelled or held it.
_SEEN = """
    SELECT id FROM txtasks_task {by_key}
     WHERE id {in_ids} AND TRIM(status) = 'pending' AND run_after <= {now}
       AND (expires_at IS NULL OR expires_at > {now}) """
LOCK_SEEN = _SEEN + "{skip_locked}"
# In an ordered queue D2 waits for the rows that D1 has locked. They are gone then, and D2 has those behind them.
LOCK_ALL_SEEN = _SEEN + "{lock}"
# After a failed write: a database that is read-only lets rows be locked. It must refuse before they are sent.
TOUCH = "UPDATE txtasks_task {by_key} SET snoozes = snoozes WHERE id {in_ids} AND TRIM(status) = 'pending'"
# SQLite has no locks of rows. P may have cancelled a row while it was sent.
STILL_PENDING = "SELECT id FROM txtasks_task WHERE id {in_ids} AND TRIM(status) = 'pending'"
READ = f"""
    SELECT id, task_name, queue_name, priority, args, kwargs, CAST(enqueued_at{{at_utc}} AS {{text}}), headers,
           snoozes, errors, {HAS_ENDED}
      FROM txtasks_task WHERE id {{in_ids}}
"""
# P's cancel waits for the lock of D1. The status is checked for SQLite, where no cancel waits.
HAND_OVER = "{delete} FROM txtasks_task {by_key} WHERE id {in_ids} AND TRIM(status) = 'pending'"
HAND_OVER_AND_KEEP = (
    f"WITH gone AS ({HAND_OVER} RETURNING *) {COPY.replace('{result}', 'NULL')}gone"
)
POSTPONE = """
    UPDATE txtasks_task {by_key} SET run_after = {later}, errors = %(errors)s, notified_at = NULL,
           cause = %(cause)s, snoozes = CASE WHEN snoozes < 2147483647 THEN snoozes + 1 ELSE snoozes END
     WHERE id {in_ids} AND TRIM(status) = 'pending'
"""
BURY = """
    UPDATE txtasks_task {by_key} SET status = 'dead', errors = %(errors)s, cause = %(cause)s
     WHERE id = %(id)s AND TRIM(status) = 'pending'
"""
