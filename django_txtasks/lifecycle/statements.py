"""The SQL of enqueueing, of the claim, of the arrows out of claimed and of workers, in the order of a task's life.

The comment beside each statement says what it must check. ``{now}`` and other names in braces come from the
dialect; ``{in_ids}`` compares with a list. W1 and W2 are workers, C is a cleaner.
"""

from django_txtasks.lifecycle.history import COPY

NOW = "SELECT {now}"

# -- enqueue ------------------------------------------------------------------------------------
INSERT_TASKS = "INSERT INTO txtasks_task ({columns}) VALUES {rows}"
TIMES_OF_TASK = "enqueued_at, run_after"
SELECT_TIMES = f"SELECT {TIMES_OF_TASK} FROM txtasks_task WHERE id = %s"
COPY_TASKS = "COPY txtasks_task ({columns}) FROM STDIN (NULL E'\\x01')"  # which no value is
POSTGRES_NOW = "SELECT statement_timestamp() AT TIME ZONE 'UTC'"

# No statement may read a whole backlog, whatever statistics a planner has: PostgreSQL's are often those of
# an empty table. Rows of known ids are found by their primary key: nothing is joined, and ``TRIM(status)``
# leads to no index of what waits. (It read all of 300,000 rows for one id.)

# A queue that a person has paused has a row here. Where a scan begins with a queue it is asked once for each: a
# backlog that may not be claimed is not walked past.
PAUSED_QUEUES = "SELECT queue_name FROM txtasks_pausedqueue"

# -- claim: pending -> claimed ------------------------------------------------------------------
# What waits in a lane stands apart in the index of what waits: these statements ask for what is in none, and never
# walk past a lane. One index probe for each priority that is there: neither rows due later nor a million of one
# priority are walked past.
PENDING_PRIORITIES = """
    WITH RECURSIVE present(priority) AS (
        SELECT (SELECT CASE WHEN t.queue_name = %(queue)s AND t.lane = '' THEN t.priority END
                  FROM txtasks_task t WHERE t.status = 'pending' AND {to_queue}
                 ORDER BY t.status DESC, t.lane DESC, t.queue_name DESC, t.priority DESC LIMIT 1)
        UNION ALL
        SELECT (SELECT CASE WHEN t.queue_name = %(queue)s AND t.lane = '' THEN t.priority END
                  FROM txtasks_task t WHERE t.status = 'pending' AND {below_priority}
                 ORDER BY t.status DESC, t.lane DESC, t.queue_name DESC, t.priority DESC LIMIT 1)
          FROM present WHERE present.priority IS NOT NULL
    )
    SELECT priority FROM present WHERE priority IS NOT NULL
"""
# The same on MariaDB, which reads all that wait where a priority is compared with that of another row.
HIGHEST_PRIORITY = """
    SELECT MAX(priority) FROM txtasks_task WHERE status = 'pending' AND lane = '' AND queue_name = %(queue)s
"""
NEXT_PRIORITY = f"{HIGHEST_PRIORITY} AND priority < %(priority)s"

