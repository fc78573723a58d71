-- enqueue_task()

INSERT INTO txtasks_task (id, task_name)
    VALUES (%s, %s);


-- a turn that beats

BEGIN IMMEDIATE;

UPDATE txtasks_worker
    SET beat = beat + 1, seen_at = strftime('%%Y-%%m-%%d %%H:%%M:%%f', 'now'), running = %(running)s, listening = %(listening)s, sessions = %(sessions)s, suspected_at = CASE WHEN will = %(will)s THEN suspected_at END, will = %(will)s
    WHERE id = %(worker)s
    AND NOT lost;


-- a turn that claims by id

BEGIN IMMEDIATE;

UPDATE txtasks_worker
    SET beat = beat + 1, seen_at = strftime('%%Y-%%m-%%d %%H:%%M:%%f', 'now'), running = %(running)s, listening = %(listening)s, sessions = %(sessions)s, suspected_at = CASE WHEN will = %(will)s THEN suspected_at END, will = %(will)s
    WHERE id = %(worker)s
    AND NOT lost;

SELECT id, task_name, queue_name, args, kwargs, attempt, failures, crashes, max_attempts, errors, timeout, hooks, snoozes, lane, batch, CASE WHEN attempt = 0 THEN unique_key END AS merge_key, on_crash = 'retry'
    AND crashes = 0
    AND max_crashes > 1
    AND lane = '' AS may_share, (SELECT TRUE
    FROM txtasks_finishedtask f
    WHERE f.id = txtasks_task.id) AS has_ended, CAST(run_after AS text) AS due_at, COALESCE((julianday(run_after) - julianday('now')) * 86400.0, 1e9) AS wait
    FROM txtasks_task
    WHERE task_name IN (%(names…)s)
    AND (crashes = 0 OR crashes < max_crashes - 1)
    AND length(id) = 32
    AND id NOT GLOB '*[^0-9a-f]*'
    AND (expires_at IS NULL OR expires_at > strftime('%%Y-%%m-%%d %%H:%%M:%%f', 'now'))
    AND attempt < 2147483647
    AND failures < 2147483647
    AND crashes < 2147483647
    AND id IN (%(ids…)s)
    AND TRIM(status) = 'pending'
    AND queue_name IN (%(queues…)s)
    AND queue_name NOT IN (SELECT queue_name
    FROM txtasks_pausedqueue);

UPDATE txtasks_task
    SET status = 'claimed', attempt = attempt + 1, worker = %(worker)s, claimed_at = strftime('%%Y-%%m-%%d %%H:%%M:%%f', 'now'), started_at = strftime('%%Y-%%m-%%d %%H:%%M:%%f', 'now')
    WHERE id IN (%(ids…)s)
    AND TRIM(status) = 'pending';


-- a turn that records an end

BEGIN IMMEDIATE;

UPDATE txtasks_worker
    SET beat = beat + 1, seen_at = strftime('%%Y-%%m-%%d %%H:%%M:%%f', 'now'), running = %(running)s, listening = %(listening)s, sessions = %(sessions)s, suspected_at = CASE WHEN will = %(will)s THEN suspected_at END, will = %(will)s
    WHERE id = %(worker)s
    AND NOT lost;

SELECT id, attempt, worker
    FROM txtasks_task
    WHERE id IN (%(ids…)s)
    AND TRIM(status) = 'claimed';

INSERT INTO txtasks_finishedtask ( id, task_name, queue_name, priority, args, kwargs, enqueued_at, run_after, worker, batch, started_at, attempt, failures, crashes, errors, late_finishes, outcome, result)
    SELECT id, task_name, queue_name, priority, args, kwargs, enqueued_at, run_after, worker, batch, started_at, attempt, failures, crashes, errors, late_finishes, %(outcome)s, NULL
    FROM txtasks_task
    WHERE id IN (%(ids…)s)
    AND TRIM(status) = %(status)s;

DELETE
    FROM txtasks_task
    WHERE id IN (%(ids…)s)
    AND TRIM(status) = %(status)s;


-- the first turn that scans

BEGIN IMMEDIATE;

UPDATE txtasks_worker
    SET beat = beat + 1, seen_at = strftime('%%Y-%%m-%%d %%H:%%M:%%f', 'now'), running = %(running)s, listening = %(listening)s, sessions = %(sessions)s, suspected_at = CASE WHEN will = %(will)s THEN suspected_at END, will = %(will)s
    WHERE id = %(worker)s
    AND NOT lost;

SELECT queue_name
    FROM txtasks_pausedqueue;

