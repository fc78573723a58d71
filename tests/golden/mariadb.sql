-- enqueue_task()

INSERT INTO txtasks_task (id, task_name)
    VALUES (%s, %s);


-- a turn that beats

SHOW VARIABLES LIKE 'wsrep_on';

BEGIN NOT ATOMIC DECLARE is_alive, is_suspected, room, is_paused, head INT; DECLARE mark_time DATETIME(6);
    SET room = %(room)s; START TRANSACTION; UPDATE txtasks_worker
    SET beat = beat + 1, seen_at = UTC_TIMESTAMP(6), running = %(running)s, listening = %(listening)s, sessions = %(sessions)s, suspected_at = CASE WHEN will = %(will)s THEN suspected_at END, will = %(will)s
    WHERE id = %(worker)s
    AND NOT lost ;
    SET is_alive = ROW_COUNT(); IF is_alive THEN
    SELECT suspected_at IS NOT NULL INTO is_suspected
    FROM txtasks_worker
    WHERE id = %(worker)s FOR UPDATE; END IF;
    SELECT is_alive, is_suspected; IF is_alive THEN IF room = %(room)s THEN COMMIT; END IF; ELSE ROLLBACK; END IF; END;


-- a turn that claims by id

BEGIN NOT ATOMIC DECLARE is_alive, is_suspected, room, is_paused, head INT; DECLARE mark_time DATETIME(6);
    SET room = %(room)s; START TRANSACTION; UPDATE txtasks_worker
    SET beat = beat + 1, seen_at = UTC_TIMESTAMP(6), running = %(running)s, listening = %(listening)s, sessions = %(sessions)s, suspected_at = CASE WHEN will = %(will)s THEN suspected_at END, will = %(will)s
    WHERE id = %(worker)s
    AND NOT lost ;
    SET is_alive = ROW_COUNT(); IF is_alive THEN
    SELECT suspected_at IS NOT NULL INTO is_suspected
    FROM txtasks_worker
    WHERE id = %(worker)s FOR UPDATE; END IF;
    SELECT is_alive, is_suspected; IF is_alive THEN
    SELECT id, task_name, queue_name, args, kwargs, attempt, failures, crashes, max_attempts, errors, timeout, hooks, snoozes, lane, batch, CASE WHEN attempt = 0 THEN unique_key END AS merge_key, on_crash = 'retry'
    AND crashes = 0
    AND max_crashes > 1
    AND lane = '' AS may_share, (SELECT TRUE
    FROM txtasks_finishedtask f
    WHERE f.id = txtasks_task.id) AS has_ended, CAST(run_after AS char) AS due_at, TIMESTAMPDIFF(MICROSECOND, UTC_TIMESTAMP(6), run_after) / 1e6 AS wait
    FROM txtasks_task
    WHERE CAST(task_name AS BINARY) IN (%(names…)s)
    AND (crashes = 0 OR crashes < CAST(max_crashes AS signed) - 1)
    AND (expires_at IS NULL OR expires_at > UTC_TIMESTAMP(6))
    AND attempt < 2147483647
    AND failures < 2147483647
    AND crashes < 2147483647
    AND id IN (%(hinted…)s)
    AND TRIM(status) = 'pending'
    AND queue_name IN (%(queues…)s)
    AND queue_name NOT IN (SELECT queue_name
    FROM txtasks_pausedqueue) FOR UPDATE SKIP LOCKED; ELSE ROLLBACK; END IF; END;

BEGIN NOT ATOMIC UPDATE txtasks_task
    SET status = 'claimed', attempt = attempt + 1, worker = %(worker)s, claimed_at = UTC_TIMESTAMP(6), started_at = UTC_TIMESTAMP(6)
    WHERE id IN (%(claimed…)s)
    AND TRIM(status) = 'pending'; IF ROW_COUNT() <> %(count_of_claimed)s THEN SIGNAL SQLSTATE '45000'
    SET MESSAGE_TEXT = 'rows that the turn has locked were not there'; END IF; COMMIT; END;


-- a turn that records an end

