-- enqueue_task()

INSERT INTO txtasks_task (id, task_name)
    VALUES (%s, %s);


-- a turn that beats

WITH beat AS ( UPDATE txtasks_worker
    SET beat = beat + 1, seen_at = statement_timestamp(), running = $1, listening = $2, sessions = $3, suspected_at = CASE WHEN will = $4 THEN suspected_at END, will = $4
    WHERE id = $5
    AND NOT lost
    RETURNING id, suspected_at IS NOT NULL AS is_suspected)
    SELECT NULL, NULL, NULL, NULL, is_suspected
    FROM beat;


-- a turn that claims by id

WITH beat AS ( UPDATE txtasks_worker
    SET beat = beat + 1, seen_at = statement_timestamp(), running = $1, listening = $2, sessions = $3, suspected_at = CASE WHEN will = $4 THEN suspected_at END, will = $4
    WHERE id = $5
    AND NOT lost
    RETURNING id, suspected_at IS NOT NULL AS is_suspected) , hinted AS (
    SELECT id, task_name, queue_name, args, kwargs, attempt, failures, crashes, max_attempts, errors, timeout, hooks, snoozes, lane, batch, CASE WHEN attempt = 0 THEN unique_key END AS merge_key, on_crash = 'retry'
    AND crashes = 0
    AND max_crashes > 1
    AND lane = '' AS may_share, CAST(NULL AS boolean) AS has_ended, CAST(run_after AS text) AS due_at, date_part('epoch', run_after) - date_part('epoch', statement_timestamp()) AS wait
    FROM txtasks_task
    WHERE task_name = ANY(CAST($6 AS text[]))
    AND (crashes = 0 OR crashes < max_crashes - 1)
    AND (expires_at IS NULL OR expires_at > statement_timestamp())
    AND attempt < 2147483647
    AND failures < 2147483647
    AND crashes < 2147483647
    AND id = ANY(CAST($7 AS uuid[]))
    AND TRIM(status) = 'pending'
    AND queue_name = ANY(CAST($8 AS text[]))
    AND queue_name NOT IN (SELECT queue_name
    FROM txtasks_pausedqueue) FOR NO KEY UPDATE SKIP LOCKED) , chosen AS (SELECT row_number() OVER () AS place, *
    FROM (SELECT CAST(NULL AS int) AS head, hinted.*
    FROM hinted ) AS all_of_them) , fitting AS (
    SELECT id, place, count(*) FILTER (WHERE NOT is_short) OVER above AS others, count(*) FILTER (WHERE is_short) OVER above AS short
    FROM (SELECT id, place, may_share
    AND task_name = ANY(CAST($9 AS text[])) AS is_short
    FROM chosen
    WHERE wait <= 0
    AND merge_key IS NULL
    AND lane = '') AS found WINDOW above AS (ORDER BY place) ), taken AS ( UPDATE txtasks_task
    SET status = 'claimed', attempt = attempt + 1, worker = $5, claimed_at = statement_timestamp(), started_at = statement_timestamp()
    WHERE id = ANY(ARRAY(SELECT fitting.id
    FROM beat, fitting
    WHERE others + GREATEST(short - $10, 0) <= $11
    AND others + short <= $12))
    AND TRIM(status) = 'pending'
    RETURNING id )
    SELECT CASE WHEN COALESCE(place, 1) = 1 THEN NULL END, CASE WHEN COALESCE(place, 1) = 1 THEN NULL END, CASE WHEN COALESCE(place, 1) = 1 THEN ARRAY(SELECT id
    FROM txtasks_task
    WHERE id = ANY(CAST($7 AS uuid[]))) END, CASE WHEN COALESCE(place, 1) = 1 THEN ARRAY(SELECT id
    FROM txtasks_finishedtask
    WHERE id = ANY(CAST($7 AS uuid[]))) END, CASE WHEN COALESCE(place, 1) = 1 THEN is_suspected END, chosen.id IN (SELECT taken.id
    FROM taken), chosen.*
    FROM beat LEFT
    JOIN chosen ON TRUE
    ORDER BY place;


-- a turn that records an end

