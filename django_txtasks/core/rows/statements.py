"""The SQL of enqueueing, of the claim, of the arrows out of claimed and of workers, in the order of a task's life.

The comment beside each statement says which conditions it must check. ``{now}`` and other names in braces come
from the dialect; ``{in_ids}`` compares with a list. W1 and W2 are workers, A is a worker that runs one
task at a time and nothing beside it, C is a cleaner.
"""

from django_txtasks.core.rows.history import COPY

NOW = "SELECT {now}"

# -- enqueue ------------------------------------------------------------------------------------
INSERT_TASKS = "INSERT INTO txtasks_task ({columns}) VALUES {rows}"
TIMES_OF_TASK = "enqueued_at, run_after"
SELECT_TIMES = f"SELECT {TIMES_OF_TASK} FROM txtasks_task WHERE id = %s"
COPY_TASKS = (
    "COPY txtasks_task ({columns}) FROM STDIN (NULL E'\\x01')"  # no value has this character
)
POSTGRES_NOW = "SELECT statement_timestamp() AT TIME ZONE 'UTC'"

# No statement may read a whole backlog, whatever the planner's statistics say: PostgreSQL's are often those of an
# empty table. Rows of known ids must be found by the primary key. So these statements join nothing, and TRIM()
# hides the column from the planner, so it cannot choose the index on status. (It read 300,000 rows for one id.)

# Each queue that a person has paused has a row here. A scan checks this once for each queue, before it reads the
# queue's rows, so it does not walk past a backlog that it may not claim.
PAUSED_QUEUES = "SELECT queue_name FROM txtasks_pausedqueue"

# -- claim: pending -> claimed ------------------------------------------------------------------
# The index of pending rows has the lane before the queue. These statements ask for rows without a lane, so they
# never walk past the rows of a lane. They probe the index once for each priority that has rows, so they walk past
# neither rows that are due later nor a million rows of one priority.
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
# The same on MariaDB, which would read all pending rows if a priority were compared with that of another row.
HIGHEST_PRIORITY = """
    SELECT MAX(priority) FROM txtasks_task WHERE status = 'pending' AND lane = '' AND queue_name = %(queue)s
"""
NEXT_PRIORITY = f"{HIGHEST_PRIORITY} AND priority < %(priority)s"

# A person may have inserted the row of an ended task again: the task must not run again. This is a subquery for
# one value, because for EXISTS a planner could read the whole history.
HAS_ENDED = "(SELECT TRUE FROM txtasks_finishedtask f WHERE f.id = txtasks_task.id)"
# A claim reads the headers only if there is a tracer: then it has the second text in place of the first.
LAST_COLUMNS = """ AS has_ended,
           CAST(run_after AS {text}) AS due_at, {wait} AS wait"""