BEGIN NOT ATOMIC DECLARE is_alive, is_suspected, room, is_paused, head INT; DECLARE mark_time DATETIME(6);
    SET room = %(room)s; START TRANSACTION; UPDATE txtasks_worker
    SET beat = beat + 1, seen_at = UTC_TIMESTAMP(6), running = %(running)s, listening = %(listening)s, sessions = %(sessions)s, suspected_at = CASE WHEN will = %(will)s THEN suspected_at END, will = %(will)s
    WHERE id = %(worker)s
    AND NOT lost ;
    SET is_alive = ROW_COUNT(); IF is_alive THEN
    SELECT suspected_at IS NOT NULL INTO is_suspected
    FROM txtasks_worker
    WHERE id = %(worker)s FOR UPDATE; END IF;
    SELECT is_alive, is_suspected; IF is_alive THEN
    SELECT id, attempt, worker
    FROM txtasks_task
    WHERE id IN (%(ended…)s)
    AND TRIM(status) = 'claimed' FOR UPDATE SKIP LOCKED ; ELSE ROLLBACK; END IF; END;

BEGIN NOT ATOMIC INSERT INTO txtasks_finishedtask ( id, task_name, queue_name, priority, args, kwargs, enqueued_at, run_after, worker, batch, started_at, attempt, failures, crashes, errors, late_finishes, outcome, result)
    SELECT id, task_name, queue_name, priority, args, kwargs, enqueued_at, run_after, worker, batch, started_at, attempt, failures, crashes, errors, late_finishes, %(outcome)s, NULL
    FROM txtasks_task
    WHERE id IN (%(done…)s)
    AND TRIM(status) = %(status)s; DELETE
    FROM txtasks_task
    WHERE id IN (%(done…)s)
    AND TRIM(status) = %(status)s; IF ROW_COUNT() <> %(count_of_done)s THEN SIGNAL SQLSTATE '45000'
    SET MESSAGE_TEXT = 'rows that the turn has locked were not there'; END IF; COMMIT; END;


-- the first turn that scans

BEGIN NOT ATOMIC DECLARE is_alive, is_suspected, room, is_paused, head, head_0 INT; DECLARE mark_time DATETIME(6);
    SET room = %(room)s; START TRANSACTION; UPDATE txtasks_worker
    SET beat = beat + 1, seen_at = UTC_TIMESTAMP(6), running = %(running)s, listening = %(listening)s, sessions = %(sessions)s, suspected_at = CASE WHEN will = %(will)s THEN suspected_at END, will = %(will)s
    WHERE id = %(worker)s
    AND NOT lost ;
    SET is_alive = ROW_COUNT(); IF is_alive THEN
    SELECT suspected_at IS NOT NULL INTO is_suspected
    FROM txtasks_worker
    WHERE id = %(worker)s FOR UPDATE; END IF;
    SELECT is_alive, is_suspected; IF is_alive THEN
    SELECT IF(%(queue_0)s IN (SELECT queue_name
    FROM txtasks_pausedqueue), -32769, COALESCE((
    SELECT MAX(priority)
    FROM txtasks_task
    WHERE status = 'pending'
    AND lane = ''
    AND queue_name = %(queue_0)s ), -32769)) INTO head_0;
    SET head = GREATEST(head_0, -32769); WHILE room > 0
    AND head > -32769 DO IF room > 0
    AND head_0 = head THEN
    SELECT priority, id, task_name, queue_name, args, kwargs, attempt, failures, crashes, max_attempts, errors, timeout, hooks, snoozes, lane, batch, CASE WHEN attempt = 0 THEN unique_key END AS merge_key, on_crash = 'retry'
    AND crashes = 0
    AND max_crashes > 1
    AND lane = '' AS may_share, (SELECT TRUE
    FROM txtasks_finishedtask f
    WHERE f.id = txtasks_task.id) AS has_ended, CAST(run_after AS char) AS due_at, TIMESTAMPDIFF(MICROSECOND, UTC_TIMESTAMP(6), run_after) / 1e6 AS wait
    FROM txtasks_task FORCE INDEX (txtasks_pending)
    WHERE CAST(task_name AS BINARY) IN (%(names…)s)
    AND (crashes = 0 OR crashes < CAST(max_crashes AS signed) - 1)
    AND (expires_at IS NULL OR expires_at > UTC_TIMESTAMP(6))
    AND attempt < 2147483647
    AND failures < 2147483647
    AND crashes < 2147483647
    AND status = 'pending'
    AND lane = ''
    AND queue_name = %(queue_0)s
    AND priority = head
    AND run_after <= UTC_TIMESTAMP(6)
    ORDER BY run_after, id
    LIMIT room FOR UPDATE SKIP LOCKED ;
    SET room = room - FOUND_ROWS(); IF room > 0 THEN
    SELECT COALESCE((
    SELECT MAX(priority)
    FROM txtasks_task
    WHERE status = 'pending'
    AND lane = ''
    AND queue_name = %(queue_0)s
    AND priority < head), -32769) INTO head_0; END IF; END IF;
    SET head = GREATEST(head_0, -32769); END WHILE; IF room = %(room)s THEN COMMIT; END IF; ELSE ROLLBACK; END IF; END;

