"""All SQL on a task's row, in the order of its life. What each one must check stands beside it.

``{now}`` and the like come from the dialect; ``{in_ids}`` compares with a list. W1 and W2 are
workers, C is a cleaner.
"""

NOW = "SELECT {now}"
NOW_IN_UTC = "SELECT CAST({now}{at_utc} AS {text})"

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
# What hints tell of where the database itself has no message for them: no more rows than these are read.
DUE_HEAD = """
    SELECT id, task_name FROM txtasks_task {forced}
     WHERE status = 'pending' AND lane = '' AND queue_name = %(queue)s AND priority = %(priority)s
       AND run_after <= {now} {sound_id}
     ORDER BY run_after, id LIMIT %(limit)s
"""
# What becomes due within so many seconds: a worker is there at the time. No more rows than these are read, however
# many are due later.
UPCOMING = """
    SELECT task_name, priority, {wait} AS wait FROM txtasks_task {forced}
     WHERE status = 'pending' AND lane = '' AND queue_name = %(queue)s AND priority = %(priority)s
       AND run_after > {now} AND run_after <= {later} AND %(queue)s NOT IN (<paused>)
     ORDER BY run_after, id LIMIT %(most)s
""".replace("<paused>", PAUSED_QUEUES)
# PostgreSQL leaves out what the condition of the index says already, and would read all of the index: whole rows
# compare instead, and what comes behind is left out when a few rows have been read.
_POSTGRES_SOON = """
    SELECT n.task_name, n.priority, n.wait FROM (
        SELECT t.task_name, t.lane, t.queue_name, t.priority, {wait} AS wait FROM txtasks_task t
         WHERE t.status = 'pending'
           AND (t.status, t.lane, t.queue_name, t.priority, t.run_after)
               > ('pending', '', %(queue)s, present.priority, {now})
         ORDER BY t.status, t.lane, t.queue_name, t.priority, t.run_after, t.id LIMIT %(most)s) AS n
     WHERE n.lane = '' AND n.queue_name = %(queue)s AND n.priority = present.priority AND n.wait <= %(delay)s
       AND %(queue)s NOT IN (<paused>)
""".replace("<paused>", PAUSED_QUEUES)
POSTGRES_UPCOMING = PENDING_PRIORITIES.replace(
    "SELECT priority FROM present WHERE priority IS NOT NULL\n",
    f"SELECT soon.* FROM present CROSS JOIN LATERAL ({_POSTGRES_SOON}) AS soon"
    " WHERE present.priority IS NOT NULL ORDER BY wait LIMIT %(most)s\n",
)
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
# -- unique keys: in the transaction of the claim ---------------------------------------------------
# TRIM(status) leads no planner to the index of all that waits.
_OF_KEY = """
       AND {t}attempt = 0 AND {t}failures < 2147483647 AND {t}crashes < 2147483647
       AND TRIM({t}status) = 'pending' AND {t}run_after <= {now}
       AND ({t}expires_at IS NULL OR {t}expires_at > {now})
"""
FIRST_OF_KEY = (
    "SELECT id FROM txtasks_task"
    " WHERE unique_key = %(key)s AND task_name = %(task_name)s AND queue_name = %(queue_name)s {sound_id}"
    + _OF_KEY.replace("{t}", "")
    + "ORDER BY priority DESC, run_after, id LIMIT 1"
)
# Only what the winner's run serves as well: the same limits and hooks, which fire once, and none that could still
# run when the winner has expired. What somebody else has locked is left out, and runs by itself.
TWINS = (
    """
    SELECT t.id FROM txtasks_task t, txtasks_task w
     WHERE w.id = %(winner)s AND t.unique_key = %(key)s AND t.id <> w.id
"""
    + _OF_KEY.replace("{t}", "t.")
    + """
       AND w.task_name = t.task_name AND w.queue_name = t.queue_name
       AND NOT EXISTS (SELECT 1 FROM txtasks_finishedtask f WHERE f.id = t.id)
       AND w.on_crash = t.on_crash AND w.max_attempts = t.max_attempts AND w.max_crashes = t.max_crashes
       AND COALESCE(w.timeout, -1) = COALESCE(t.timeout, -1) AND w.hooks = t.hooks
       AND (w.batch = t.batch OR w.batch IS NULL AND t.batch IS NULL)
       AND (w.expires_at IS NULL OR t.expires_at <= w.expires_at)
     ORDER BY t.priority DESC, t.run_after, t.id LIMIT %(most)s {skip_locked}
"""
)
# A row that was enqueued later than now was committed before the database's clock was set back. So that row is
# older than each one that was enqueued by now. If it was due when it was enqueued, it is merged before its time
# comes again: alone it would run after the newer requests, with older arguments.
NEWEST_TWINS = TWINS.replace(
    "AND t.run_after <= {now}",
    "AND (t.run_after <= {now} OR t.enqueued_at > {now} AND t.run_after <= t.enqueued_at)",
)
# It locks, since a plain read may be of an older snapshot than the one that has locked them.
NEWEST_ARGUMENTS = """
    SELECT args, kwargs FROM txtasks_task
     WHERE id {in_ids} ORDER BY enqueued_at > {now}, enqueued_at DESC, id DESC LIMIT 1 {skip_locked}
"""
SET_ARGUMENTS = """
    UPDATE txtasks_task SET args = {json}%(args)s{end_json}, kwargs = {json}%(kwargs)s{end_json} WHERE id = %(id)s
"""
NOTE_ABSORBED = "UPDATE txtasks_task SET absorbed = absorbed + %(count)s WHERE id = %(id)s"
# Whoever takes such a row out of the table, unrun, tells all who have asked for it.
ABSORBERS = """
    SELECT id, attempt, task_name, queue_name, args, kwargs, failures, crashes, hooks FROM txtasks_task
     WHERE id {in_ids} AND absorbed > 0
"""