WITH beat AS ( UPDATE txtasks_worker
    SET beat = beat + 1, seen_at = statement_timestamp(), running = $1, listening = $2, sessions = $3, suspected_at = CASE WHEN will = $4 THEN suspected_at END, will = $4
    WHERE id = $5
    AND NOT lost
    RETURNING id, suspected_at IS NOT NULL AS is_suspected) , held AS (
    SELECT id
    FROM txtasks_task
    WHERE EXISTS (SELECT
    FROM beat)
    AND id = ANY(CAST($6 AS uuid[]))
    AND attempt = (CAST($7 AS int[]))[array_position(CAST($6 AS uuid[]), id)]
    AND worker = $5
    AND TRIM(status) = 'claimed' FOR NO KEY UPDATE SKIP LOCKED ), gone AS (DELETE
    FROM txtasks_task
    WHERE id = ANY(ARRAY(SELECT id
    FROM held))
    RETURNING *) , kept AS ( INSERT INTO txtasks_finishedtask ( id, task_name, queue_name, priority, args, kwargs, enqueued_at, run_after, worker, batch, started_at, attempt, failures, crashes, errors, late_finishes, outcome, result)
    SELECT id, task_name, queue_name, priority, args, kwargs, enqueued_at, run_after, worker, batch, started_at, attempt, failures, crashes, errors, late_finishes, $8, CAST(NULLIF((CAST($9 AS text[]))[array_position(CAST($6 AS uuid[]), id)], '') AS jsonb)
    FROM gone)
    SELECT ARRAY(SELECT id
    FROM gone
    ORDER BY id), ARRAY(SELECT attempt
    FROM gone
    ORDER BY id), NULL, NULL, is_suspected
    FROM beat;


-- the first turn that scans