WITH RECURSIVE present(priority) AS (
    SELECT (SELECT CASE WHEN t.queue_name = %(queue)s
    AND t.lane = '' THEN t.priority END
    FROM txtasks_task t
    WHERE t.status = 'pending'
    AND t.lane = ''
    AND t.queue_name = %(queue)s
    ORDER BY t.status DESC, t.lane DESC, t.queue_name DESC, t.priority DESC
    LIMIT 1)
    UNION ALL
    SELECT (SELECT CASE WHEN t.queue_name = %(queue)s
    AND t.lane = '' THEN t.priority END
    FROM txtasks_task t
    WHERE t.status = 'pending'
    AND t.lane = ''
    AND t.queue_name = %(queue)s
    AND t.priority < present.priority
    ORDER BY t.status DESC, t.lane DESC, t.queue_name DESC, t.priority DESC
    LIMIT 1)
    FROM present
    WHERE present.priority IS NOT NULL )
    SELECT priority
    FROM present
    WHERE priority IS NOT NULL;

SELECT id, task_name, queue_name, args, kwargs, attempt, failures, crashes, max_attempts, errors, timeout, hooks, snoozes, lane, batch, CASE WHEN attempt = 0 THEN unique_key END AS merge_key, on_crash = 'retry'
    AND crashes = 0
    AND max_crashes > 1
    AND lane = '' AS may_share, (SELECT TRUE
    FROM txtasks_finishedtask f
    WHERE f.id = txtasks_task.id) AS has_ended, CAST(run_after AS text) AS due_at, COALESCE((julianday(run_after) - julianday('now')) * 86400.0, 1e9) AS wait
    FROM txtasks_task INDEXED BY txtasks_pending
    WHERE task_name IN (%(names…)s)
    AND (crashes = 0 OR crashes < max_crashes - 1)
    AND length(id) = 32
    AND id NOT GLOB '*[^0-9a-f]*'
    AND (expires_at IS NULL OR expires_at > strftime('%%Y-%%m-%%d %%H:%%M:%%f', 'now'))
    AND attempt < 2147483647
    AND failures < 2147483647
    AND crashes < 2147483647
    AND status = 'pending'
    AND lane = ''
    AND queue_name = %(queue)s
    AND priority = %(priority)s
    AND run_after <= strftime('%%Y-%%m-%%d %%H:%%M:%%f', 'now')
    ORDER BY run_after, id
    LIMIT %(limit)s;

UPDATE txtasks_task
    SET status = 'claimed', attempt = attempt + 1, worker = %(worker)s, claimed_at = strftime('%%Y-%%m-%%d %%H:%%M:%%f', 'now'), started_at = strftime('%%Y-%%m-%%d %%H:%%M:%%f', 'now')
    WHERE id IN (%(ids…)s)
    AND TRIM(status) = 'pending';


-- a turn that records an end and scans

BEGIN IMMEDIATE;

UPDATE txtasks_worker
    SET beat = beat + 1, seen_at = strftime('%%Y-%%m-%%d %%H:%%M:%%f', 'now'), running = %(running)s, listening = %(listening)s, sessions = %(sessions)s, suspected_at = CASE WHEN will = %(will)s THEN suspected_at END, will = %(will)s
    WHERE id = %(worker)s
    AND NOT lost;

SELECT id, attempt, worker
    FROM txtasks_task
    WHERE id IN (%(ids…)s)
    AND TRIM(status) = 'claimed';

INSERT INTO txtasks_finishedtask ( id, task_name, queue_name, priority, args, kwargs, enqueued_at, run_after, worker, batch, started_at, attempt, failures, crashes, errors, late_finishes, outcome, result)
    SELECT id, task_name, queue_name, priority, args, kwargs, enqueued_at, run_after, worker, batch, started_at, attempt, failures, crashes, errors, late_finishes, %(outcome)s, NULL
    FROM txtasks_task
    WHERE id IN (%(ids…)s)
    AND TRIM(status) = %(status)s;

DELETE
    FROM txtasks_task
    WHERE id IN (%(ids…)s)
    AND TRIM(status) = %(status)s;

SELECT queue_name
    FROM txtasks_pausedqueue;