# -- lanes: in the transaction of the claim -------------------------------------------------------------
# Whoever has locked a lane's row is the only one who adds to its claimed rows, so their count, which is a
# statement of its own with a snapshot of its own, holds until he commits.
NEW_LANES = "{insert_new} INTO txtasks_lane (name, served_at) VALUES {rows} {or_leave}"
KNOWN_LANES = "SELECT name FROM txtasks_lane WHERE name {in_names}"
LOCK_LANES = """
    SELECT name, at_most, rate, burst, weight, paused_at IS NOT NULL, tokens, {since_served} AS idle, tag,
           {until_held} AS held, CAST({now} AS {text}) AS seen_at
      FROM txtasks_lane WHERE name {in_names} {skip_locked}
"""
CLAIMED_IN_LANES = """
    SELECT lane, COUNT(*) FROM txtasks_task {by_lane}
     WHERE status = 'claimed' AND lane > '' AND lane {in_names} GROUP BY lane
"""
WAITING_IN_LANE = """
    SELECT <number> AS number, COUNT(*) FROM (
        SELECT 1 FROM txtasks_task WHERE status = 'pending' AND lane = <lane> LIMIT %(limit)s) AS w<number>
"""
CHOOSE_IN_LANE = CHOOSE_DUE.replace("lane = '' AND queue_name", "lane = %(lane)s AND queue_name")
SERVED = """
    UPDATE txtasks_lane SET tag = %(tag)s, tokens = %(tokens)s, served_at = %(seen_at)s WHERE name = %(name)s
"""
HOLD_LANE = """
    UPDATE txtasks_lane SET held_until = {later}
     WHERE name = %(name)s AND (held_until IS NULL OR held_until < {later})
"""
GREATEST_TAG = "SELECT MAX(tag) FROM txtasks_lane"
_UNUSED_LANE = """
       at_most IS NULL AND rate = '' AND burst IS NULL AND weight IS NULL AND paused_at IS NULL
       AND (held_until IS NULL OR held_until < {now}) AND served_at < {ago}
"""
UNUSED_LANES = f"""
    SELECT name, tokens, {{since_served}} FROM txtasks_lane
     WHERE name > %(behind)s AND {_UNUSED_LANE} ORDER BY name LIMIT %(limit)s
"""
# W1 may have taken tasks of it since it was looked at
FORGET_LANES = f"DELETE FROM txtasks_lane WHERE name {{in_names}} AND {_UNUSED_LANE}"
# From bucket to bucket: a probe of the index for each, however many rows it has, and its first one says when it is
# due. PostgreSQL goes on by itself, and straight to where whole rows compare.
_BUCKET = """
    SELECT t.lane, t.queue_name, t.priority, t.id, t.run_after FROM txtasks_task t
     WHERE t.status = 'pending' AND {behind}
     ORDER BY t.status, t.lane, t.queue_name, t.priority, t.run_after, t.id LIMIT 1
"""
_NEXT_BUCKET = _BUCKET.replace(
    "{behind}",
    "(t.status, t.lane, t.queue_name, t.priority) > ('pending', b.lane, b.queue_name, b.priority)",
)
POSTGRES_BUCKETS = (
    "WITH RECURSIVE b AS (("
    + _BUCKET.replace("{behind}", "(t.status, t.lane) <from> ('pending', %(lane)s)")
    + f""") UNION ALL SELECT n.* FROM b CROSS JOIN LATERAL ({_NEXT_BUCKET}) AS n <while>)
    SELECT lane, queue_name, priority, id, {{wait}} FROM b LIMIT %(limit)s
"""
)
WHILE_OF_LANE = "WHERE b.lane = %(lane)s"
# Elsewhere one by one: the next priority of the same queue, else the next queue, else the next lane.
_BUCKET_BEHIND = """
    SELECT * FROM (
        SELECT lane, queue_name, priority, id, {wait} AS wait, <place> AS place FROM txtasks_task {by_queue}
         WHERE status = 'pending' AND <behind> ORDER BY <order>, run_after, id LIMIT 1) AS b<place>
"""


