"""All SQL on a task's row, in the order of its life. What each one must check stands beside it.

``{now}`` and the like come from the dialect, ``{ids}`` is a list of placeholders. W1 and W2 are
workers, C is a cleaner.
"""

NOW = "SELECT {now}"

# -- enqueue ------------------------------------------------------------------------------------
INSERT_TASKS = """
    INSERT INTO txtasks_task (id, task_name, queue_name, priority, args, kwargs, run_after,
                              max_attempts, max_crashes, on_crash) VALUES """

# -- claim: pending -> claimed ------------------------------------------------------------------
# One index probe for each priority that is there: neither rows due later nor a million of one
# priority are walked past.
PENDING_PRIORITIES = """
    WITH RECURSIVE present(priority) AS (
        SELECT MAX(priority) FROM txtasks_task WHERE status = 'pending' AND queue_name = %(queue)s
        UNION ALL
        SELECT (SELECT MAX(t.priority) FROM txtasks_task t
                 WHERE t.status = 'pending' AND t.queue_name = %(queue)s AND t.priority < present.priority)
          FROM present WHERE present.priority IS NOT NULL
    )
    SELECT priority FROM present WHERE priority IS NOT NULL
"""

# A row written by hand whose counters are full could not be moved on: the statement that tried would fail
# with all other rows in it, turn after turn. It stays pending, where it is seen.
_CLAIMABLE = """
    SELECT id, task_name, queue_name, args, kwargs, attempt, failures, crashes, max_attempts, errors,
           {wait} AS wait
      FROM txtasks_task WHERE status = 'pending' AND task_name IN {names} {sound_id}
       AND attempt < 2147483647 AND failures < 2147483647 AND crashes < 2147483647
"""
# A row that W2 is about to claim is locked and left out. The time is compared in the WHERE, so
# that rows due later are not read at all.
CHOOSE_DUE = (
    _CLAIMABLE
    + """
       AND queue_name = %(queue)s AND priority = %(priority)s AND run_after <= {now}
     ORDER BY run_after, id LIMIT %(limit)s {skip_locked}
"""
)
CHOOSE_BY_ID = _CLAIMABLE + " AND queue_name IN {queues} AND id IN {ids} {skip_locked}"

# The attempt is counted here, before the run: a task that kills its worker cannot run for ever.
CLAIM = """
    UPDATE txtasks_task SET status = 'claimed', attempt = attempt + 1, worker = %(worker)s,
           claimed_at = {now}, started_at = {now}
     WHERE id IN {ids} AND status = 'pending'
"""
KNOWN_IDS = """
    SELECT id FROM txtasks_task WHERE id IN {ids}
    UNION ALL SELECT id FROM txtasks_finishedtask WHERE id IN {ids}
"""
CLAIMS_OF_WORKER = (
    "SELECT id, attempt FROM txtasks_task WHERE status = 'claimed' AND worker = %(worker)s"
)

# -- the arrows out of claimed ------------------------------------------------------------------
# W1 was slow, C gave its task back and W2 claimed it: W1's attempt number is old, so W1 finds that
# it holds nothing. A row that somebody else has locked is left out and waits for the next turn.
LOCK_CLAIMED = """
    SELECT id, attempt, worker FROM txtasks_task
     WHERE status = 'claimed' AND id IN {ids} {skip_locked}
"""
SEE_CLAIMED = (
    "SELECT id, attempt, worker FROM txtasks_task WHERE status = 'claimed' AND id IN {ids}"
)

COPY_TO_FINISHED = """
    INSERT INTO txtasks_finishedtask (
           id, task_name, queue_name, priority, args, kwargs, enqueued_at, run_after, worker,
           started_at, attempt, failures, crashes, errors, outcome, result)
    SELECT id, task_name, queue_name, priority, args, kwargs, enqueued_at, run_after, worker,
           started_at, attempt, failures, crashes, errors, %(outcome)s, {json}{result}{end_json}
      FROM txtasks_task WHERE id IN {ids} AND status = %(status)s
"""
DELETE_TASKS = "DELETE FROM txtasks_task WHERE id IN {ids} AND status = %(status)s"

# The whole fence in the statement itself: id, attempt, worker, status.
_STILL_HELD = """
     WHERE id = %(id)s AND attempt = %(attempt)s AND worker = %(worker)s AND status = 'claimed'
"""
_UNCLAIMED = "worker = NULL, claimed_at = NULL, started_at = NULL"
RETRY = (
    f"""
    UPDATE txtasks_task SET status = 'pending', {_UNCLAIMED}, run_after = {{later}}, notified_at = NULL,
           failures = failures + %(failed)s, crashes = crashes + %(crashed)s, errors = %(errors)s
"""
    + _STILL_HELD
)
RELEASE = (
    f"UPDATE txtasks_task SET status = 'pending', {_UNCLAIMED}, notified_at = NULL" + _STILL_HELD
)
FINISH = "DELETE FROM txtasks_task" + _STILL_HELD
BURY = (
    """
    UPDATE txtasks_task SET status = 'dead', worker = NULL, claimed_at = NULL,
           failures = failures + %(failed)s, crashes = crashes + %(crashed)s, errors = %(errors)s
"""
    + _STILL_HELD
)