BEGIN NOT ATOMIC UPDATE txtasks_task
    SET status = 'claimed', attempt = attempt + 1, worker = %(worker)s, claimed_at = UTC_TIMESTAMP(6), started_at = UTC_TIMESTAMP(6)
    WHERE id IN (%(claimed…)s)
    AND TRIM(status) = 'pending'; IF ROW_COUNT() <> %(count_of_claimed)s THEN SIGNAL SQLSTATE '45000'
    SET MESSAGE_TEXT = 'rows that the turn has locked were not there'; END IF; COMMIT; END;


-- a turn that records an end and scans

BEGIN NOT ATOMIC DECLARE is_alive, is_suspected, room, is_paused, head, head_0 INT; DECLARE mark_time DATETIME(6);
    SET room = %(room)s; START TRANSACTION; UPDATE txtasks_worker
    SET beat = beat + 1, seen_at = UTC_TIMESTAMP(6), running = %(running)s, listening = %(listening)s, sessions = %(sessions)s, suspected_at = CASE WHEN will = %(will)s THEN suspected_at END, will = %(will)s
    WHERE id = %(worker)s
    AND NOT lost ;
    SET is_alive = ROW_COUNT(); IF is_alive THEN
    SELECT suspected_at IS NOT NULL INTO is_suspected
    FROM txtasks_worker
    WHERE id = %(worker)s FOR UPDATE; END IF;
    SELECT is_alive, is_suspected; IF is_alive THEN
    SELECT id, attempt, worker
    FROM txtasks_task
    WHERE id IN (%(ended…)s)
    AND TRIM(status) = 'claimed' FOR UPDATE SKIP LOCKED ;
    SELECT IF(%(queue_0)s IN (SELECT queue_name
    FROM txtasks_pausedqueue), -32769, COALESCE((
    SELECT MAX(priority)
    FROM txtasks_task
    WHERE status = 'pending'
    AND lane = ''
    AND queue_name = %(queue_0)s ), -32769)) INTO head_0;
    SET head = GREATEST(head_0, -32769); WHILE room > 0
    AND head > -32769 DO IF room > 0
    AND head_0 = head THEN
    SELECT priority, id, task_name, queue_name, args, kwargs, attempt, failures, crashes, max_attempts, errors, timeout, hooks, snoozes, lane, batch, CASE WHEN attempt = 0 THEN unique_key END AS merge_key, on_crash = 'retry'
    AND crashes = 0
    AND max_crashes > 1
    AND lane = '' AS may_share, (SELECT TRUE
    FROM txtasks_finishedtask f
    WHERE f.id = txtasks_task.id) AS has_ended, CAST(run_after AS char) AS due_at, TIMESTAMPDIFF(MICROSECOND, UTC_TIMESTAMP(6), run_after) / 1e6 AS wait
    FROM txtasks_task FORCE INDEX (txtasks_pending)
    WHERE CAST(task_name AS BINARY) IN (%(names…)s)
    AND (crashes = 0 OR crashes < CAST(max_crashes AS signed) - 1)
    AND (expires_at IS NULL OR expires_at > UTC_TIMESTAMP(6))
    AND attempt < 2147483647
    AND failures < 2147483647
    AND crashes < 2147483647
    AND status = 'pending'
    AND lane = ''
    AND queue_name = %(queue_0)s
    AND priority = head
    AND run_after <= UTC_TIMESTAMP(6)
    ORDER BY run_after, id
    LIMIT room FOR UPDATE SKIP LOCKED ;
    SET room = room - FOUND_ROWS(); IF room > 0 THEN
    SELECT COALESCE((
    SELECT MAX(priority)
    FROM txtasks_task
    WHERE status = 'pending'
    AND lane = ''
    AND queue_name = %(queue_0)s
    AND priority < head), -32769) INTO head_0; END IF; END IF;
    SET head = GREATEST(head_0, -32769); END WHILE; ELSE ROLLBACK; END IF; END;