def _bucket_behind(place: int, behind: str, order: str) -> str:
    text = _BUCKET_BEHIND.replace("<place>", str(place)).replace("<behind>", behind)
    return text.replace("<order>", order)


FIRST_BUCKET = _bucket_behind(1, "lane <from> %(lane)s", "lane, queue_name, priority")
NEXT_BUCKET = (
    _bucket_behind(
        1, "lane = %(lane)s AND queue_name = %(queue)s AND priority > %(priority)s", "priority"
    )
    + "UNION ALL"
    + _bucket_behind(2, "lane = %(lane)s AND queue_name > %(queue)s", "queue_name, priority")
    + "UNION ALL"
    + _bucket_behind(3, "lane > %(lane)s", "lane, queue_name, priority")
    + "ORDER BY place LIMIT 1"
)

# -- once: in the caller's transaction, before the row ----------------------------------------------------
# It waits for a transaction that has taken the same key and not ended; the keys of several tasks are taken in one
# order, so that two that want the same ones do not wait for each other.
TAKE_ONCE = """
    INSERT INTO txtasks_once (key, text, task_name, task_id, until) VALUES {rows}
        ON CONFLICT (key) DO UPDATE
       SET task_id = excluded.task_id, until = excluded.until WHERE txtasks_once.until <= {now}
"""
# It waits for another transaction that has written the row.
MYSQL_TAKE_ONCE = """
    INSERT INTO txtasks_once (`key`, text, task_name, task_id, until) VALUES {rows}
        ON DUPLICATE KEY UPDATE task_id = IF(until <= {now}, VALUES(task_id), task_id),
           until = IF(until <= {now}, VALUES(until), until)
"""
# This does not. When a row is rolled back, each INSERT that waits for the row gets a lock on the gap in its
# place. These locks keep all of them from inserting, and all but one get a deadlock (1213). A SELECT that waits at
# READ COMMITTED gets no such lock.
MARIADB_TAKE_ONCE_AT_ONCE = f"SET STATEMENT innodb_lock_wait_timeout = 0 FOR {MYSQL_TAKE_ONCE}"
WAIT_FOR_ONCE = "SELECT {key} FROM txtasks_once WHERE {key} {in_keys} ORDER BY {key} {lock}"
# Where it is ON, a statement that may not wait for a lock ends its whole transaction.
MYSQL_ROLLBACK_ON_TIMEOUT = "SELECT @@innodb_rollback_on_timeout"
# What was taken long ago is read and not locked: who repeats it writes nothing, and nobody waits for him.
STILL_TAKEN = "SELECT {key}, task_id FROM txtasks_once WHERE {key} {in_keys} AND until > {now}"
TAKEN_ONCE = "SELECT {key}, task_id FROM txtasks_once WHERE {key} {in_keys}"
# At REPEATABLE READ on MariaDB: what another transaction has committed since this one began.
TAKEN_SINCE = "SELECT task_id FROM txtasks_once WHERE {key} = %(key)s {lock}"
OLD_ONCE = """
    SELECT {key} FROM txtasks_once {by_until} WHERE until < {now} ORDER BY until LIMIT %(limit)s {skip_locked}
"""
FORGET_ONCE = "DELETE FROM txtasks_once WHERE {key} {in_keys}"
FORGET_OLD_ONCE = f"DELETE FROM txtasks_once WHERE {{key}} IN ({OLD_ONCE})"