WITH beat AS ( UPDATE txtasks_worker
    SET beat = beat + 1, seen_at = statement_timestamp(), running = $1, listening = $2, sessions = $3, suspected_at = CASE WHEN will = $4 THEN suspected_at END, will = $4
    WHERE id = $5
    AND NOT lost
    RETURNING id, suspected_at IS NOT NULL AS is_suspected) , heads AS (
    SELECT head.queue, head.priority, COALESCE(mark.run_after, '-infinity') AS mark_time, COALESCE(mark.id, '00000000-0000-0000-0000-000000000000') AS mark_id
    FROM (
    SELECT asked.queue, asked.place, head.priority
    FROM unnest(CAST($6 AS text[])) WITH ORDINALITY AS asked(queue, place) CROSS
    JOIN LATERAL ( WITH RECURSIVE present(priority) AS (
    SELECT (SELECT CASE WHEN t.queue_name = asked.queue
    AND t.lane = '' THEN t.priority END
    FROM txtasks_task t
    WHERE t.status = 'pending'
    AND (t.status, t.lane, t.queue_name) <= ('pending', '', asked.queue)
    ORDER BY t.status DESC, t.lane DESC, t.queue_name DESC, t.priority DESC
    LIMIT 1)
    UNION ALL
    SELECT (SELECT CASE WHEN t.queue_name = asked.queue
    AND t.lane = '' THEN t.priority END
    FROM txtasks_task t
    WHERE t.status = 'pending'
    AND (t.status, t.lane, t.queue_name, t.priority) < ('pending', '', asked.queue, present.priority)
    ORDER BY t.status DESC, t.lane DESC, t.queue_name DESC, t.priority DESC
    LIMIT 1)
    FROM present
    WHERE present.priority IS NOT NULL )
    SELECT priority
    FROM present
    WHERE priority IS NOT NULL ) AS head
    WHERE asked.queue NOT IN (SELECT queue_name
    FROM txtasks_pausedqueue)) AS head LEFT
    JOIN unnest(CAST($7 AS text[]), CAST($8 AS int[]), CAST($9 AS timestamptz[]), CAST($10 AS uuid[])) AS mark(queue, priority, run_after, id) USING (queue, priority)
    ORDER BY head.priority DESC, head.place ), due AS (
    SELECT heads.priority AS head, found.*
    FROM heads CROSS
    JOIN LATERAL (
    SELECT id, task_name, queue_name, args, kwargs, attempt, failures, crashes, max_attempts, errors, timeout, hooks, snoozes, lane, batch, CASE WHEN attempt = 0 THEN unique_key END AS merge_key, on_crash = 'retry'
    AND crashes = 0
    AND max_crashes > 1
    AND lane = '' AS may_share, (SELECT TRUE
    FROM txtasks_finishedtask f
    WHERE f.id = txtasks_task.id) AS has_ended, CAST(run_after AS text) AS due_at, date_part('epoch', run_after) - date_part('epoch', statement_timestamp()) AS wait
    FROM txtasks_task
    WHERE task_name = ANY(CAST($11 AS text[]))
    AND (crashes = 0 OR crashes < max_crashes - 1)
    AND (expires_at IS NULL OR expires_at > statement_timestamp())
    AND attempt < 2147483647
    AND failures < 2147483647
    AND crashes < 2147483647
    AND status = 'pending'
    AND lane = ''
    AND queue_name = heads.queue
    AND priority = heads.priority
    AND run_after <= statement_timestamp()
    AND (run_after, id) > (heads.mark_time, heads.mark_id)
    ORDER BY run_after, id
    LIMIT $12 FOR NO KEY UPDATE SKIP LOCKED ) AS found
    LIMIT $12 ) , chosen AS (SELECT row_number() OVER () AS place, *
    FROM (SELECT *
    FROM due) AS all_of_them) , fitting AS (
    SELECT id, place, count(*) FILTER (WHERE NOT is_short) OVER above AS others, count(*) FILTER (WHERE is_short) OVER above AS short
    FROM (SELECT id, place, may_share
    AND task_name = ANY(CAST($13 AS text[])) AS is_short
    FROM chosen
    WHERE wait <= 0
    AND merge_key IS NULL
    AND lane = '') AS found WINDOW above AS (ORDER BY place) ), taken AS ( UPDATE txtasks_task
    SET status = 'claimed', attempt = attempt + 1, worker = $5, claimed_at = statement_timestamp(), started_at = statement_timestamp()
    WHERE id = ANY(ARRAY(SELECT fitting.id
    FROM beat, fitting
    WHERE others + GREATEST(short - $14, 0) <= $15
    AND others + short <= $16))
    AND TRIM(status) = 'pending'
    RETURNING id )
    SELECT CASE WHEN COALESCE(place, 1) = 1 THEN NULL END, CASE WHEN COALESCE(place, 1) = 1 THEN NULL END, CASE WHEN COALESCE(place, 1) = 1 THEN NULL END, CASE WHEN COALESCE(place, 1) = 1 THEN NULL END, CASE WHEN COALESCE(place, 1) = 1 THEN is_suspected END, chosen.id IN (SELECT taken.id
    FROM taken), chosen.*
    FROM beat LEFT
    JOIN chosen ON TRUE
    ORDER BY place;


-- a turn that records an end and scans