WITH RECURSIVE present(priority) AS (
    SELECT (SELECT CASE WHEN t.queue_name = %(queue)s
    AND t.lane = '' THEN t.priority END
    FROM txtasks_task t
    WHERE t.status = 'pending'
    AND t.lane = ''
    AND t.queue_name = %(queue)s
    ORDER BY t.status DESC, t.lane DESC, t.queue_name DESC, t.priority DESC
    LIMIT 1)
    UNION ALL
    SELECT (SELECT CASE WHEN t.queue_name = %(queue)s
    AND t.lane = '' THEN t.priority END
    FROM txtasks_task t
    WHERE t.status = 'pending'
    AND t.lane = ''
    AND t.queue_name = %(queue)s
    AND t.priority < present.priority
    ORDER BY t.status DESC, t.lane DESC, t.queue_name DESC, t.priority DESC
    LIMIT 1)
    FROM present
    WHERE present.priority IS NOT NULL )
    SELECT priority
    FROM present
    WHERE priority IS NOT NULL;


-- a turn that records a failure

BEGIN IMMEDIATE;

UPDATE txtasks_worker
    SET beat = beat + 1, seen_at = strftime('%%Y-%%m-%%d %%H:%%M:%%f', 'now'), running = %(running)s, listening = %(listening)s, sessions = %(sessions)s, suspected_at = CASE WHEN will = %(will)s THEN suspected_at END, will = %(will)s
    WHERE id = %(worker)s
    AND NOT lost;

SELECT id, attempt, worker
    FROM txtasks_task
    WHERE id IN (%(ids…)s)
    AND TRIM(status) = 'claimed';

SELECT strftime('%%Y-%%m-%%d %%H:%%M:%%f', 'now');

UPDATE txtasks_task
    SET status = 'pending', worker = NULL, claimed_at = NULL, started_at = NULL, notified_at = NULL, run_after = CASE WHEN %(delay)s > 0 THEN strftime('%%Y-%%m-%%d %%H:%%M:%%f', 'now', %(delay)s || ' seconds') ELSE run_after END, failures = failures + %(failed)s, crashes = crashes + %(crashed)s, errors = %(errors)s, cause = %(cause)s
    WHERE id = %(id)s
    AND attempt = %(attempt)s
    AND worker = %(worker)s
    AND TRIM(status) = 'claimed';


-- enqueue_many() of a few

BEGIN IMMEDIATE;

INSERT INTO txtasks_task (id, task_name)
    VALUES (%s, %s), (%s, %s);


-- a cleaner that rescues what a lost worker had

SELECT id, beat, lease, host, pid, sessions, suspected_at IS NOT NULL, listening IS NOT NULL
    FROM txtasks_worker
    WHERE NOT lost;

SELECT id, host, pid
    FROM txtasks_worker
    WHERE lost;

BEGIN IMMEDIATE;

SELECT id
    FROM txtasks_task INDEXED BY txtasks_claimed
    WHERE status = 'claimed'
    AND worker = %(worker)s
    LIMIT %(limit)s;

SELECT "txtasks_task"."task_name" AS "task_name"
    FROM "txtasks_task"
    WHERE "txtasks_task"."id" IN (%s, %s);

SELECT id, attempt, worker, task_name, queue_name, args, kwargs, failures, crashes, max_crashes, on_crash, errors, hooks, batch, cancel_asked_at IS NOT NULL
    FROM txtasks_task
    WHERE id IN (%(ids…)s)
    AND TRIM(status) = 'claimed'
    AND worker = %(worker)s;

SELECT id, attempt, worker
    FROM txtasks_task
    WHERE id IN (%(ids…)s)
    AND TRIM(status) = 'claimed';

SELECT strftime('%%Y-%%m-%%d %%H:%%M:%%f', 'now');

UPDATE txtasks_task
    SET status = 'dead', worker = NULL, claimed_at = NULL, failures = failures + %(failed)s, crashes = crashes + %(crashed)s, errors = %(errors)s, cause = %(cause)s
    WHERE id = %(id)s
    AND attempt = %(attempt)s
    AND worker = %(worker)s
    AND TRIM(status) = 'claimed';

SELECT CAST(next_at AS text), CAST(strftime('%%Y-%%m-%%d %%H:%%M:%%f', 'now') AS text)
    FROM txtasks_schedule
    WHERE enabled
    AND task_name IN (%(names…)s)
    AND queue_name IN (%(queues…)s)
    AND name NOT IN ('')
    ORDER BY next_at IS NOT NULL, next_at
    LIMIT 1;

SELECT id
    FROM txtasks_worker
    ORDER BY id;

SELECT worker
    FROM txtasks_task INDEXED BY txtasks_claimed
    WHERE status = 'claimed'
    AND worker > %(low)s
    AND worker < %(high)s
    ORDER BY worker
    LIMIT 1;