# -- schedules: the ticks -------------------------------------------------------------------------------
# C1 and C2 see the same tick: one of them locks the row, and the other leaves it out; when C2 locks it after C1's
# commit, the row says the next tick, and is not due. So each tick is written once, by whoever it is.
_HERE = (
    "enabled AND {name} {in_names} AND queue_name {in_queues} AND name NOT IN (<skipped>) <crons>"
)
NEXT_TICK = f"""
    SELECT CAST(next_at{{at_utc}} AS {{text}}), CAST({{now}}{{at_utc}} AS {{text}}) FROM txtasks_schedule
     WHERE {_HERE} ORDER BY next_at IS NOT NULL, next_at LIMIT 1
"""
DUE_SCHEDULES = f"""
    SELECT name, task_name, queue_name, args, kwargs, cron, every, tz, catch_up, grace,
           CAST(next_at{{at_utc}} AS {{text}}), CAST(last_at{{at_utc}} AS {{text}}), last_task,
           CAST(waiting_since{{at_utc}} AS {{text}}), CAST({{now}}{{at_utc}} AS {{text}})
      FROM txtasks_schedule
     WHERE {_HERE} AND (next_at IS NULL OR next_at <= {{later}})
     ORDER BY next_at IS NOT NULL, next_at LIMIT %(limit)s {{skip_locked}}
"""
# A task that has begun, such as one that is to be tried again, keeps no other one waiting.
UNBEGUN = (
    "SELECT id FROM txtasks_task WHERE id {in_ids} AND TRIM(status) = 'pending' AND attempt = 0"
)
# The rows are there, and locked by this transaction: it only updates.
TICKED = """
    INSERT INTO txtasks_schedule (name, task_name, next_at, last_at, last_task, waiting_since) VALUES {rows}
"""
_TICKED = ("next_at", "last_at", "last_task", "waiting_since")
TO_TICKED = "ON CONFLICT (name) DO UPDATE SET error = '', " + ", ".join(
    f"{one} = excluded.{one}" for one in _TICKED
)
MYSQL_TO_TICKED = "ON DUPLICATE KEY UPDATE error = '', " + ", ".join(
    f"{one} = VALUES({one})" for one in _TICKED
)
DISABLE_SCHEDULE = (
    "UPDATE txtasks_schedule SET enabled = FALSE, error = %(error)s WHERE name = %(name)s"
)
NOTE_OF_SCHEDULE = (
    "UPDATE txtasks_schedule SET error = %(error)s WHERE name = %(name)s AND error <> %(error)s"
)
# Of several cleaners one tells.
TELL_UNREADY = """
    UPDATE txtasks_schedule SET told_at = %(tick)s
     WHERE name = %(name)s AND (told_at IS NULL OR told_at < %(tick)s)
"""