WITH_HEADERS = f"{LAST_COLUMNS}, CAST(headers AS {{text}}) AS headers"
# A row written by hand may have a counter at its limit. No arrow could move that row: the statement would fail for
# all its rows, in every turn. So the row is not claimed and stays pending, where people see it.
OF_NAMES = "{name} {in_names}"
_CLAIMABLE = """
    SELECT id, task_name, queue_name, args, kwargs, attempt, failures, crashes, max_attempts, errors,
           timeout, hooks, snoozes, lane, batch, CASE WHEN attempt = 0 THEN unique_key END AS merge_key,
           on_crash = 'retry' AND crashes = 0 AND max_crashes > 1 AND lane = '' AS may_share,
           <has_ended><last columns>
      FROM txtasks_task
     WHERE {name} {in_names} {sound_id}
       AND (expires_at IS NULL OR expires_at > {now})
       AND attempt < 2147483647 AND failures < 2147483647 AND crashes < 2147483647
""".replace("<has_ended>", HAS_ENDED).replace("<last columns>", LAST_COLUMNS)
# A task that kills its process takes the tasks beside it along: each of them counts a crash. So the last allowed
# attempt after a crash runs alone: workers with several slots leave the row, and A takes it. Each row is claimable
# by exactly one of them. A first attempt is no last chance, even if one crash is allowed.
LAST_CHANCE = "crashes > 0 AND crashes >= {max_crashes} - 1"
NO_LAST_CHANCE = "(crashes = 0 OR crashes < {max_crashes} - 1)"
_BESIDE_OTHERS = f"{OF_NAMES} AND {NO_LAST_CHANCE}"
OF_KIND = {
    "beside": _BESIDE_OTHERS,
    "loop": _BESIDE_OTHERS,
    "alone": f"{OF_NAMES} AND {LAST_CHANCE}",
}
"""The condition in place of ``OF_NAMES``, by the kind of the worker. The kind ``every`` claims by names alone."""
# The due last chances, by an index that has no other rows. A person who has paused a lane, or a task that has
# asked for a wait of its lane, keeps them waiting.
DUE_LAST_CHANCES = f"""
    SELECT id, lane FROM txtasks_task {{by_last_chance}}
     WHERE {{last_chance}} AND {{last_chance_at}} <= {{now}} AND queue_name {{in_queues}}
       AND queue_name NOT IN ({PAUSED_QUEUES}) AND {OF_NAMES} {{sound_id}}
       AND (expires_at IS NULL OR expires_at > {{now}})
       AND attempt < 2147483647 AND failures < 2147483647 AND crashes < 2147483647
       AND (lane = '' OR lane NOT IN (
               SELECT name FROM txtasks_lane WHERE paused_at IS NOT NULL OR held_until > {{now}}))
       <more>
     ORDER BY {{last_chance_at}} LIMIT %(limit)s
"""
OF_OTHER_LANES = "AND NOT lane {in_lanes}"
DUE = "AND run_after <= {now} {after}"
# W1 skips the rows that W2 has locked to claim them; on SQLite, W1 waits for W2's COMMIT and sees them claimed.
# The time is compared in the WHERE, so that rows due later are not read at all. The statement names the index,
# because behind rows that were deleted a moment ago MariaDB would choose another index and read the backlog of all
# queues.
CHOOSE_DUE = (
    _CLAIMABLE.replace("FROM txtasks_task", "FROM txtasks_task {by_queue}")
    + f"""
       AND status = 'pending' AND lane = '' AND queue_name = %(queue)s AND priority = %(priority)s
       {DUE}
     ORDER BY run_after, id LIMIT %(limit)s {{skip_locked}}
"""
)
CHOOSE_IN_LANE = CHOOSE_DUE.replace("lane = '' AND queue_name", "lane = %(lane)s AND queue_name")
# If tasks gain priority with age, a scan compares rows of several priorities and claims few of them.
PEEK_DUE = f"""
    SELECT id, CAST(run_after AS {{text}}) AS due_at, {{wait}} AS wait
    {CHOOSE_DUE[CHOOSE_DUE.index("FROM txtasks_task") :].replace("{skip_locked}", "")}
"""
# During a backlog: claimed rows stay in the index until vacuum removes them. Without a cursor, each scan would
# walk past them again.
AFTER_CURSOR = "AND {beyond_cursor}"
# A part of the due rows, in place of ``DUE``. SQLite uses only one end of a range in the index. If several rows
# have the time at which a part ends, PostgreSQL reads all rows of that time.
FROM_TIME = "AND run_after >= %(begin_time)s"
BEFORE_TIME = "AND run_after < %(end_time)s"
FROM_ID = "AND {from_id}"
BEFORE_ID = "AND {before_id}"
LATELY = "AND run_after > {ago}"
# The lowest priority between two others that has pending rows. PostgreSQL uses all columns of the index for this
# range only if the statement locks rows.
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

# The claim counts the attempt before the task runs, so a task that kills its worker cannot run for ever.
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
# W1 was slow, C released its task, and W2 claimed it. W1's attempt number is old, so W1 finds that it holds
# nothing. A row that another transaction has locked is skipped and waits for the next turn.
LOCK_CLAIMED = """
    SELECT id, attempt, worker FROM txtasks_task
     WHERE id {in_ids} AND TRIM(status) = 'claimed' {skip_locked}
"""
SEE_CLAIMED = (
    "SELECT id, attempt, worker FROM txtasks_task WHERE id {in_ids} AND TRIM(status) = 'claimed'"
)