BEGIN NOT ATOMIC INSERT INTO txtasks_finishedtask ( id, task_name, queue_name, priority, args, kwargs, enqueued_at, run_after, worker, batch, started_at, attempt, failures, crashes, errors, late_finishes, outcome, result)
    SELECT id, task_name, queue_name, priority, args, kwargs, enqueued_at, run_after, worker, batch, started_at, attempt, failures, crashes, errors, late_finishes, %(outcome)s, NULL
    FROM txtasks_task
    WHERE id IN (%(done…)s)
    AND TRIM(status) = %(status)s; DELETE
    FROM txtasks_task
    WHERE id IN (%(done…)s)
    AND TRIM(status) = %(status)s; IF ROW_COUNT() <> %(count_of_done)s THEN SIGNAL SQLSTATE '45000'
    SET MESSAGE_TEXT = 'rows that the turn has locked were not there'; END IF; COMMIT; END;


-- a turn that records a failure

UPDATE txtasks_worker
    SET beat = beat + 1, seen_at = UTC_TIMESTAMP(6), running = %(running)s, listening = %(listening)s, sessions = %(sessions)s, suspected_at = CASE WHEN will = %(will)s THEN suspected_at END, will = %(will)s
    WHERE id = %(worker)s
    AND NOT lost;

SELECT id, attempt, worker
    FROM txtasks_task
    WHERE id IN (%(ids…)s)
    AND TRIM(status) = 'claimed' FOR UPDATE SKIP LOCKED;

SELECT UTC_TIMESTAMP(6);

UPDATE txtasks_task
    SET status = 'pending', worker = NULL, claimed_at = NULL, started_at = NULL, notified_at = NULL, run_after = CASE WHEN %(delay)s > 0 THEN UTC_TIMESTAMP(6) + INTERVAL ROUND(%(delay)s * 1000000) MICROSECOND ELSE run_after END, failures = failures + %(failed)s, crashes = crashes + %(crashed)s, errors = %(errors)s, cause = %(cause)s
    WHERE id = %(id)s
    AND attempt = %(attempt)s
    AND worker = %(worker)s
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
    FROM txtasks_task FORCE INDEX (txtasks_claimed)
    WHERE status = 'claimed'
    AND worker = %(worker)s
    LIMIT %(limit)s;

SELECT `txtasks_task`.`task_name` AS `task_name`
    FROM `txtasks_task`
    WHERE `txtasks_task`.`id` IN (%s, %s);

SELECT id, attempt, worker, task_name, queue_name, args, kwargs, failures, crashes, max_crashes, on_crash, errors, hooks, batch, cancel_asked_at IS NOT NULL
    FROM txtasks_task
    WHERE id IN (%(ids…)s)
    AND TRIM(status) = 'claimed'
    AND worker = %(worker)s;

SELECT id, attempt, worker
    FROM txtasks_task
    WHERE id IN (%(ids…)s)
    AND TRIM(status) = 'claimed' FOR UPDATE SKIP LOCKED;

SELECT UTC_TIMESTAMP(6);

UPDATE txtasks_task
    SET status = 'dead', worker = NULL, claimed_at = NULL, failures = failures + %(failed)s, crashes = crashes + %(crashed)s, errors = %(errors)s, cause = %(cause)s
    WHERE id = %(id)s
    AND attempt = %(attempt)s
    AND worker = %(worker)s
    AND TRIM(status) = 'claimed';

SELECT CAST(next_at AS char), CAST(UTC_TIMESTAMP(6) AS char)
    FROM txtasks_schedule
    WHERE enabled
    AND CAST(task_name AS BINARY) IN (%(names…)s)
    AND queue_name IN (%(queues…)s)
    AND name NOT IN ('')
    ORDER BY next_at IS NOT NULL, next_at
    LIMIT 1;

SELECT id
    FROM txtasks_worker
    ORDER BY id;

SELECT worker
    FROM txtasks_task FORCE INDEX (txtasks_claimed)
    WHERE status = 'claimed'
    AND worker > %(low)s
    AND worker < %(high)s
    ORDER BY worker
    LIMIT 1;

SELECT id
    FROM txtasks_batch FORCE INDEX (txtasks_batch_end)
    WHERE finished_at IS NULL
    AND id > %(after)s
    ORDER BY finished_at, id
    LIMIT %(limit)s;