# -- batches ----------------------------------------------------------------------------------------------
# No row counts the members of a batch: those that have not ended are live rows that name it, and whoever has ended
# one looks, after his COMMIT, whether there are any.
INSERT_BATCH = """
    INSERT INTO txtasks_batch (id, name, hooks) VALUES (%(batch)s, %(name)s, {json}%(hooks)s{end_json})
"""
# A task opens the batch. If that task is a member of another batch, both batches have the same first task. It is
# written down, because members that have ended may have no rows any more when somebody asks. (MySQL takes a
# subquery about the same table in no other place of an INSERT than FROM.)
INSERT_OPENED_BATCH = """
    INSERT INTO txtasks_batch (id, name, hooks, opened_by, root_task)
    SELECT %(batch)s, %(name)s, {json}%(hooks)s{end_json}, %(opener)s, COALESCE(p.root_task, %(opener)s)
      FROM (SELECT 1 AS one) AS o LEFT JOIN txtasks_batch p ON p.id = %(parent)s
"""
ARE_LIVE = "SELECT id, TRIM(status) FROM txtasks_task WHERE id {in_ids} AND TRIM(status) <> 'dead'"
# Claimed rows are not in the index of members, so that a claim need not write there: those of all workers are few.
# One statement sees both at one moment; between two of them a member could move from one to the other.
_WAITING_MEMBER = """
    SELECT id FROM txtasks_task {by_batch}
     WHERE batch = <batch> AND NOT (status = 'claimed') AND NOT (status = 'dead') {sound_id}
     ORDER BY {by_last_member} LIMIT 1
"""
_RUNNING_MEMBER = """
    SELECT id FROM txtasks_task {by_running_member} WHERE batch = <batch> AND status = 'claimed' {sound_id} LIMIT 1
"""
# Of those that wait the one with the highest id, which is likely to be the last one to end.
LIVE_MEMBER = f"SELECT COALESCE(({_WAITING_MEMBER}), ({_RUNNING_MEMBER}))".replace(
    "<batch>", "%(batch)s"
)
# W1 and W2 have ended the last two members and both find none left: one of them locks the batch, and looks again,
# in a statement of its own, whose snapshot is younger than the lock; the other one finds that it has ended.
LOCK_BATCH = (
    "SELECT name, hooks FROM txtasks_batch WHERE id = %(batch)s AND finished_at IS NULL {lock}"
)
# What is not live and has not failed has succeeded, so that of what succeeded nothing need be kept.
_FAILED_OUTCOMES = "('cancelled', 'discarded', 'expired')"
# A live member, a dead one, and one that has failed otherwise, in one snapshot. W2 may revive, claim and bury a
# dead member meanwhile: two statements, in either order, would both miss it, and the batch would end as a success.
STATE_OF_BATCH = f"""
    {LIVE_MEMBER},
           (SELECT id FROM txtasks_task {{by_batch}}
             WHERE batch = %(batch)s AND NOT (status = 'claimed') AND TRIM(status) = 'dead' LIMIT 1),
           (SELECT id FROM txtasks_finishedtask {{by_ended}}
             WHERE batch = %(batch)s AND outcome IN {_FAILED_OUTCOMES} LIMIT 1)
"""
END_BATCH = """
    UPDATE txtasks_batch SET finished_at = {now}, failed = %(failed)s, hook_tasks = {json}%(ids)s{end_json}
     WHERE id = %(batch)s AND finished_at IS NULL
"""
# Batches of the work of these tasks that go on or have failed, and those that have hooks, which may go on. One
# statement asks for all: between two statements a batch could end, and its hook would be missed.
_IS_UNSETTLED = "(finished_at IS NULL OR failed OR hook_tasks IS NOT NULL)"
UNSETTLED_BATCHES = f"""
    SELECT root_task, id, finished_at IS NULL, failed, hook_tasks FROM txtasks_batch {{by_root}}
     WHERE root_task {{in_ids}} AND {_IS_UNSETTLED}
"""
# W1 is slow, C has given its task to W2, which has ended it, and with it the batch: W1 may add no member.
# Until W1 commits, nobody can move its row.
LOCK_MEMBER = """
    SELECT t.batch FROM txtasks_task t
     WHERE t.id = %(id)s AND t.attempt = %(attempt)s AND t.worker = %(worker)s
       AND TRIM(t.status) = 'claimed' {lock}
"""
# W2 has asked which members there are, and a dead one was revived since: W1, which runs that member, waits until
# W2 has ended the batch, and adds none. The lock is shared, so members that add do not wait for each other.
BATCH_IS_OPEN = (
    "SELECT name FROM txtasks_batch WHERE id = %(batch)s AND finished_at IS NULL {share}"
)
BATCHES_OF = "SELECT DISTINCT batch FROM txtasks_task WHERE id {in_ids} AND batch IS NOT NULL"
# C looks after those whose last member was ended by somebody who died before he looked, or does not know batches.
OPEN_BATCHES = """
    SELECT id FROM txtasks_batch {by_end} WHERE finished_at IS NULL AND id > %(after)s
     ORDER BY finished_at, id LIMIT %(limit)s
"""
WITHOUT_LIVE_MEMBER = f"""
    SELECT b.id FROM txtasks_batch b
     WHERE b.id {{in_ids}} AND b.finished_at IS NULL
       AND COALESCE(({_WAITING_MEMBER}), ({_RUNNING_MEMBER})) IS NULL
""".replace("<batch>", "b.id")
# In one snapshot, so that a member that moves meanwhile is counted once.
COUNTS_OF_BATCH = """
    SELECT state, COUNT(*) FROM (
        SELECT TRIM(status) AS state FROM txtasks_task {by_batch}
         WHERE batch = %(batch)s AND NOT (status = 'claimed') LIMIT %(limit)s) AS m GROUP BY state
    UNION ALL
    SELECT 'claimed', COUNT(*) FROM (
        SELECT 1 FROM txtasks_task {by_running_member}
         WHERE batch = %(batch)s AND status = 'claimed' LIMIT %(limit)s) AS r
    UNION ALL
    SELECT 'succeeded', COUNT(*) FROM (
        SELECT 1 FROM txtasks_finishedtask {by_ended}
         WHERE batch = %(batch)s AND outcome = 'succeeded' LIMIT %(limit)s) AS s
    UNION ALL
    SELECT 'failed', COUNT(*) FROM (
        SELECT 1 FROM txtasks_finishedtask {by_ended}
         WHERE batch = %(batch)s AND outcome IN <failed> LIMIT %(limit)s) AS f
""".replace("<failed>", _FAILED_OUTCOMES)
OLD_BATCHES = """
    SELECT id FROM txtasks_batch {by_end}
     WHERE finished_at < {ago} ORDER BY finished_at LIMIT %(limit)s {skip_locked}
"""
FORGET_BATCHES = "DELETE FROM txtasks_batch WHERE id {in_ids}"