# Somebody has written the row of an ended task anew: the task must not run again. A subquery for one value,
# because a planner could read all of the history for EXISTS.
HAS_ENDED = "(SELECT TRUE FROM txtasks_finishedtask f WHERE f.id = txtasks_task.id)"
# A row written by hand whose counters are full could not be moved on: the statement that tried would fail
# with all other rows in it, turn after turn. It stays pending, where it is seen.
_CLAIMABLE = """
    SELECT id, task_name, queue_name, args, kwargs, attempt, failures, crashes, max_attempts, errors,
           timeout, hooks, snoozes, lane, batch, CASE WHEN attempt = 0 THEN unique_key END AS merge_key,
           on_crash = 'retry' AND crashes = 0 AND max_crashes > 1 AND lane = '' AS may_share,
           <has_ended> AS has_ended,
           CAST(run_after AS {text}) AS due_at, {wait} AS wait
      FROM txtasks_task
     WHERE {name} {in_names} {sound_id}
       AND (expires_at IS NULL OR expires_at > {now})
       AND attempt < 2147483647 AND failures < 2147483647 AND crashes < 2147483647
""".replace("<has_ended>", HAS_ENDED)
DUE = "AND run_after <= {now} {after}"
# A row that W2 is about to claim is locked and left out. The time is compared in the WHERE, so
# that rows due later are not read at all. The index is named: behind rows that were deleted a moment ago MariaDB
# would take another one, and read the backlog of all queues.
CHOOSE_DUE = (
    _CLAIMABLE.replace("FROM txtasks_task", "FROM txtasks_task {by_queue}")
    + f"""
       AND status = 'pending' AND lane = '' AND queue_name = %(queue)s AND priority = %(priority)s
       {DUE}
     ORDER BY run_after, id LIMIT %(limit)s {{skip_locked}}
"""
)
CHOOSE_IN_LANE = CHOOSE_DUE.replace("lane = '' AND queue_name", "lane = %(lane)s AND queue_name")
# Where tasks gain priority with age: those of several priorities are compared, and few of them are claimed.
PEEK_DUE = f"""
    SELECT id, CAST(run_after AS {{text}}) AS due_at, {{wait}} AS wait
    {CHOOSE_DUE[CHOOSE_DUE.index("FROM txtasks_task") :].replace("{skip_locked}", "")}
"""
# In a backlog: what was claimed is still in the index until it is vacuumed, and would be walked past again.
AFTER_CURSOR = "AND {beyond_cursor}"
# A part of what is due, instead of ``DUE``. SQLite knows one end of a range only, and PostgreSQL goes on to the
# end of a time where the id of several says that the part ends.
FROM_TIME = "AND run_after >= %(begin_time)s"
BEFORE_TIME = "AND run_after < %(end_time)s"
FROM_ID = "AND {from_id}"
BEFORE_ID = "AND {before_id}"
LATELY = "AND run_after > {ago}"
# A priority that is there between two others: a look-up in a range of the index, of which PostgreSQL makes use in
# all its columns only where rows are locked.
PRIORITY_BETWEEN = """
    SELECT priority FROM txtasks_task {by_queue}
     WHERE status = 'pending' AND lane = '' AND queue_name = %(queue)s
       AND priority > %(low)s AND priority < %(high)s
     ORDER BY priority LIMIT 1 {skip_locked}
"""
CHOOSE_BY_ID = (
    _CLAIMABLE
    + f""" AND id {{in_ids}} AND TRIM(status) = 'pending' AND queue_name {{in_queues}}
       AND queue_name NOT IN ({PAUSED_QUEUES}) {{skip_locked}}"""
)

# The attempt is counted here, before the run: a task that kills its worker cannot run for ever.
TO_CLAIMED = """
           SET status = 'claimed', attempt = attempt + 1, worker = %(worker)s,
           claimed_at = {now}, started_at = {now}
"""
CLAIM = f"UPDATE txtasks_task {TO_CLAIMED} WHERE id {{in_ids}} AND TRIM(status) = 'pending'"

# -- rows of known ids ---------------------------------------------------------------------------
LIVE_IDS = "SELECT id FROM txtasks_task WHERE id {in_ids}"
PAST_IDS = "SELECT id FROM txtasks_finishedtask WHERE id {in_ids}"
KNOWN_IDS = f"{LIVE_IDS} UNION ALL {PAST_IDS}"
CLAIMS_OF_WORKER = (
    "SELECT id, attempt FROM txtasks_task WHERE status = 'claimed' AND worker = %(worker)s"
)

# -- the arrows out of claimed ------------------------------------------------------------------
# W1 was slow, C gave its task back and W2 claimed it: W1's attempt number is old, so W1 finds that
# it holds nothing. A row that somebody else has locked is left out and waits for the next turn.
LOCK_CLAIMED = """
    SELECT id, attempt, worker FROM txtasks_task
     WHERE id {in_ids} AND TRIM(status) = 'claimed' {skip_locked}
"""
SEE_CLAIMED = (
    "SELECT id, attempt, worker FROM txtasks_task WHERE id {in_ids} AND TRIM(status) = 'claimed'"
)