SELECT id
    FROM txtasks_batch FORCE INDEX (txtasks_batch_end)
    WHERE finished_at < UTC_TIMESTAMP(6) - INTERVAL ROUND(%(age)s * 1000000) MICROSECOND
    ORDER BY finished_at
    LIMIT %(limit)s FOR UPDATE SKIP LOCKED;

SELECT `txtasks_worker`.`id`, `txtasks_worker`.`lease`, CASE WHEN `txtasks_worker`.`seen_at` < '0001-01-02 00:00:00' THEN TIMESTAMP'0001-01-02 00:00:00' WHEN LAST_DAY(`txtasks_worker`.`seen_at`) IS NULL THEN NULL WHEN `txtasks_worker`.`seen_at` > '9999-12-30 00:00:00' THEN TIMESTAMP'9999-12-30 00:00:00' ELSE `txtasks_worker`.`seen_at` END, CASE WHEN UTC_TIMESTAMP(6) < '0001-01-02 00:00:00' THEN TIMESTAMP'0001-01-02 00:00:00' WHEN LAST_DAY(UTC_TIMESTAMP(6)) IS NULL THEN NULL WHEN UTC_TIMESTAMP(6) > '9999-12-30 00:00:00' THEN TIMESTAMP'9999-12-30 00:00:00' ELSE UTC_TIMESTAMP(6) END AS `now`, CAST(`txtasks_worker`.`queues` AS char) AS `queues_text`, CAST(`txtasks_worker`.`task_names` AS char) AS `task_names_text`, CAST(`txtasks_worker`.`sessions` AS char) AS `sessions_text`
    FROM `txtasks_worker`
    WHERE `txtasks_worker`.`lost` = %s
    LIMIT 1000;

SELECT `txtasks_schedule`.`name`, `txtasks_schedule`.`task_name`, `txtasks_schedule`.`queue_name`, `txtasks_schedule`.`args`, `txtasks_schedule`.`kwargs`, `txtasks_schedule`.`cron`, `txtasks_schedule`.`every`, `txtasks_schedule`.`tz`, `txtasks_schedule`.`catch_up`, `txtasks_schedule`.`grace`, `txtasks_schedule`.`ready_by`, `txtasks_schedule`.`enabled`, CASE WHEN `txtasks_schedule`.`next_at` < '0001-01-02 00:00:00' THEN TIMESTAMP'0001-01-02 00:00:00' WHEN LAST_DAY(`txtasks_schedule`.`next_at`) IS NULL THEN NULL WHEN `txtasks_schedule`.`next_at` > '9999-12-30 00:00:00' THEN TIMESTAMP'9999-12-30 00:00:00' ELSE `txtasks_schedule`.`next_at` END, CASE WHEN `txtasks_schedule`.`last_at` < '0001-01-02 00:00:00' THEN TIMESTAMP'0001-01-02 00:00:00' WHEN LAST_DAY(`txtasks_schedule`.`last_at`) IS NULL THEN NULL WHEN `txtasks_schedule`.`last_at` > '9999-12-30 00:00:00' THEN TIMESTAMP'9999-12-30 00:00:00' ELSE `txtasks_schedule`.`last_at` END, `txtasks_schedule`.`last_task`, CASE WHEN `txtasks_schedule`.`waiting_since` < '0001-01-02 00:00:00' THEN TIMESTAMP'0001-01-02 00:00:00' WHEN LAST_DAY(`txtasks_schedule`.`waiting_since`) IS NULL THEN NULL WHEN `txtasks_schedule`.`waiting_since` > '9999-12-30 00:00:00' THEN TIMESTAMP'9999-12-30 00:00:00' ELSE `txtasks_schedule`.`waiting_since` END, CASE WHEN `txtasks_schedule`.`watched_from` < '0001-01-02 00:00:00' THEN TIMESTAMP'0001-01-02 00:00:00' WHEN LAST_DAY(`txtasks_schedule`.`watched_from`) IS NULL THEN NULL WHEN `txtasks_schedule`.`watched_from` > '9999-12-30 00:00:00' THEN TIMESTAMP'9999-12-30 00:00:00' ELSE `txtasks_schedule`.`watched_from` END, CASE WHEN `txtasks_schedule`.`told_at` < '0001-01-02 00:00:00' THEN TIMESTAMP'0001-01-02 00:00:00' WHEN LAST_DAY(`txtasks_schedule`.`told_at`) IS NULL THEN NULL WHEN `txtasks_schedule`.`told_at` > '9999-12-30 00:00:00' THEN TIMESTAMP'9999-12-30 00:00:00' ELSE `txtasks_schedule`.`told_at` END, `txtasks_schedule`.`from_code`, `txtasks_schedule`.`edited`, `txtasks_schedule`.`release`, `txtasks_schedule`.`code_versions`, `txtasks_schedule`.`error`, CASE WHEN UTC_TIMESTAMP(6) < '0001-01-02 00:00:00' THEN TIMESTAMP'0001-01-02 00:00:00' WHEN LAST_DAY(UTC_TIMESTAMP(6)) IS NULL THEN NULL WHEN UTC_TIMESTAMP(6) > '9999-12-30 00:00:00' THEN TIMESTAMP'9999-12-30 00:00:00' ELSE UTC_TIMESTAMP(6) END AS `now`
    FROM `txtasks_schedule`
    WHERE (`txtasks_schedule`.`enabled` = %s
    AND NOT (`txtasks_schedule`.`ready_by` = %s));