# Live first: a row moves to the finished ones, and never back.
STATES_OF = "SELECT id, TRIM(status) FROM txtasks_task WHERE id {in_ids}"
OUTCOMES_OF = "SELECT id, outcome, merged_into FROM txtasks_finishedtask WHERE id {in_ids}"

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

_FINISHED = """
    INSERT INTO txtasks_finishedtask (
           id, task_name, queue_name, priority, args, kwargs, enqueued_at, run_after, worker, batch,
           started_at, attempt, failures, crashes, errors, late_finishes, outcome, result)
    SELECT id, task_name, queue_name, priority, args, kwargs, enqueued_at, run_after, worker, batch,
           started_at, attempt, failures, crashes, errors, late_finishes, %(outcome)s, {json}{result}{end_json}
      FROM """
COPY_MERGED = (
    _FINISHED.replace("outcome, result)", "outcome, merged_into, result)")
    .replace("%(outcome)s,", "'merged', (SELECT w.id FROM txtasks_task w WHERE w.id = %(winner)s),")
    .replace("{json}{result}{end_json}", "NULL")
    + "txtasks_task WHERE id {in_ids} AND TRIM(status) = 'pending'"
)
COPY_TO_FINISHED = _FINISHED + "txtasks_task WHERE id {in_ids} AND TRIM(status) = %(status)s"
# A dead row whose id stands in history already: history stays as it is.
BUT_NOT_AGAIN = (
    " AND NOT EXISTS (SELECT 1 FROM txtasks_finishedtask f WHERE f.id = txtasks_task.id)"
)
# Where no history is kept: of a batch that goes on, what has failed has to be known at its end.
COPY_MEMBERS = COPY_TO_FINISHED + " AND batch IS NOT NULL"
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
KEEP_GONE = _FINISHED.replace("{result}", f"(CAST(%(results)s AS text[])){_OF_ID}") + "gone"
_ENDED = f"WITH {HELD.format(only_if='')}"
FINISH_MANY = f"{_ENDED} {GONE} id, attempt"
FINISH_AND_KEEP_MANY = f"{_ENDED}, gone AS ({GONE} *) {KEEP_GONE} RETURNING id, attempt"