WITH beat AS ( UPDATE txtasks_worker
    SET beat = beat + 1, seen_at = statement_timestamp(), running = $1, listening = $2, sessions = $3, suspected_at = CASE WHEN will = $4 THEN suspected_at END, will = $4
    WHERE id = $5
    AND NOT lost
    RETURNING id, suspected_at IS NOT NULL AS is_suspected) , held AS (
    SELECT id
    FROM txtasks_task
    WHERE EXISTS (SELECT
    FROM beat)
    AND id = ANY(CAST($6 AS uuid[]))
    AND attempt = (CAST($7 AS int[]))[array_position(CAST($6 AS uuid[]), id)]
    AND worker = $5
    AND TRIM(status) = 'claimed' FOR NO KEY UPDATE SKIP LOCKED ), gone AS (DELETE
    FROM txtasks_task
    WHERE id = ANY(ARRAY(SELECT id
    FROM held))
    RETURNING *) , kept AS ( INSERT INTO txtasks_finishedtask ( id, task_name, queue_name, priority, args, kwargs, enqueued_at, run_after, worker, batch, started_at, attempt, failures, crashes, errors, late_finishes, outcome, result)
    SELECT id, task_name, queue_name, priority, args, kwargs, enqueued_at, run_after, worker, batch, started_at, attempt, failures, crashes, errors, late_finishes, $8, CAST(NULLIF((CAST($9 AS text[]))[array_position(CAST($6 AS uuid[]), id)], '') AS jsonb)
    FROM gone) , heads AS (
    SELECT head.queue, head.priority, COALESCE(mark.run_after, '-infinity') AS mark_time, COALESCE(mark.id, '00000000-0000-0000-0000-000000000000') AS mark_id
    FROM (
    SELECT asked.queue, asked.place, head.priority
    FROM unnest(CAST($10 AS text[])) WITH ORDINALITY AS asked(queue, place) CROSS
    JOIN LATERAL ( WITH RECURSIVE present(priority) AS (
    SELECT (SELECT CASE WHEN t.queue_name = asked.queue
    AND t.lane = '' THEN t.priority END
    FROM txtasks_task t
    WHERE t.status = 'pending'
    AND (t.status, t.lane, t.queue_name) <= ('pending', '', asked.queue)
    ORDER BY t.status DESC, t.lane DESC, t.queue_name DESC, t.priority DESC
    LIMIT 1)
    UNION ALL
    SELECT (SELECT CASE WHEN t.queue_name = asked.queue
    AND t.lane = '' THEN t.priority END
    FROM txtasks_task t
    WHERE t.status = 'pending'
    AND (t.status, t.lane, t.queue_name, t.priority) < ('pending', '', asked.queue, present.priority)
    ORDER BY t.status DESC, t.lane DESC, t.queue_name DESC, t.priority DESC
    LIMIT 1)
    FROM present
    WHERE present.priority IS NOT NULL )
    SELECT priority
    FROM present
    WHERE priority IS NOT NULL ) AS head
    WHERE asked.queue NOT IN (SELECT queue_name
    FROM txtasks_pausedqueue)) AS head LEFT
    JOIN unnest(CAST($11 AS text[]), CAST($12 AS int[]), CAST($13 AS timestamptz[]), CAST($14 AS uuid[])) AS mark(queue, priority, run_after, id) USING (queue, priority)
    ORDER BY head.priority DESC, head.place ), due AS (
    SELECT heads.priority AS head, found.*
    FROM heads CROSS
    JOIN LATERAL (
    SELECT id, task_name, queue_name, args, kwargs, attempt, failures, crashes, max_attempts, errors, timeout, hooks, snoozes, lane, batch, CASE WHEN attempt = 0 THEN unique_key END AS merge_key, on_crash = 'retry'
    AND crashes = 0
    AND max_crashes > 1
    AND lane = '' AS may_share, (SELECT TRUE
    FROM txtasks_finishedtask f
    WHERE f.id = txtasks_task.id) AS has_ended, CAST(run_after AS text) AS due_at, date_part('epoch', run_after) - date_part('epoch', statement_timestamp()) AS wait
    FROM txtasks_task
    WHERE task_name = ANY(CAST($15 AS text[]))
    AND (crashes = 0 OR crashes < max_crashes - 1)
    AND (expires_at IS NULL OR expires_at > statement_timestamp())
    AND attempt < 2147483647
    AND failures < 2147483647
    AND crashes < 2147483647
    AND status = 'pending'
    AND lane = ''
    AND queue_name = heads.queue
    AND priority = heads.priority
    AND run_after <= statement_timestamp()
    AND (run_after, id) > (heads.mark_time, heads.mark_id)
    ORDER BY run_after, id
    LIMIT $16 FOR NO KEY UPDATE SKIP LOCKED ) AS found
    LIMIT $16 ) , chosen AS (SELECT row_number() OVER () AS place, *
    FROM (SELECT *
    FROM due) AS all_of_them) , fitting AS (
    SELECT id, place, count(*) FILTER (WHERE NOT is_short) OVER above AS others, count(*) FILTER (WHERE is_short) OVER above AS short
    FROM (SELECT id, place, may_share
    AND task_name = ANY(CAST($17 AS text[])) AS is_short
    FROM chosen
    WHERE wait <= 0
    AND merge_key IS NULL
    AND lane = '') AS found WINDOW above AS (ORDER BY place) ), taken AS ( UPDATE txtasks_task
    SET status = 'claimed', attempt = attempt + 1, worker = $5, claimed_at = statement_timestamp(), started_at = statement_timestamp()
    WHERE id = ANY(ARRAY(SELECT fitting.id
    FROM beat, fitting
    WHERE others + GREATEST(short - $18, 0) <= $19
    AND others + short <= $20))
    AND TRIM(status) = 'pending'
    RETURNING id )
    SELECT CASE WHEN COALESCE(place, 1) = 1 THEN ARRAY(SELECT id
    FROM gone
    ORDER BY id) END, CASE WHEN COALESCE(place, 1) = 1 THEN ARRAY(SELECT attempt
    FROM gone
    ORDER BY id) END, CASE WHEN COALESCE(place, 1) = 1 THEN NULL END, CASE WHEN COALESCE(place, 1) = 1 THEN NULL END, CASE WHEN COALESCE(place, 1) = 1 THEN is_suspected END, chosen.id IN (SELECT taken.id
    FROM taken), chosen.*
    FROM beat LEFT
    JOIN chosen ON TRUE
    ORDER BY place;