# -- workers --------------------------------------------------------------------------------------
REGISTER = """
    INSERT INTO txtasks_worker (id, host, pid, queues, threads, listening, lease)
    VALUES (%(worker)s, %(host)s, %(pid)s, %(queues)s, %(threads)s, %(listening)s, %(lease)s)
"""
# First in every transaction that claims: its row lock is what LOSE waits for, and 0 rows tell a
# worker that was declared lost that it may not claim under this id.
BEAT = """
    UPDATE txtasks_worker SET beat = beat + 1, seen_at = {now}, running = %(running)s, listening = %(listening)s
     WHERE id = %(worker)s AND NOT lost
"""
LIVING_WORKERS = "SELECT id, beat, lease, host, pid FROM txtasks_worker WHERE NOT lost"
SILENT_WORKERS = """
    SELECT id FROM txtasks_worker WHERE NOT lost AND seen_at < {ago} AND lease = %(age)s
"""
# A frozen turn of W1 keeps its row locked: C does not wait for it.
LOCK_WORKER = "SELECT id FROM txtasks_worker WHERE id = %(worker)s {skip_locked}"
# C saw beat 7 for a whole lease, but W1 has woken up and committed beat 8: the beat is checked
# again inside the statement that acts.
LOSE = (
    "UPDATE txtasks_worker SET lost = TRUE WHERE id = %(worker)s AND NOT lost AND beat = %(beat)s"
)
MARK_LOST = "UPDATE txtasks_worker SET lost = TRUE WHERE id = %(worker)s"
UNREGISTER = """
    DELETE FROM txtasks_worker WHERE id = %(worker)s AND NOT EXISTS (
        SELECT 1 FROM txtasks_task t WHERE t.status = 'claimed' AND t.worker = %(worker)s)
"""
FORGET_LOST = """
    DELETE FROM txtasks_worker WHERE lost AND seen_at < {ago} AND NOT EXISTS (
        SELECT 1 FROM txtasks_task t WHERE t.status = 'claimed' AND t.worker = txtasks_worker.id)
"""

# -- cleaner --------------------------------------------------------------------------------------
# Two steps on purpose: one UPDATE with a subquery on the workers would, after a wait for a lock,
# see the locked row anew but the workers as they were, and reset a live claim.
ORPHANS = """
    SELECT t.id, t.attempt, t.worker, t.task_name, t.queue_name, t.crashes, t.max_crashes, t.on_crash,
           t.errors, t.started_at IS NOT NULL, w.host, w.pid
      FROM txtasks_task t LEFT JOIN txtasks_worker w ON w.id = t.worker
     WHERE t.status = 'claimed' AND (w.id IS NULL OR w.lost) AND t.id > %(after)s
     ORDER BY t.id LIMIT %(limit)s
"""
OVERDUE = """
    SELECT id FROM txtasks_task
     WHERE status = 'pending' AND queue_name = %(queue)s AND priority = %(priority)s AND run_after < {ago}
       {sound_id} AND (notified_at IS NULL OR notified_at < {ago})
     ORDER BY run_after, id LIMIT %(limit)s {skip_locked}
"""
NOTIFIED = "UPDATE txtasks_task SET notified_at = {now} WHERE id IN {ids} AND status = 'pending'"
OLD_FINISHED = """
    SELECT id FROM txtasks_finishedtask WHERE finished_at < {ago}
     ORDER BY finished_at LIMIT %(limit)s {skip_locked}
"""
PRUNE = "DELETE FROM txtasks_finishedtask WHERE id IN {ids}"

# -- a person's arrows ----------------------------------------------------------------------------
LOCK_IN_STATE = "SELECT id, queue_name FROM txtasks_task WHERE id IN {ids} AND status = %(status)s {skip_locked}"
HOLD = "UPDATE txtasks_task SET status = 'held' WHERE id IN {ids} AND status = 'pending'"
RESUME = "UPDATE txtasks_task SET status = 'pending', notified_at = NULL WHERE id IN {ids} AND status = 'held'"
RUN_NOW = "UPDATE txtasks_task SET run_after = {now}, notified_at = NULL WHERE id IN {ids} AND status = 'pending'"
REVIVE = """
    UPDATE txtasks_task SET status = 'pending', run_after = {now}, started_at = NULL, notified_at = NULL,
           failures = 0, crashes = 0
     WHERE id IN {ids} AND status = 'dead'
"""