# The whole fence in the statement itself: id, attempt, worker, status.
_STILL_HELD = """
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
    + _STILL_HELD
)
# It burns no attempt: neither a failure nor a crash is counted.
SNOOZE = (
    f"""
    UPDATE txtasks_task SET status = 'pending', {_UNCLAIMED}, notified_at = NULL, run_after = {{later}},
           snoozes = snoozes + 1
"""
    + _STILL_HELD
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
    + _STILL_HELD
)
DUE_SOON = """
    SELECT id, queue_name FROM txtasks_task
     WHERE id {in_ids} AND status = 'pending' AND run_after <= {later}
"""
NOTE_ERRORS = "UPDATE txtasks_task SET errors = %(errors)s" + _STILL_HELD
RELEASE = (
    f"UPDATE txtasks_task SET status = 'pending', {_UNCLAIMED}, notified_at = NULL" + _STILL_HELD
)
FINISH = "DELETE FROM txtasks_task" + _STILL_HELD
# PostgreSQL gets it together with the COMMIT of the task's effects, so it has to fail where 0 rows are held. What
# is cast depends on the count, so that it is not cast while the statement is planned.
NOT_HELD = "django_txtasks: this attempt no longer holds its row"
_FINISHED_OR_ERROR = f"""
    SELECT CAST(CASE count(*) WHEN 1 THEN '1' ELSE '{NOT_HELD}' END AS int) FROM gone
"""
FINISH_OR_FAIL = f"WITH gone AS ({FINISH} RETURNING id) {_FINISHED_OR_ERROR}"
FINISH_AND_KEEP_OR_FAIL = (
    f"WITH gone AS ({FINISH} RETURNING *), kept AS ({_FINISHED.replace('{result}', '%(result)s')} gone)"
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
    + _STILL_HELD
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

# -- steps: in the transaction of the task's own effects ---------------------------------------------------
# C has given W1's task to W2, and W1 comes with a step: it finds no row, keeps nothing and rolls back. The lock
# keeps the row W1's until that COMMIT: what W2 does not read as done, W1 cannot commit any more.
KEEP_STEP = f"""
    INSERT INTO txtasks_step (task_id, name, value, attempt, done_at)
    SELECT id, %(name)s, %(value)s, attempt, {{now}} FROM txtasks_task {_STILL_HELD} {{share}}
"""
STEPS_DONE = "SELECT name, value FROM txtasks_step WHERE task_id = %(id)s"
_NEXT_TASKS = (
    "SELECT DISTINCT task_id FROM {} WHERE task_id > %(last)s ORDER BY task_id LIMIT %(limit)s"
)
TASKS_WITH_STEPS = f"""
    SELECT task_id FROM ({_NEXT_TASKS.format("txtasks_step")}) with_steps
     UNION SELECT task_id FROM ({_NEXT_TASKS.format("txtasks_wait")}) with_waits
     ORDER BY task_id LIMIT %(limit)s
"""
FORGET_STEPS = "DELETE FROM txtasks_step WHERE task_id {in_ids}"
FORGET_WAITS = "DELETE FROM txtasks_wait WHERE task_id {in_ids}"

# -- waits ----------------------------------------------------------------------------------------------
# T, whose task asks, and R, who brings the value, lock the task's row first, then the one of the wait: so one of
# them sees what the other has written.
BEGIN_WAIT = f"""
    {{insert_new}} INTO txtasks_wait (task_id, name, is_sleep, until)
    SELECT id, %(name)s, %(is_sleep)s, <until> FROM txtasks_task {_STILL_HELD} {{share}} {{or_leave}}
"""
_THIS_WAIT = "WHERE task_id = %(id)s AND name = %(name)s"
# C has given W1's task to W2: W1 gets no value, also where it stands there.
SEE_WAIT = f"""
    SELECT value, ended_at IS NOT NULL, until IS NOT NULL AND until <= {{now}}
      FROM txtasks_wait {_THIS_WAIT} AND EXISTS (SELECT 1 FROM txtasks_task {_STILL_HELD}) {{share}}