-- a turn that records a failure

UPDATE txtasks_worker
    SET beat = beat + 1, seen_at = statement_timestamp(), running = $1, listening = $2, sessions = $3, suspected_at = CASE WHEN will = $4 THEN suspected_at END, will = $4
    WHERE id = $5
    AND NOT lost
    RETURNING suspected_at IS NOT NULL;

SELECT id, attempt, worker
    FROM txtasks_task
    WHERE id = ANY(CAST($1 AS uuid[]))
    AND TRIM(status) = 'claimed' FOR NO KEY UPDATE SKIP LOCKED;

SELECT statement_timestamp();

UPDATE txtasks_task
    SET status = 'pending', worker = NULL, claimed_at = NULL, started_at = NULL, notified_at = NULL, run_after = CASE WHEN $1 > 0 THEN statement_timestamp() + make_interval(secs => $1) ELSE run_after END, failures = failures + $2, crashes = crashes + $3, errors = $4, cause = $5
    WHERE id = $6
    AND attempt = $7
    AND worker = $8
    AND TRIM(status) = 'claimed';


-- enqueue_many() of a few

INSERT INTO txtasks_task (id, task_name)
    VALUES (%s, %s), (%s, %s);


-- a cleaner that rescues what a lost worker had

SELECT id, beat, lease, host, pid, sessions, suspected_at IS NOT NULL, listening IS NOT NULL
    FROM txtasks_worker
    WHERE NOT lost;

SELECT id, host, pid
    FROM txtasks_worker
    WHERE lost;

SELECT id
    FROM txtasks_task
    WHERE status = 'claimed'
    AND worker = $1
    LIMIT $2;

SELECT "txtasks_task"."task_name" AS "task_name"
    FROM "txtasks_task"
    WHERE "txtasks_task"."id" IN (%s, %s);

SELECT id, attempt, worker, task_name, queue_name, args, kwargs, failures, crashes, max_crashes, on_crash, errors, hooks, batch, cancel_asked_at IS NOT NULL
    FROM txtasks_task
    WHERE id = ANY(CAST($1 AS uuid[]))
    AND TRIM(status) = 'claimed'
    AND worker = $2;

SELECT id, attempt, worker
    FROM txtasks_task
    WHERE id = ANY(CAST($1 AS uuid[]))
    AND TRIM(status) = 'claimed' FOR NO KEY UPDATE SKIP LOCKED;

SELECT statement_timestamp();

UPDATE txtasks_task
    SET status = 'dead', worker = NULL, claimed_at = NULL, failures = failures + $1, crashes = crashes + $2, errors = $3, cause = $4
    WHERE id = $5
    AND attempt = $6
    AND worker = $7
    AND TRIM(status) = 'claimed';

SELECT CAST(next_at AT TIME ZONE 'UTC' AS text), CAST(statement_timestamp() AT TIME ZONE 'UTC' AS text)
    FROM txtasks_schedule
    WHERE enabled
    AND task_name = ANY(CAST($1 AS text[]))
    AND queue_name = ANY(CAST($2 AS text[]))
    AND name NOT IN ('')
    ORDER BY next_at IS NOT NULL, next_at
    LIMIT 1;

SELECT id
    FROM txtasks_worker
    ORDER BY id;