DELETE_TASKS = "DELETE FROM txtasks_task WHERE id {in_ids} AND TRIM(status) = %(status)s"

# PostgreSQL does all of this in one statement. The values of an id are at the same place in other arrays instead
# of in a table to join, because a join is planned by statistics: with the statistics of an empty table, the
# statement took a minute for 500 rows. Empty text means no result, because the server setting ``array_nulls``
# may turn NULL in an array into text.
_OF_ID = "[array_position(CAST(%(ids)s AS uuid[]), id)]"
HELD = f"""
    held AS (
        SELECT id FROM txtasks_task
         WHERE {{only_if}} id {{{{in_ids}}}} AND attempt = (CAST(%(attempts)s AS int[])){_OF_ID}
           AND worker = %(worker)s AND TRIM(status) = 'claimed' {{{{skip_locked}}}}
    )"""
GONE = "DELETE FROM txtasks_task WHERE id = ANY(ARRAY(SELECT id FROM held)) RETURNING "
KEEP_GONE = COPY.replace("{result}", f"NULLIF((CAST(%(results)s AS text[])){_OF_ID}, '')") + "gone"
_ENDED = f"WITH {HELD.format(only_if='')}"
FINISH_MANY = f"{_ENDED} {GONE} id, attempt"
FINISH_AND_KEEP_MANY = f"{_ENDED}, gone AS ({GONE} *) {KEEP_GONE} RETURNING id, attempt"