"""
GIVE_UP_WAIT = f"UPDATE txtasks_wait SET ended_at = {{now}} {_THIS_WAIT} AND ended_at IS NULL AND until <= {{now}}"
END_WAIT = f"""
    UPDATE txtasks_wait SET value = %(value)s, ended_at = {{now}} {_THIS_WAIT} AND ended_at IS NULL
"""
END_WAIT_AHEAD = """
    {insert_new} INTO txtasks_wait (task_id, name, is_sleep, value, ended_at)
    VALUES (%(id)s, %(name)s, %(is_sleep)s, %(value)s, {now}) {or_leave}
"""
# Merged, the value would meet the arguments of another row, or be lost with this one.
RUN_ALONE = """
    UPDATE txtasks_task SET unique_key = NULL WHERE id = %(id)s AND attempt = 0 AND unique_key IS NOT NULL
"""
# A claimed row is written as well: a worker at REPEATABLE READ, whose snapshot is older, may not give it back.
WAKE = """
    UPDATE txtasks_task SET notified_at = NULL,
           run_after = CASE WHEN TRIM(status) IN ('pending', 'held') THEN {now} ELSE run_after END
     WHERE id = %(id)s
"""

# -- cancel -------------------------------------------------------------------------------------
# In its caller's transaction: a worker that ends the attempt meanwhile finds the row locked, and tries again.
LOCK_TO_CANCEL = """
    SELECT id, TRIM(status), queue_name, task_name, cancel_asked_at IS NOT NULL FROM txtasks_task
     WHERE id {in_ids} ORDER BY id {lock}
"""
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
OF_UNIQUE_KEY = """
    SELECT id FROM txtasks_task
     WHERE unique_key = %(key)s AND task_name = %(task_name)s AND queue_name = %(queue_name)s
       AND TRIM(status) <> 'dead' {sound_id}
"""
ASKED_TO_STOP = """
    SELECT id, attempt FROM txtasks_task
     WHERE id {in_ids} AND TRIM(status) = 'claimed' AND worker = %(worker)s AND cancel_asked_at IS NOT NULL
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

# -- sessions: what a database knows of a worker by itself -------------------------------------------
MYSQL_PACKET = "SELECT @@max_allowed_packet"

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
# What has waited for longer than two intervals: a page of it, from a given place on.
OVERDUE = """
    SELECT id, task_name, notified_at IS NULL OR notified_at < {ago}, CAST(run_after AS {text}) AS due_at
      FROM txtasks_task {by_queue}
     WHERE status = 'pending' AND lane = '' AND queue_name = %(queue)s AND priority = %(priority)s
       AND run_after < {ago}
       {sound_id} AND attempt < 2147483647 AND failures < 2147483647 AND crashes < 2147483647 {after}
     ORDER BY run_after, id LIMIT %(limit)s
"""
NOTIFIED = (
    "UPDATE txtasks_task SET notified_at = {now} WHERE id {in_ids} AND TRIM(status) = 'pending'"
)
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
# The row of a tick that was merged tells in whose place the batches count that the other task has opened: it stays
# while one of them would be found by UNSETTLED_BATCHES.
OLD_FINISHED = f"""
    SELECT id, CAST(finished_at AS {{text}}) AS until,
           COALESCE((SELECT FALSE FROM txtasks_task t WHERE t.id = merged_into), TRUE)
       AND (merged_into IS NULL
            OR COALESCE((SELECT FALSE FROM txtasks_batch {{by_root}}
                          WHERE root_task = merged_into AND {_IS_UNSETTLED} LIMIT 1), TRUE))
       AND (batch IS NULL OR outcome IN ('succeeded', 'merged')
            OR COALESCE((SELECT FALSE FROM txtasks_batch b WHERE b.id = batch AND b.finished_at IS NULL), TRUE))
           {{of_queues}}
      FROM (SELECT id, finished_at, merged_into, batch, outcome, queue_name FROM txtasks_finishedtask {{by_finish}}
             WHERE finished_at < {{ago}} {{since}} {{sound_id}}
             ORDER BY finished_at LIMIT %(limit)s OFFSET %(left)s) old
     ORDER BY finished_at
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