DELETE_TASKS = "DELETE FROM txtasks_task WHERE id {in_ids} AND TRIM(status) = %(status)s"

# PostgreSQL does all that in one statement. What belongs to an id stands at its place in another array: a join is
# planned by statistics, and took a minute for 500 rows with those of an empty table.
_OF_ID = "[array_position(CAST(%(ids)s AS uuid[]), id)]"
HELD = f"""
    held AS (
        SELECT id FROM txtasks_task
         WHERE {{only_if}} id {{{{in_ids}}}} AND attempt = (CAST(%(attempts)s AS int[])){_OF_ID}
           AND worker = %(worker)s AND TRIM(status) = 'claimed' {{{{skip_locked}}}}
    )"""
GONE = "DELETE FROM txtasks_task WHERE id = ANY(ARRAY(SELECT id FROM held)) RETURNING "
KEEP_GONE = COPY.replace("{result}", f"(CAST(%(results)s AS text[])){_OF_ID}") + "gone"
_ENDED = f"WITH {HELD.format(only_if='')}"
FINISH_MANY = f"{_ENDED} {GONE} id, attempt"
FINISH_AND_KEEP_MANY = f"{_ENDED}, gone AS ({GONE} *) {KEEP_GONE} RETURNING id, attempt"

# The whole fence in the statement itself: id, attempt, worker, status.
FENCE = """
     WHERE id = %(id)s AND attempt = %(attempt)s AND worker = %(worker)s AND TRIM(status) = 'claimed'
"""
_UNCLAIMED = "worker = NULL, claimed_at = NULL, started_at = NULL"
# At once means at its old place: behind a backlog of hours it would wait for hours.
RETRY = (
    f"""
    UPDATE txtasks_task SET status = 'pending', {_UNCLAIMED}, notified_at = NULL,
           run_after = CASE WHEN %(delay)s > 0 THEN {{later}} ELSE run_after END,
           failures = failures + %(failed)s, crashes = crashes + %(crashed)s, errors = %(errors)s
"""
    + FENCE
)
# It burns no attempt: neither a failure nor a crash is counted.
SNOOZE = (
    f"""
    UPDATE txtasks_task SET status = 'pending', {_UNCLAIMED}, notified_at = NULL, run_after = {{later}},
           snoozes = snoozes + 1
"""
    + FENCE
)
# Like it, and until what it waits for has come: R, who brings it, has locked the row before, so what he wrote is
# seen here, or he finds the row pending. What has begun does not expire, unless it was asked to stop.
SUSPEND = (
    f"""
    UPDATE txtasks_task SET status = 'pending', {_UNCLAIMED}, notified_at = NULL,
           expires_at = CASE WHEN cancel_asked_at IS NULL THEN NULL ELSE expires_at END,
           run_after = COALESCE((
               SELECT CASE WHEN ended_at IS NULL THEN COALESCE(until, {{later}}) ELSE {{now}} END
                 FROM txtasks_wait WHERE task_id = %(id)s AND name = %(name)s {{share}}
           ), {{now}})
"""
    + FENCE
)
DUE_SOON = """
    SELECT id, queue_name FROM txtasks_task
     WHERE id {in_ids} AND status = 'pending' AND run_after <= {later}
"""
NOTE_ERRORS = "UPDATE txtasks_task SET errors = %(errors)s" + FENCE
RELEASE = f"UPDATE txtasks_task SET status = 'pending', {_UNCLAIMED}, notified_at = NULL" + FENCE
FINISH = "DELETE FROM txtasks_task" + FENCE
# PostgreSQL gets it together with the COMMIT of the task's effects, so it has to fail where 0 rows are held. What
# is cast depends on the count, so that it is not cast while the statement is planned.
NOT_HELD = "django_txtasks: this attempt no longer holds its row"
_FINISHED_OR_ERROR = f"""
    SELECT CAST(CASE count(*) WHEN 1 THEN '1' ELSE '{NOT_HELD}' END AS int) FROM gone
"""
FINISH_OR_FAIL = f"WITH gone AS ({FINISH} RETURNING id) {_FINISHED_OR_ERROR}"
FINISH_AND_KEEP_OR_FAIL = (
    f"WITH gone AS ({FINISH} RETURNING *), kept AS ({COPY.replace('{result}', '%(result)s')} gone)"
    f" {_FINISHED_OR_ERROR}"
)
# MariaDB gets it as a block. What Django would do next, autocommit, commits: 0 rows must not come that far.
_IF_HELD_COMMIT = f"""
    IF ROW_COUNT() = 1 THEN SET autocommit = 1;
    ELSE SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = '{NOT_HELD}'; END IF;
"""
FINISH_IN_BLOCK = f"BEGIN NOT ATOMIC {{keep}} {FINISH}; {_IF_HELD_COMMIT} END"
BURY = (
    """
    UPDATE txtasks_task SET status = 'dead', worker = NULL, claimed_at = NULL,
           failures = failures + %(failed)s, crashes = crashes + %(crashed)s, errors = %(errors)s
"""
    + FENCE
)
FINISHED_BY = """
    SELECT id FROM txtasks_finishedtask
     WHERE id = %(id)s AND attempt = %(attempt)s AND worker = %(worker)s AND outcome = 'succeeded'
"""
# W1's slot writes it after the COMMIT that finished the task.
NOTE_HOOK_ERROR = """
    UPDATE txtasks_finishedtask SET errors = %(errors)s
     WHERE id = %(id)s AND attempt = %(attempt)s AND worker = %(worker)s
"""
# W1's task was given to W2, or is dead, and W1 finishes it all the same: said beside the task.
LATE_IN = "SELECT id, late_finishes, errors FROM {table} WHERE id = %(id)s {skip_locked}"
NOTE_LATE_FINISH = "UPDATE {table} SET late_finishes = %(late)s WHERE id = %(id)s"
# Nothing is changed, and a session that may not write says so, where SELECT 1 is answered.
TRY_TO_WRITE = "UPDATE txtasks_worker SET beat = beat WHERE 1 = 0"
STILL_HELD = """
    SELECT t.cancel_asked_at IS NOT NULL FROM txtasks_task t JOIN txtasks_worker w ON w.id = t.worker
     WHERE t.id = %(id)s AND t.attempt = %(attempt)s AND t.worker = %(worker)s
       AND TRIM(t.status) = 'claimed' AND NOT w.lost
"""