SELECT worker
    FROM txtasks_task
    WHERE status = 'claimed'
    AND worker > $1
    AND worker < $2
    ORDER BY worker
    LIMIT 1;

SELECT id
    FROM txtasks_batch
    WHERE finished_at IS NULL
    AND id > $1
    ORDER BY finished_at, id
    LIMIT $2;

SELECT id
    FROM txtasks_batch
    WHERE finished_at < statement_timestamp() - make_interval(secs => $1)
    ORDER BY finished_at
    LIMIT $2 FOR NO KEY UPDATE SKIP LOCKED;

SELECT "txtasks_worker"."id", "txtasks_worker"."lease", CASE WHEN "txtasks_worker"."seen_at" < timestamptz '0001-01-02 00:00:00+00' THEN timestamptz '0001-01-02 00:00:00+00' WHEN "txtasks_worker"."seen_at" > timestamptz '9999-12-30 00:00:00+00' THEN timestamptz '9999-12-30 00:00:00+00' ELSE "txtasks_worker"."seen_at" END, CASE WHEN STATEMENT_TIMESTAMP() < timestamptz '0001-01-02 00:00:00+00' THEN timestamptz '0001-01-02 00:00:00+00' WHEN STATEMENT_TIMESTAMP() > timestamptz '9999-12-30 00:00:00+00' THEN timestamptz '9999-12-30 00:00:00+00' ELSE STATEMENT_TIMESTAMP() END AS "now", ("txtasks_worker"."queues")::text AS "queues_text", ("txtasks_worker"."task_names")::text AS "task_names_text", ("txtasks_worker"."sessions")::text AS "sessions_text"
    FROM "txtasks_worker"
    WHERE NOT "txtasks_worker"."lost"
    LIMIT 1000;

SELECT "txtasks_schedule"."name", "txtasks_schedule"."task_name", "txtasks_schedule"."queue_name", "txtasks_schedule"."args", "txtasks_schedule"."kwargs", "txtasks_schedule"."cron", "txtasks_schedule"."every", "txtasks_schedule"."tz", "txtasks_schedule"."catch_up", "txtasks_schedule"."grace", "txtasks_schedule"."ready_by", "txtasks_schedule"."enabled", CASE WHEN "txtasks_schedule"."next_at" < timestamptz '0001-01-02 00:00:00+00' THEN timestamptz '0001-01-02 00:00:00+00' WHEN "txtasks_schedule"."next_at" > timestamptz '9999-12-30 00:00:00+00' THEN timestamptz '9999-12-30 00:00:00+00' ELSE "txtasks_schedule"."next_at" END, CASE WHEN "txtasks_schedule"."last_at" < timestamptz '0001-01-02 00:00:00+00' THEN timestamptz '0001-01-02 00:00:00+00' WHEN "txtasks_schedule"."last_at" > timestamptz '9999-12-30 00:00:00+00' THEN timestamptz '9999-12-30 00:00:00+00' ELSE "txtasks_schedule"."last_at" END, "txtasks_schedule"."last_task", CASE WHEN "txtasks_schedule"."waiting_since" < timestamptz '0001-01-02 00:00:00+00' THEN timestamptz '0001-01-02 00:00:00+00' WHEN "txtasks_schedule"."waiting_since" > timestamptz '9999-12-30 00:00:00+00' THEN timestamptz '9999-12-30 00:00:00+00' ELSE "txtasks_schedule"."waiting_since" END, CASE WHEN "txtasks_schedule"."watched_from" < timestamptz '0001-01-02 00:00:00+00' THEN timestamptz '0001-01-02 00:00:00+00' WHEN "txtasks_schedule"."watched_from" > timestamptz '9999-12-30 00:00:00+00' THEN timestamptz '9999-12-30 00:00:00+00' ELSE "txtasks_schedule"."watched_from" END, CASE WHEN "txtasks_schedule"."told_at" < timestamptz '0001-01-02 00:00:00+00' THEN timestamptz '0001-01-02 00:00:00+00' WHEN "txtasks_schedule"."told_at" > timestamptz '9999-12-30 00:00:00+00' THEN timestamptz '9999-12-30 00:00:00+00' ELSE "txtasks_schedule"."told_at" END, "txtasks_schedule"."from_code", "txtasks_schedule"."edited", "txtasks_schedule"."release", "txtasks_schedule"."code_versions", "txtasks_schedule"."error", CASE WHEN STATEMENT_TIMESTAMP() < timestamptz '0001-01-02 00:00:00+00' THEN timestamptz '0001-01-02 00:00:00+00' WHEN STATEMENT_TIMESTAMP() > timestamptz '9999-12-30 00:00:00+00' THEN timestamptz '9999-12-30 00:00:00+00' ELSE STATEMENT_TIMESTAMP() END AS "now"
    FROM "txtasks_schedule"
    WHERE ("txtasks_schedule"."enabled"
    AND NOT ("txtasks_schedule"."ready_by" = %s));