SELECT id
    FROM txtasks_worker
    WHERE lost
    AND seen_at < UTC_TIMESTAMP(6) - INTERVAL ROUND(%(age)s * 1000000) MICROSECOND;

DELETE
    FROM txtasks_endedworker
    WHERE ended_at < UTC_TIMESTAMP(6) - INTERVAL ROUND(%(age)s * 1000000) MICROSECOND;

DELETE
    FROM `txtasks_cleaner`
    WHERE `txtasks_cleaner`.`seen_at` < (UTC_TIMESTAMP(6) - INTERVAL %s MICROSECOND);

SELECT `key`
    FROM txtasks_once FORCE INDEX (txtasks_once_until)
    WHERE until < UTC_TIMESTAMP(6)
    ORDER BY until
    LIMIT %(limit)s FOR UPDATE SKIP LOCKED;

DELETE
    FROM txtasks_stackrequest
    WHERE asked_at < UTC_TIMESTAMP(6) - INTERVAL ROUND(%(age)s * 1000000) MICROSECOND;

SELECT name, tokens, TIMESTAMPDIFF(MICROSECOND, served_at, UTC_TIMESTAMP(6)) / 1000000
    FROM txtasks_lane
    WHERE name > %(behind)s
    AND at_most IS NULL
    AND rate = ''
    AND burst IS NULL
    AND weight IS NULL
    AND paused_at IS NULL
    AND (held_until IS NULL OR held_until < UTC_TIMESTAMP(6))
    AND served_at < UTC_TIMESTAMP(6) - INTERVAL ROUND(%(age)s * 1000000) MICROSECOND
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

SELECT kind
    FROM txtasks_question
    WHERE closed_at IS NULL GROUP BY closed_at, kind;

SELECT id, CAST(expires_at AS char) AS until, status = 'pending'
    FROM txtasks_task FORCE INDEX (txtasks_expires)
    WHERE expires_at <= UTC_TIMESTAMP(6)
    ORDER BY expires_at
    LIMIT %(limit)s OFFSET %(left)s;

SELECT id, CAST(finished_at AS char) AS until, COALESCE((SELECT FALSE
    FROM txtasks_task t
    WHERE t.id = merged_into), TRUE)
    AND (merged_into IS NULL OR COALESCE((SELECT FALSE
    FROM txtasks_batch FORCE INDEX (txtasks_batch_root)
    WHERE root_task = merged_into
    AND (finished_at IS NULL OR failed OR hook_tasks IS NOT NULL)
    LIMIT 1), TRUE))
    AND (batch IS NULL OR outcome IN ('succeeded', 'merged') OR COALESCE((SELECT FALSE
    FROM txtasks_batch b
    WHERE b.id = batch
    AND b.finished_at IS NULL), TRUE))
    FROM (SELECT id, finished_at, merged_into, batch, outcome, queue_name
    FROM txtasks_finishedtask FORCE INDEX (txtasks_finished_at)
    WHERE finished_at < UTC_TIMESTAMP(6) - INTERVAL ROUND(%(age)s * 1000000) MICROSECOND
    ORDER BY finished_at
    LIMIT %(limit)s OFFSET %(left)s) old
    ORDER BY finished_at;

SELECT %s AS `a`
    FROM `txtasks_rawstat`
    LIMIT 1;