# -- what goes with the row of a task ---------------------------------------------------------------
FORGET_STEPS = "DELETE FROM txtasks_step WHERE task_id {in_ids}"
FORGET_WAITS = "DELETE FROM txtasks_wait WHERE task_id {in_ids}"


# -- cancel -------------------------------------------------------------------------------------
# No attempt starts after ``expires_at``, whatever becomes of this one: neither a retry nor a claim that is given
# back, nor one that is recovered from a lost worker. A cleaner removes the row then.
LOCK_TO_ASK = """
    SELECT id, queue_name, task_name FROM txtasks_task
     WHERE id {in_ids} AND TRIM(status) = %(status)s AND cancel_asked_at IS NULL {skip_locked}
"""
ASK_TO_STOP = """
    UPDATE txtasks_task SET cancel_asked_at = {now},
           expires_at = CASE WHEN expires_at <= {now} THEN expires_at ELSE {now} END
     WHERE id {in_ids} AND TRIM(status) = 'claimed' AND cancel_asked_at IS NULL
"""

# -- workers --------------------------------------------------------------------------------------
REGISTER = """
    INSERT INTO txtasks_worker (id, host, pid, queues, task_names, threads, listening, lease, sessions, protocol)
    VALUES (%(worker)s, %(host)s, %(pid)s, %(queues)s, %(task_names)s, %(threads)s, %(listening)s, %(lease)s,
            %(sessions)s, %(protocol)s)
"""
# First in every transaction that claims: its row lock is what LOSE waits for, and 0 rows tell a
# worker that was declared lost that it may not claim under this id. A beat under a new will clears
# the suspicion that the old one raised; MariaDB reads the will after its assignment, so it comes last.
# Each way of beating also tells a worker that it is suspected: it lives, so it writes a new will at once.
BEAT = """
    UPDATE txtasks_worker SET beat = beat + 1, seen_at = {now}, running = %(running)s, listening = %(listening)s,
           sessions = %(sessions)s,
           suspected_at = CASE WHEN will = %(will)s THEN suspected_at END, will = %(will)s
     WHERE id = %(worker)s AND NOT lost
"""
IS_SUSPECTED = "suspected_at IS NOT NULL"
# The beat holds this lock already. A look without a lock would begin the transaction's snapshot on MariaDB.
SUSPECTED_WORKER = f"SELECT {IS_SUSPECTED} FROM txtasks_worker WHERE id = %(worker)s {{lock}}"
LIVING_WORKERS = """
    SELECT id, beat, lease, host, pid, sessions, suspected_at IS NOT NULL FROM txtasks_worker WHERE NOT lost
"""
ABILITIES = "SELECT queues, task_names FROM txtasks_worker WHERE NOT lost"
# A will of another number is void: its worker has lost that connection and lives on with a new one.
SUSPECT = """
    UPDATE txtasks_worker SET suspected_at = {now}
     WHERE id = %(worker)s AND will = %(will)s AND NOT lost AND suspected_at IS NULL
"""
SILENT_WORKERS = """
    SELECT id FROM txtasks_worker WHERE NOT lost AND seen_at < {ago} AND lease = %(age)s
"""
# A frozen turn of W1 keeps its row locked: C does not wait for it.
LOCK_WORKER = "SELECT id FROM txtasks_worker WHERE id = %(worker)s {skip_locked}"
HAS_WORKER = "SELECT id FROM txtasks_worker WHERE id = %(worker)s"
# C saw beat 7 for a whole lease, but W1 has woken up and committed beat 8: the beat is checked
# again inside the statement that acts.
LOSE = (
    "UPDATE txtasks_worker SET lost = TRUE WHERE id = %(worker)s AND NOT lost AND beat = %(beat)s"
)
MARK_LOST = "UPDATE txtasks_worker SET lost = TRUE WHERE id = %(worker)s"
WRITE_PROGRESS = "UPDATE txtasks_worker SET progress = %(progress)s WHERE id = %(worker)s"
# Attempts name their worker by its id: what people want to know of it outlives its row.
KEEP_WORKERS = """
    INSERT INTO txtasks_endedworker (id, host, pid, started_at, ended_at)
    SELECT id, host, pid, started_at, CASE WHEN lost THEN seen_at ELSE {now} END FROM txtasks_worker
     WHERE id {in_ids} AND NOT EXISTS (SELECT 1 FROM txtasks_endedworker e WHERE e.id = txtasks_worker.id)
"""
FORGET_ENDED_WORKERS = "DELETE FROM txtasks_endedworker WHERE ended_at < {ago}"
UNREGISTER = "DELETE FROM txtasks_worker WHERE id = %(worker)s"

