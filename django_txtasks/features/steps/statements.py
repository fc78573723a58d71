"""The SQL of steps and waits, in the transaction of the task's own effects.

In the comments, W1 and W2 are workers, C is a cleaner, T is the task that waits, and R delivers the value. Fields
such as ``{now}`` are filled from the dialect.
"""

from django_txtasks.core.rows.statements import FENCE

# -- steps --------------------------------------------------------------------------------------------
# C has given W1's task to W2, and W1 then stores a step: W1 finds no row, stores nothing and rolls back. The share
# lock keeps the row with W1 until its COMMIT: if W2 does not read a step as done, W1 can no longer commit it.
KEEP_STEP = f"""
    INSERT INTO txtasks_step (task_id, name, value, attempt, done_at)
    SELECT id, %(name)s, %(value)s, attempt, {{now}} FROM txtasks_task {FENCE} {{share}}
"""
# C has given the task of W1 to W2, and W1 still works: W2 puts its number into the row of the place before it
# reads the place. So it waits for a transaction of W1 that has moved the place. Later W1 finds no row, and rolls
# back. W1 does not lock the row of the task: a person who asks the task to stop would find it locked.
TAKE_PLACE = """
    UPDATE txtasks_step SET attempt = %(attempt)s
     WHERE task_id = %(id)s AND name = %(name)s AND attempt < %(attempt)s
"""
PLACE = "SELECT value FROM txtasks_step WHERE task_id = %(id)s AND name = %(name)s"
MOVE_PLACE = """
    UPDATE txtasks_step SET value = %(value)s, done_at = {now}
     WHERE task_id = %(id)s AND name = %(name)s AND attempt = %(attempt)s
"""
STEPS_DONE = "SELECT name, value FROM txtasks_step WHERE task_id = %(id)s"

# -- waits --------------------------------------------------------------------------------------------
# T begins a wait while R delivers its value: both lock the row of the task first, and then the row of the wait, so
# the second sees the row of the first.
BEGIN_WAIT = f"""
    {{insert_new}} INTO txtasks_wait (task_id, name, is_sleep, until)
    SELECT id, %(name)s, %(is_sleep)s, <until> FROM txtasks_task {FENCE} {{share}} {{or_leave}}
"""
_THIS_WAIT = "WHERE task_id = %(id)s AND name = %(name)s"
# C has given W1's task to W2: W1 gets no value, even if the value has arrived.
SEE_WAIT = f"""
    SELECT value, ended_at IS NOT NULL, until IS NOT NULL AND until <= {{now}}
      FROM txtasks_wait {_THIS_WAIT} AND EXISTS (SELECT 1 FROM txtasks_task {FENCE}) {{share}}
"""
GIVE_UP_WAIT = f"UPDATE txtasks_wait SET ended_at = {{now}} {_THIS_WAIT} AND ended_at IS NULL AND until <= {{now}}"
END_WAIT = f"""
    UPDATE txtasks_wait SET value = %(value)s, ended_at = {{now}} {_THIS_WAIT} AND ended_at IS NULL
"""
END_WAIT_AHEAD = """
    {insert_new} INTO txtasks_wait (task_id, name, is_sleep, value, ended_at)
    VALUES (%(id)s, %(name)s, %(is_sleep)s, %(value)s, {now}) {or_leave}
"""
# If this row were merged later, the value would meet the arguments of another row, or be lost with this row.
RUN_ALONE = """
    UPDATE txtasks_task SET unique_key = NULL WHERE id = %(id)s AND attempt = 0 AND unique_key IS NOT NULL
"""
# A claimed row is written, too, because W1 at REPEATABLE READ with an older snapshot must fail to put it back.
WAKE = """
    UPDATE txtasks_task SET notified_at = NULL,
           run_after = CASE WHEN TRIM(status) IN ('pending', 'held') THEN {now} ELSE run_after END
     WHERE id = %(id)s
"""