SELECT id
    FROM txtasks_batch INDEXED BY txtasks_batch_end
    WHERE finished_at IS NULL
    AND id > %(after)s
    ORDER BY finished_at, id
    LIMIT %(limit)s;

SELECT id
    FROM txtasks_batch INDEXED BY txtasks_batch_end
    WHERE finished_at < strftime('%%Y-%%m-%%d %%H:%%M:%%f', 'now', -%(age)s || ' seconds')
    ORDER BY finished_at
    LIMIT %(limit)s;

SELECT "txtasks_worker"."id", "txtasks_worker"."lease", CASE WHEN datetime("txtasks_worker"."seen_at", '+0 days') > '9999-12-30 00:00:00' THEN '9999-12-30 00:00:00' WHEN datetime("txtasks_worker"."seen_at", '+0 days') >= '0001-01-02 00:00:00' THEN CASE WHEN strftime('%%Y-%%m-%%d %%H:%%M:%%S', "txtasks_worker"."seen_at", '+0 days') = substr("txtasks_worker"."seen_at", 1, 19)
    AND length("txtasks_worker"."seen_at") <= 26 THEN "txtasks_worker"."seen_at" ELSE strftime('%%Y-%%m-%%d %%H:%%M:%%f', "txtasks_worker"."seen_at", '+0 days') END END, CASE WHEN datetime(STRFTIME('%%Y-%%m-%%d %%H:%%M:%%f', 'NOW'), '+0 days') > '9999-12-30 00:00:00' THEN '9999-12-30 00:00:00' WHEN datetime(STRFTIME('%%Y-%%m-%%d %%H:%%M:%%f', 'NOW'), '+0 days') >= '0001-01-02 00:00:00' THEN CASE WHEN strftime('%%Y-%%m-%%d %%H:%%M:%%S', STRFTIME('%%Y-%%m-%%d %%H:%%M:%%f', 'NOW'), '+0 days') = substr(STRFTIME('%%Y-%%m-%%d %%H:%%M:%%f', 'NOW'), 1, 19)
    AND length(STRFTIME('%%Y-%%m-%%d %%H:%%M:%%f', 'NOW')) <= 26 THEN STRFTIME('%%Y-%%m-%%d %%H:%%M:%%f', 'NOW') ELSE strftime('%%Y-%%m-%%d %%H:%%M:%%f', STRFTIME('%%Y-%%m-%%d %%H:%%M:%%f', 'NOW'), '+0 days') END END AS "now", CAST("txtasks_worker"."queues" AS text) AS "queues_text", CAST("txtasks_worker"."task_names" AS text) AS "task_names_text", CAST("txtasks_worker"."sessions" AS text) AS "sessions_text"
    FROM "txtasks_worker"
    WHERE "txtasks_worker"."lost" = %s
    LIMIT 1000;