# The whole fence is in the statement: id, attempt, worker, status.
FENCE = """
     WHERE id = %(id)s AND attempt = %(attempt)s AND worker = %(worker)s AND TRIM(status) = 'claimed'
"""
_UNCLAIMED = "worker = NULL, claimed_at = NULL, started_at = NULL"
# A retry without a delay keeps its old place: at the end of a backlog of hours, it would wait for hours.
RETRY = (
    f"""
    UPDATE txtasks_task SET status = 'pending', {_UNCLAIMED}, notified_at = NULL,
           run_after = CASE WHEN %(delay)s > 0 THEN {{later}} ELSE run_after END,
           failures = failures + %(failed)s, crashes = crashes + %(crashed)s, errors = %(errors)s,
           cause = %(cause)s
"""
    + FENCE
)
# An event loop that must end holds thousands of claims. Claims that differ in nothing are retried together.
RETRY_TOGETHER = f"""
    UPDATE txtasks_task SET status = 'pending', {_UNCLAIMED}, notified_at = NULL, errors = %(errors)s,
           cause = %(cause)s
     WHERE id {{in_ids}} AND attempt = %(attempt)s AND worker = %(worker)s AND TRIM(status) = 'claimed'
"""
# A snooze counts neither as a failure nor as a crash.
SNOOZE = (
    f"""
    UPDATE txtasks_task SET status = 'pending', {_UNCLAIMED}, notified_at = NULL, run_after = {{later}},
           snoozes = snoozes + 1, cause = NULL
"""
    + FENCE
)
# Like a snooze, but until the awaited value comes. R, which brings the value, locks the task's row first: either
# W1 sees R's value here, or R finds the row pending and makes it due. A task that has begun does not expire,
# unless it was asked to stop.
SUSPEND = (
    f"""
    UPDATE txtasks_task SET status = 'pending', {_UNCLAIMED}, notified_at = NULL, cause = NULL,
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
# PostgreSQL gets this together with the COMMIT of the task's effects, so it must fail if the attempt holds no row.
# The text that is cast depends on the count, so PostgreSQL cannot cast it while it plans the statement.
NOT_HELD = "django_txtasks: this attempt no longer holds its row"
_FINISHED_OR_ERROR = f"""
    SELECT CAST(CASE count(*) WHEN 1 THEN '1' ELSE '{NOT_HELD}' END AS int) FROM gone
"""
FINISH_OR_FAIL = f"WITH gone AS ({FINISH} RETURNING id) {_FINISHED_OR_ERROR}"
FINISH_AND_KEEP_OR_FAIL = (
    f"WITH gone AS ({FINISH} RETURNING *), kept AS ({COPY.replace('{result}', '%(result)s')} gone)"
    f" {_FINISHED_OR_ERROR}"
)
# MariaDB gets a block. Turning autocommit on, which Django would do next, commits: so 0 rows must fail before it.
_IF_HELD_COMMIT = f"""
    IF ROW_COUNT() = 1 THEN SET autocommit = 1;
    ELSE SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = '{NOT_HELD}'; END IF;
"""
FINISH_IN_BLOCK = f"BEGIN NOT ATOMIC {{keep}} {FINISH}; {_IF_HELD_COMMIT} END"
BURY = (
    """
    UPDATE txtasks_task SET status = 'dead', worker = NULL, claimed_at = NULL,
           failures = failures + %(failed)s, crashes = crashes + %(crashed)s, errors = %(errors)s,
           cause = %(cause)s
"""
    + FENCE
)
FINISHED_BY = """
    SELECT id FROM txtasks_finishedtask
     WHERE id = %(id)s AND attempt = %(attempt)s AND worker = %(worker)s AND outcome = 'succeeded'
"""
# W1's slot writes this after the COMMIT that finished the task.
NOTE_HOOK_ERROR = """
    UPDATE txtasks_finishedtask SET errors = %(errors)s
     WHERE id = %(id)s AND attempt = %(attempt)s AND worker = %(worker)s
"""
# W1's task was given to W2, or is dead, but W1 finishes it nevertheless: this is noted in the task's row.
LATE_IN = "SELECT id, late_finishes, errors FROM {table} WHERE id = %(id)s {skip_locked}"
NOTE_LATE_FINISH = "UPDATE {table} SET late_finishes = %(late)s WHERE id = %(id)s"
# This changes nothing. A session that may only read fails here, while it would answer SELECT 1.
TRY_TO_WRITE = "UPDATE txtasks_worker SET beat = beat WHERE 1 = 0"
STILL_HELD = """
    SELECT t.cancel_asked_at IS NOT NULL FROM txtasks_task t JOIN txtasks_worker w ON w.id = t.worker
     WHERE t.id = %(id)s AND t.attempt = %(attempt)s AND t.worker = %(worker)s
       AND TRIM(t.status) = 'claimed' AND NOT w.lost
"""

# -- cancel -------------------------------------------------------------------------------------
# No attempt starts after ``expires_at``, however the running one ends: no retry, and no attempt after a release or
# after recovery from a lost worker. Then a cleaner removes the row.
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
    INSERT INTO txtasks_worker (id, host, pid, queues, task_names, threads, listening, lease, sessions, protocol,
                                {release})
    VALUES (%(worker)s, %(host)s, %(pid)s, %(queues)s, %(task_names)s, %(threads)s, %(listening)s, %(lease)s,
            %(sessions)s, %(protocol)s, %(release)s)
"""
# The beat is first in every transaction that claims. LOSE waits for its row lock; 0 rows tell a worker that it was
# declared lost and may not claim under this id. A beat under a new will clears the suspicion that the old will
# raised. MariaDB evaluates assignments in order, so the will is assigned last. Each form of the beat also returns
# whether the worker is suspected: a living worker then writes a new will at once.
BEAT = """
    UPDATE txtasks_worker SET beat = beat + 1, seen_at = {now}, running = %(running)s, listening = %(listening)s,
           sessions = %(sessions)s,
           suspected_at = CASE WHEN will = %(will)s THEN suspected_at END, will = %(will)s
     WHERE id = %(worker)s AND NOT lost
"""
IS_SUSPECTED = "suspected_at IS NOT NULL"
# The beat holds this lock already. On MariaDB, a read without a lock would begin the transaction's snapshot.
SUSPECTED_WORKER = f"SELECT {IS_SUSPECTED} FROM txtasks_worker WHERE id = %(worker)s {{lock}}"
LIVING_WORKERS = """
    SELECT id, beat, lease, host, pid, sessions, suspected_at IS NOT NULL, listening IS NOT NULL
      FROM txtasks_worker WHERE NOT lost
"""
ABILITIES = "SELECT queues, task_names FROM txtasks_worker WHERE NOT lost"
# A will with another number is void: its worker has lost that connection and goes on with a new one.
SUSPECT = """
    UPDATE txtasks_worker SET suspected_at = {now}
     WHERE id = %(worker)s AND will = %(will)s AND NOT lost AND suspected_at IS NULL
"""
SILENT_WORKERS = """
    SELECT id FROM txtasks_worker WHERE NOT lost AND seen_at < {ago} AND lease = %(age)s
"""
# A frozen turn of W1 keeps W1's row locked: C skips the row here, and tries again later.
LOCK_WORKER = "SELECT id FROM txtasks_worker WHERE id = %(worker)s {skip_locked}"
HAS_WORKER = "SELECT id FROM txtasks_worker WHERE id = %(worker)s"
# C saw beat 7 for a whole lease, but W1 has woken up and committed beat 8. So the statement that declares W1 lost
# checks the beat again.
LOSE = (
    "UPDATE txtasks_worker SET lost = TRUE WHERE id = %(worker)s AND NOT lost AND beat = %(beat)s"
)
MARK_LOST = "UPDATE txtasks_worker SET lost = TRUE WHERE id = %(worker)s"
WRITE_PROGRESS = "UPDATE txtasks_worker SET progress = %(progress)s WHERE id = %(worker)s"
# Attempts name their worker by its id. Its host and times are kept after its row is deleted, because people ask.
KEEP_WORKERS = """
    INSERT INTO txtasks_endedworker (id, host, pid, started_at, ended_at, {release}, how, held)
    SELECT id, host, pid, started_at, CASE WHEN lost THEN seen_at ELSE {now} END, {release},
           CASE WHEN how = '' THEN %(how)s ELSE how END, {json}%(held)s{end_json} FROM txtasks_worker
     WHERE id {in_ids} AND NOT EXISTS (SELECT 1 FROM txtasks_endedworker e WHERE e.id = txtasks_worker.id)
"""
# A cleaner that declares W1 lost at this moment keeps W1's host and times, too.
LOCK_LEAVING = "SELECT id FROM txtasks_worker WHERE id = %(worker)s {lock}"
# The functions of W1's claims: a task of W1 may have ended its process.
IN_HAND = """
    SELECT task_name, MIN(queue_name) FROM (
        SELECT task_name, queue_name FROM txtasks_task {by_worker}
         WHERE status = 'claimed' AND worker = %(worker)s LIMIT %(limit)s
    ) held GROUP BY task_name LIMIT %(names)s
"""
# W1's supervisor has seen how W1 ended. A cleaner has declared W1 lost already, or will do it.
NOTE_END = "UPDATE txtasks_worker SET how = %(how)s WHERE id = %(worker)s AND how = ''"
NOTE_END_OF_LOST = """
    UPDATE txtasks_endedworker SET how = %(how)s WHERE id = %(worker)s AND how = 'unknown'
"""
FORGET_ENDED_WORKERS = "DELETE FROM txtasks_endedworker WHERE ended_at < {ago}"
UNREGISTER = "DELETE FROM txtasks_worker WHERE id = %(worker)s"

# -- cleaner --------------------------------------------------------------------------------------
# None of these joins the task table, and each names ids or one range of one index, so the planner's statistics
# change nothing. (With the statistics of an empty table, it read the whole primary key every second.)
LOST_WORKERS = "SELECT id, host, pid FROM txtasks_worker WHERE lost"
ALL_WORKERS = "SELECT id FROM txtasks_worker ORDER BY id"
# Finds a worker id that has claims but no row: it lies between the ids of two workers that have rows, whose claims
# are not read.
HOLDER_BETWEEN = """
    SELECT worker FROM txtasks_task {by_worker}
     WHERE status = 'claimed' AND worker > %(low)s AND worker < %(high)s ORDER BY worker LIMIT 1
"""
HELD_BY = """
    SELECT id FROM txtasks_task {by_worker}
     WHERE status = 'claimed' AND worker = %(worker)s LIMIT %(limit)s
"""
# A claim of W1 whose task would be dead, compensated or expired after recovery by C. W1 may be alive: a proxy
# that restarts cuts both of its connections. C reads this after it has read W1's beat, and LOSE checks that beat,
# so the answer is void once W1 claims again.
FINAL_CLAIM = """
    SELECT id FROM txtasks_task {by_worker}
     WHERE status = 'claimed' AND worker = %(worker)s
       AND NOT (on_crash IN ('retry', 'retry+undo') AND crashes < max_crashes - 1
                AND (expires_at IS NULL OR expires_at > {later}))
     LIMIT 1
"""
# Recovery has two statements on purpose. After a wait for a lock, one UPDATE with a subquery on the workers would
# see the new version of the locked row but the old workers, and reset a live claim.
ORPHANS = """
    SELECT id, attempt, worker, task_name, queue_name, args, kwargs, failures, crashes,
           max_crashes, on_crash, errors, hooks, batch, cancel_asked_at IS NOT NULL
      FROM txtasks_task WHERE id {in_ids} AND TRIM(status) = 'claimed' AND worker = %(worker)s
"""
# Removed rows stay in the index until vacuum removes them, so each look begins behind the last one. (If the text
# had the name of its column, ORDER BY would sort by the text: the whole table, each time.)
EXPIRED = """
    SELECT id, CAST(expires_at AS {text}) AS until, status = 'pending'
      FROM txtasks_task {by_expiry}
     WHERE expires_at <= {now} {waiting} {since} {sound_id}
     ORDER BY expires_at LIMIT %(limit)s OFFSET %(left)s
"""
SINCE_EXPIRY = "AND expires_at >= %(since)s"
# Since C has read the row, W1 may have claimed it, or another cleaner may have removed it.
LOCK_EXPIRED = """
    SELECT id, task_name, queue_name, cancel_asked_at IS NOT NULL FROM txtasks_task
     WHERE id {in_ids} AND TRIM(status) = 'pending' AND expires_at <= {now} {skip_locked}
"""
# A dead task keeps the time at which it was due last, and may have died a moment ago. SQLite uses the index only
# if the statement repeats the index's own condition.
OLD_DEAD = """
    SELECT id, CAST(run_after AS {text}) AS until, COALESCE(started_at, run_after) < {ago} {of_kinds}
      FROM txtasks_task {by_stopped}
     WHERE {failed_status} = 'dead' AND {failed_status} IN ('dead', 'held')
       AND run_after < {ago} {since} {sound_id}
     ORDER BY run_after LIMIT %(limit)s OFFSET %(left)s
"""
NAMES_OF_DEAD = """
    SELECT task_name FROM txtasks_task {by_stopped}
     WHERE {failed_status} = 'dead' AND {failed_status} IN ('dead', 'held')
     ORDER BY {failed_status}, run_after LIMIT %(most)s
"""
# Since C has read the row, a person may have revived it, and it may have died again.
LOCK_OLD_DEAD = """
    SELECT id, task_name, queue_name FROM txtasks_task
     WHERE id {in_ids} AND TRIM(status) = 'dead' AND COALESCE(started_at, run_after) < {ago} {skip_locked}
"""
SINCE_DUE = "AND run_after >= %(since)s"
LOCK_FINISHED = "SELECT id FROM txtasks_finishedtask WHERE id {in_ids} {skip_locked}"
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
# A compensated task must not run again.
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
           cancel_asked_at = NULL, notified_at = NULL, failures = 0, crashes = 0, snoozes = 0, cause = NULL
     WHERE id {in_ids} AND TRIM(status) = 'dead'
"""
# The time in RUN_NOW and REVIVE, and what replaces it: a random time for each task, and a time after a moment.
AT_ONCE = "run_after = {now}"
IN_SPREAD = "run_after = {spread}"
AT_ONCE_AFTER = "run_after = {latest}({now}, {just_after})"
IN_SPREAD_AFTER = "run_after = {latest}({spread}, {just_after})"