SELECT id
    FROM txtasks_worker
    WHERE lost
    AND seen_at < statement_timestamp() - make_interval(secs => $1);

DELETE
    FROM txtasks_endedworker
    WHERE ended_at < statement_timestamp() - make_interval(secs => $1);

DELETE
    FROM "txtasks_cleaner"
    WHERE "txtasks_cleaner"."seen_at" < (STATEMENT_TIMESTAMP() - %s);

DELETE
    FROM txtasks_once
    WHERE key IN (
    SELECT key
    FROM txtasks_once
    WHERE until < statement_timestamp()
    ORDER BY until
    LIMIT $1 FOR NO KEY UPDATE SKIP LOCKED );

DELETE
    FROM txtasks_stackrequest
    WHERE asked_at < statement_timestamp() - make_interval(secs => $1);

SELECT name, tokens, EXTRACT(EPOCH
    FROM statement_timestamp()) - EXTRACT(EPOCH
    FROM served_at)
    FROM txtasks_lane
    WHERE name > $1
    AND at_most IS NULL
    AND rate = ''
    AND burst IS NULL
    AND weight IS NULL
    AND paused_at IS NULL
    AND (held_until IS NULL OR held_until < statement_timestamp())
    AND served_at < statement_timestamp() - make_interval(secs => $2)
    ORDER BY name
    LIMIT $3;

SELECT task_id
    FROM (SELECT DISTINCT task_id
    FROM txtasks_step
    WHERE task_id > $1
    ORDER BY task_id
    LIMIT $2) of_txtasks_step
    UNION
    SELECT task_id
    FROM (SELECT DISTINCT task_id
    FROM txtasks_wait
    WHERE task_id > $1
    ORDER BY task_id
    LIMIT $2) of_txtasks_wait
    UNION
    SELECT task_id
    FROM (SELECT DISTINCT task_id
    FROM txtasks_link
    WHERE task_id > $1
    ORDER BY task_id
    LIMIT $2) of_txtasks_link
    UNION
    SELECT task_id
    FROM (SELECT DISTINCT task_id
    FROM txtasks_question
    WHERE task_id > $1
    ORDER BY task_id
    LIMIT $2) of_txtasks_question
    ORDER BY task_id
    LIMIT $2;

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
    FROM txtasks_task
    WHERE expires_at <= statement_timestamp()
    AND status = 'pending'
    ORDER BY expires_at
    LIMIT $1 OFFSET $2;

SELECT id, CAST(finished_at AS text) AS until, COALESCE((SELECT FALSE
    FROM txtasks_task t
    WHERE t.id = merged_into), TRUE)
    AND (merged_into IS NULL OR COALESCE((SELECT FALSE
    FROM txtasks_batch
    WHERE root_task = merged_into
    AND (finished_at IS NULL OR failed OR hook_tasks IS NOT NULL)
    LIMIT 1), TRUE))
    AND (batch IS NULL OR outcome IN ('succeeded', 'merged') OR COALESCE((SELECT FALSE
    FROM txtasks_batch b
    WHERE b.id = batch
    AND b.finished_at IS NULL), TRUE))
    FROM (SELECT id, finished_at, merged_into, batch, outcome, queue_name
    FROM txtasks_finishedtask
    WHERE finished_at < statement_timestamp() - make_interval(secs => $1)
    ORDER BY finished_at
    LIMIT $2 OFFSET $3) old
    ORDER BY finished_at;

SELECT %s AS "a"
    FROM "txtasks_rawstat"
    LIMIT 1;