SELECT "txtasks_schedule"."name", "txtasks_schedule"."task_name", "txtasks_schedule"."queue_name", "txtasks_schedule"."args", "txtasks_schedule"."kwargs", "txtasks_schedule"."cron", "txtasks_schedule"."every", "txtasks_schedule"."tz", "txtasks_schedule"."catch_up", "txtasks_schedule"."grace", "txtasks_schedule"."ready_by", "txtasks_schedule"."enabled", CASE WHEN datetime("txtasks_schedule"."next_at", '+0 days') > '9999-12-30 00:00:00' THEN '9999-12-30 00:00:00' WHEN datetime("txtasks_schedule"."next_at", '+0 days') >= '0001-01-02 00:00:00' THEN CASE WHEN strftime('%%Y-%%m-%%d %%H:%%M:%%S', "txtasks_schedule"."next_at", '+0 days') = substr("txtasks_schedule"."next_at", 1, 19)
    AND length("txtasks_schedule"."next_at") <= 26 THEN "txtasks_schedule"."next_at" ELSE strftime('%%Y-%%m-%%d %%H:%%M:%%f', "txtasks_schedule"."next_at", '+0 days') END END, CASE WHEN datetime("txtasks_schedule"."last_at", '+0 days') > '9999-12-30 00:00:00' THEN '9999-12-30 00:00:00' WHEN datetime("txtasks_schedule"."last_at", '+0 days') >= '0001-01-02 00:00:00' THEN CASE WHEN strftime('%%Y-%%m-%%d %%H:%%M:%%S', "txtasks_schedule"."last_at", '+0 days') = substr("txtasks_schedule"."last_at", 1, 19)
    AND length("txtasks_schedule"."last_at") <= 26 THEN "txtasks_schedule"."last_at" ELSE strftime('%%Y-%%m-%%d %%H:%%M:%%f', "txtasks_schedule"."last_at", '+0 days') END END, "txtasks_schedule"."last_task", CASE WHEN datetime("txtasks_schedule"."waiting_since", '+0 days') > '9999-12-30 00:00:00' THEN '9999-12-30 00:00:00' WHEN datetime("txtasks_schedule"."waiting_since", '+0 days') >= '0001-01-02 00:00:00' THEN CASE WHEN strftime('%%Y-%%m-%%d %%H:%%M:%%S', "txtasks_schedule"."waiting_since", '+0 days') = substr("txtasks_schedule"."waiting_since", 1, 19)
    AND length("txtasks_schedule"."waiting_since") <= 26 THEN "txtasks_schedule"."waiting_since" ELSE strftime('%%Y-%%m-%%d %%H:%%M:%%f', "txtasks_schedule"."waiting_since", '+0 days') END END, CASE WHEN datetime("txtasks_schedule"."watched_from", '+0 days') > '9999-12-30 00:00:00' THEN '9999-12-30 00:00:00' WHEN datetime("txtasks_schedule"."watched_from", '+0 days') >= '0001-01-02 00:00:00' THEN CASE WHEN strftime('%%Y-%%m-%%d %%H:%%M:%%S', "txtasks_schedule"."watched_from", '+0 days') = substr("txtasks_schedule"."watched_from", 1, 19)
    AND length("txtasks_schedule"."watched_from") <= 26 THEN "txtasks_schedule"."watched_from" ELSE strftime('%%Y-%%m-%%d %%H:%%M:%%f', "txtasks_schedule"."watched_from", '+0 days') END END, CASE WHEN datetime("txtasks_schedule"."told_at", '+0 days') > '9999-12-30 00:00:00' THEN '9999-12-30 00:00:00' WHEN datetime("txtasks_schedule"."told_at", '+0 days') >= '0001-01-02 00:00:00' THEN CASE WHEN strftime('%%Y-%%m-%%d %%H:%%M:%%S', "txtasks_schedule"."told_at", '+0 days') = substr("txtasks_schedule"."told_at", 1, 19)
    AND length("txtasks_schedule"."told_at") <= 26 THEN "txtasks_schedule"."told_at" ELSE strftime('%%Y-%%m-%%d %%H:%%M:%%f', "txtasks_schedule"."told_at", '+0 days') END END, "txtasks_schedule"."from_code", "txtasks_schedule"."edited", "txtasks_schedule"."release", "txtasks_schedule"."code_versions", "txtasks_schedule"."error", CASE WHEN datetime(STRFTIME('%%Y-%%m-%%d %%H:%%M:%%f', 'NOW'), '+0 days') > '9999-12-30 00:00:00' THEN '9999-12-30 00:00:00' WHEN datetime(STRFTIME('%%Y-%%m-%%d %%H:%%M:%%f', 'NOW'), '+0 days') >= '0001-01-02 00:00:00' THEN CASE WHEN strftime('%%Y-%%m-%%d %%H:%%M:%%S', STRFTIME('%%Y-%%m-%%d %%H:%%M:%%f', 'NOW'), '+0 days') = substr(STRFTIME('%%Y-%%m-%%d %%H:%%M:%%f', 'NOW'), 1, 19)
    AND length(STRFTIME('%%Y-%%m-%%d %%H:%%M:%%f', 'NOW')) <= 26 THEN STRFTIME('%%Y-%%m-%%d %%H:%%M:%%f', 'NOW') ELSE strftime('%%Y-%%m-%%d %%H:%%M:%%f', STRFTIME('%%Y-%%m-%%d %%H:%%M:%%f', 'NOW'), '+0 days') END END AS "now"
    FROM "txtasks_schedule"
    WHERE ("txtasks_schedule"."enabled" = %s
    AND NOT ("txtasks_schedule"."ready_by" = %s));

SELECT id
    FROM txtasks_worker
    WHERE lost
    AND seen_at < strftime('%%Y-%%m-%%d %%H:%%M:%%f', 'now', -%(age)s || ' seconds');

DELETE
    FROM txtasks_endedworker
    WHERE ended_at < strftime('%%Y-%%m-%%d %%H:%%M:%%f', 'now', -%(age)s || ' seconds');