# -- cleaner --------------------------------------------------------------------------------------
# None of these joins the task table, and each names ids or one range of one index: what a planner believes of
# the table changes nothing. (With the statistics of an empty table it read the whole primary key, each second.)
LOST_WORKERS = "SELECT id, host, pid FROM txtasks_worker WHERE lost"
ALL_WORKERS = "SELECT id FROM txtasks_worker ORDER BY id"
# Claims of a worker without a row lie between those of two workers that have one, whose own are not read.
HOLDER_BETWEEN = """
    SELECT worker FROM txtasks_task {by_worker}
     WHERE status = 'claimed' AND worker > %(low)s AND worker < %(high)s ORDER BY worker LIMIT 1
"""
HELD_BY = """
    SELECT id FROM txtasks_task {by_worker}
     WHERE status = 'claimed' AND worker = %(worker)s LIMIT %(limit)s
"""
# A claim of W1 that would be dead, compensated or expired once C had recovered it. W1 may live: a proxy that
# restarts cuts both of its links. C reads this after W1's beat, and LOSE checks that beat: it is void after a
# new claim of W1.
FINAL_CLAIM = """
    SELECT id FROM txtasks_task {by_worker}
     WHERE status = 'claimed' AND worker = %(worker)s
       AND NOT (on_crash IN ('retry', 'retry+undo') AND crashes < max_crashes - 1
                AND (expires_at IS NULL OR expires_at > {later}))
     LIMIT 1
"""
# Two steps on purpose: one UPDATE with a subquery on the workers would, after a wait for a lock,
# see the locked row anew but the workers as they were, and reset a live claim.
ORPHANS = """
    SELECT id, attempt, worker, task_name, queue_name, args, kwargs, failures, crashes,
           max_crashes, on_crash, errors, hooks, batch, cancel_asked_at IS NOT NULL
      FROM txtasks_task WHERE id {in_ids} AND TRIM(status) = 'claimed' AND worker = %(worker)s
"""
# What was removed is still in the index until it is vacuumed, and would be walked past again. (A text that kept
# its column's name would be what is sorted by: all of the table, each time.)
EXPIRED = """
    SELECT id, CAST(expires_at AS {text}) AS until, status = 'pending'
      FROM txtasks_task {by_expiry}
     WHERE expires_at <= {now} {waiting} {since} {sound_id}
     ORDER BY expires_at LIMIT %(limit)s OFFSET %(left)s
"""
SINCE_EXPIRY = "AND expires_at >= %(since)s"
# W1 may have claimed it, or another cleaner removed it, since it was looked at
LOCK_EXPIRED = """
    SELECT id, task_name, queue_name, cancel_asked_at IS NOT NULL FROM txtasks_task
     WHERE id {in_ids} AND TRIM(status) = 'pending' AND expires_at <= {now} {skip_locked}
"""
# Claims of living workers without a time limit: reported, and never run again by themselves.
LONG_CLAIMED = """
    SELECT id, attempt, worker, task_name, queue_name FROM txtasks_task {by_worker}
     WHERE status = 'claimed' AND worker {in_workers} AND timeout IS NULL AND started_at < {ago}
     LIMIT %(limit)s
"""
LOCK_FINISHED = "SELECT id FROM txtasks_finishedtask WHERE id {in_ids} {skip_locked}"
OF_QUEUES = "AND queue_name {in_queues}"
OF_OTHER_QUEUES = "AND NOT queue_name {in_queues}"
SINCE_FINISH = "AND finished_at >= %(since)s"
PRUNE = "DELETE FROM txtasks_finishedtask WHERE id {in_ids}"
TIME_AGO = "SELECT CAST({ago} AS {text})"
OLD_LOST_WORKERS = "SELECT id FROM txtasks_worker WHERE lost AND seen_at < {ago}"
FORGET_WORKERS = "DELETE FROM txtasks_worker WHERE id {in_ids} AND lost"