DELETE
    FROM "txtasks_cleaner"
    WHERE "txtasks_cleaner"."seen_at" < (django_format_dtdelta('-', STRFTIME('%%Y-%%m-%%d %%H:%%M:%%f', 'NOW'), %s));

DELETE
    FROM txtasks_once
    WHERE key IN (
    SELECT key
    FROM txtasks_once INDEXED BY txtasks_once_until
    WHERE until < strftime('%%Y-%%m-%%d %%H:%%M:%%f', 'now')
    ORDER BY until
    LIMIT %(limit)s );

DELETE
    FROM txtasks_stackrequest
    WHERE asked_at < strftime('%%Y-%%m-%%d %%H:%%M:%%f', 'now', -%(age)s || ' seconds');

SELECT name, tokens, (julianday('now') - julianday(served_at)) * 86400.0
    FROM txtasks_lane
    WHERE name > %(behind)s
    AND at_most IS NULL
    AND rate = ''
    AND burst IS NULL
    AND weight IS NULL
    AND paused_at IS NULL
    AND (held_until IS NULL OR held_until < strftime('%%Y-%%m-%%d %%H:%%M:%%f', 'now'))
    AND served_at < strftime('%%Y-%%m-%%d %%H:%%M:%%f', 'now', -%(age)s || ' seconds')
    ORDER BY name
    LIMIT %(limit)s;

SELECT task_id
    FROM (SELECT DISTINCT task_id
    FROM txtasks_step
    WHERE task_id > %(last)s
    ORDER BY task_id
    LIMIT %(limit)s) of_txtasks_step
    UNION
    SELECT task_id
    FROM (SELECT DISTINCT task_id
    FROM txtasks_wait
    WHERE task_id > %(last)s
    ORDER BY task_id
    LIMIT %(limit)s) of_txtasks_wait
    UNION
    SELECT task_id
    FROM (SELECT DISTINCT task_id
    FROM txtasks_link
    WHERE task_id > %(last)s
    ORDER BY task_id
    LIMIT %(limit)s) of_txtasks_link
    UNION
    SELECT task_id
    FROM (SELECT DISTINCT task_id
    FROM txtasks_question
    WHERE task_id > %(last)s
    ORDER BY task_id
    LIMIT %(limit)s) of_txtasks_question
    ORDER BY task_id
    LIMIT %(limit)s;

WITH RECURSIVE kinds AS (
    SELECT MIN(kind) AS kind
    FROM txtasks_question
    WHERE closed_at IS NULL
    UNION ALL
    SELECT (SELECT MIN(q.kind)
    FROM txtasks_question q
    WHERE q.closed_at IS NULL
    AND q.kind > kinds.kind)
    FROM kinds
    WHERE kinds.kind IS NOT NULL)
    SELECT kind
    FROM kinds
    WHERE kind IS NOT NULL;

SELECT id, CAST(expires_at AS text) AS until, status = 'pending'
    FROM txtasks_task INDEXED BY txtasks_expires
    WHERE expires_at <= strftime('%%Y-%%m-%%d %%H:%%M:%%f', 'now')
    AND status = 'pending'
    AND length(id) = 32
    AND id NOT GLOB '*[^0-9a-f]*'
    ORDER BY expires_at
    LIMIT %(limit)s OFFSET %(left)s;

SELECT id, CAST(finished_at AS text) AS until, COALESCE((SELECT FALSE
    FROM txtasks_task t
    WHERE t.id = merged_into), TRUE)
    AND (merged_into IS NULL OR COALESCE((SELECT FALSE
    FROM txtasks_batch INDEXED BY txtasks_batch_root
    WHERE root_task = merged_into
    AND (finished_at IS NULL OR failed OR hook_tasks IS NOT NULL)
    LIMIT 1), TRUE))
    AND (batch IS NULL OR outcome IN ('succeeded', 'merged') OR COALESCE((SELECT FALSE
    FROM txtasks_batch b
    WHERE b.id = batch
    AND b.finished_at IS NULL), TRUE))
    FROM (SELECT id, finished_at, merged_into, batch, outcome, queue_name
    FROM txtasks_finishedtask INDEXED BY txtasks_finished_at
    WHERE finished_at < strftime('%%Y-%%m-%%d %%H:%%M:%%f', 'now', -%(age)s || ' seconds')
    AND length(id) = 32
    AND id NOT GLOB '*[^0-9a-f]*'
    ORDER BY finished_at
    LIMIT %(limit)s OFFSET %(left)s) old
    ORDER BY finished_at;

SELECT %s AS "a"
    FROM "txtasks_rawstat"
    LIMIT 1;