# -- a person's arrows ----------------------------------------------------------------------------
LOCK_IN_STATE = """
    SELECT id, queue_name, task_name FROM txtasks_task
     WHERE id {in_ids} AND TRIM(status) = %(status)s {skip_locked}
"""
# What was compensated must not run again.
LOCK_REVIVABLE = """
    SELECT id, queue_name, task_name FROM txtasks_task
     WHERE id {in_ids} AND TRIM(status) = %(status)s AND NOT (on_crash = 'compensate' AND crashes > 0)
       AND NOT (on_crash = 'retry+undo' AND crashes >= max_crashes)
           {skip_locked}
"""
HOLD = "UPDATE txtasks_task SET status = 'held' WHERE id {in_ids} AND TRIM(status) = 'pending'"
RESUME = """
    UPDATE txtasks_task SET status = 'pending', notified_at = NULL WHERE id {in_ids} AND TRIM(status) = 'held'
"""
RUN_NOW = """
    UPDATE txtasks_task SET run_after = {now}, notified_at = NULL
     WHERE id {in_ids} AND TRIM(status) = 'pending'
"""
REVIVE = """
    UPDATE txtasks_task SET status = 'pending', run_after = {now}, expires_at = NULL, started_at = NULL,
           cancel_asked_at = NULL, notified_at = NULL, failures = 0, crashes = 0, snoozes = 0
     WHERE id {in_ids} AND TRIM(status) = 'dead'
"""
