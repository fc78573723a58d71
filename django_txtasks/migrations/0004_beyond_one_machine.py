"""Handed tasks in history, and on PostgreSQL the view of the load."""

from typing import Any

from django.db import migrations

import django_txtasks.models

# The settings keep PostgreSQL at the order of the index, whatever its statistics say. The place of the next head is a
# comparison of whole rows. A comparison of whole rows does not end a range, so the due rows of a head are those with
# its columns. There, PostgreSQL would leave ``status = 'pending'`` out of the search, because it is the index's own
# condition, and would read the whole index; it does search for a status out of an array.
# All heads together read about 40,000 rows.
LOAD = """
CREATE FUNCTION txtasks_load_now()
RETURNS TABLE (queue_name text, due bigint, due_in_lanes bigint, oldest_seconds double precision, running bigint,
               run_seconds double precision, wanted_threads bigint)
LANGUAGE sql STABLE
SET enable_sort = off SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off SET search_path FROM CURRENT
AS $load$
WITH RECURSIVE living AS MATERIALIZED (
    SELECT w.id, w.threads, w.queues, w.task_names,
           w.task_names @> '["@loop"]' OR w.task_names @> '["@drain"]' AS is_apart
      FROM txtasks_worker w WHERE NOT w.lost AND w.seen_at > statement_timestamp() - make_interval(secs => w.lease)
), declared AS MATERIALIZED (
    SELECT DISTINCT kind.is_apart, queue.name AS queue_name, task.name AS task_name
      FROM (SELECT DISTINCT l.is_apart, l.queues, l.task_names FROM living l
             WHERE jsonb_typeof(l.queues) = 'array' AND jsonb_typeof(l.task_names) = 'array') kind
     CROSS JOIN LATERAL jsonb_array_elements_text(kind.queues) queue(name)
     CROSS JOIN LATERAL jsonb_array_elements_text(kind.task_names) task(name)
), head AS (
    (SELECT t.status, t.lane, t.queue_name, t.priority, t.run_after FROM txtasks_task t
      WHERE t.status = 'pending' ORDER BY t.status, t.lane, t.queue_name, t.priority, t.run_after, t.id LIMIT 1)
    UNION ALL
    SELECT below.* FROM head CROSS JOIN LATERAL (
        SELECT t.status, t.lane, t.queue_name, t.priority, t.run_after FROM txtasks_task t
         WHERE t.status = 'pending' AND (t.status, t.lane, t.queue_name, t.priority)
             > (head.status, head.lane, head.queue_name, head.priority)
         ORDER BY t.status, t.lane, t.queue_name, t.priority, t.run_after, t.id LIMIT 1) below
     WHERE head.lane = ''
), waiting AS (
    SELECT head.queue_name, row.task_name, count(*) AS due, min(row.run_after) AS oldest
      FROM head CROSS JOIN LATERAL (
        SELECT t.run_after, t.expires_at, t.task_name FROM txtasks_task t
         WHERE t.status = 'pending' AND t.status = ANY(ARRAY[head.status]) AND t.lane = head.lane
           AND t.queue_name = head.queue_name AND t.priority = head.priority
           AND t.run_after <= statement_timestamp()
         ORDER BY t.status, t.lane, t.queue_name, t.priority, t.run_after LIMIT (
            SELECT LEAST(10000, GREATEST(100, 40000 / GREATEST(1, count(*)))) FROM head due
             WHERE due.lane = '' AND due.run_after <= statement_timestamp())) row
     WHERE head.lane = '' AND head.run_after <= statement_timestamp()
       AND (row.expires_at IS NULL OR row.expires_at > statement_timestamp())
     GROUP BY head.queue_name, row.task_name
), ended AS (
    SELECT row.queue_name, row.task_name, row.seconds FROM (
        SELECT f.queue_name, f.task_name, f.outcome,
               EXTRACT(EPOCH FROM f.finished_at) - EXTRACT(EPOCH FROM f.started_at) AS seconds
          FROM txtasks_finishedtask f ORDER BY f.finished_at DESC LIMIT 1000) row
     WHERE row.outcome = 'succeeded' AND row.seconds IS NOT NULL
), of_threads AS MATERIALIZED (
    SELECT pair.queue_name, pair.task_name
      FROM (SELECT w.queue_name, w.task_name FROM waiting w UNION SELECT e.queue_name, e.task_name FROM ended e) pair
     WHERE EXISTS (SELECT FROM declared d WHERE NOT d.is_apart AND d.queue_name = pair.queue_name
                                            AND d.task_name = pair.task_name)
        OR NOT EXISTS (SELECT FROM declared d WHERE d.queue_name = pair.queue_name
                                                AND (NOT d.is_apart OR d.task_name IN (pair.task_name, '@drain')))
), due AS (
    SELECT w.queue_name, LEAST(10000, SUM(w.due))::bigint AS due, MIN(w.oldest) AS oldest
      FROM waiting w JOIN of_threads o ON o.queue_name = w.queue_name AND o.task_name = w.task_name
     WHERE w.queue_name NOT IN (SELECT p.queue_name FROM txtasks_pausedqueue p)
     GROUP BY w.queue_name
), in_lanes AS (
    SELECT row.queue_name, COUNT(*) AS due FROM (
        SELECT t.queue_name, t.run_after, t.expires_at FROM txtasks_task t
         WHERE t.status = 'pending' AND (t.status, t.lane) > ('pending', '')
         ORDER BY t.status, t.lane, t.queue_name, t.priority, t.run_after, t.id LIMIT 10000) row
     WHERE row.run_after <= statement_timestamp()
       AND (row.expires_at IS NULL OR row.expires_at > statement_timestamp())
       AND row.queue_name NOT IN (SELECT p.queue_name FROM txtasks_pausedqueue p)
     GROUP BY row.queue_name
), running AS (
    SELECT row.queue_name, COUNT(*) AS running,
           AVG(EXTRACT(EPOCH FROM statement_timestamp()) - EXTRACT(EPOCH FROM row.claimed_at)) AS seconds
      FROM living l CROSS JOIN LATERAL (
        SELECT t.queue_name, t.claimed_at FROM txtasks_task t WHERE t.status = 'claimed' AND t.worker = l.id
         ORDER BY t.claimed_at LIMIT l.threads) row
     WHERE NOT l.is_apart GROUP BY row.queue_name
), ran AS (
    SELECT e.queue_name, AVG(e.seconds) AS seconds
      FROM ended e JOIN of_threads o ON o.queue_name = e.queue_name AND o.task_name = e.task_name
     GROUP BY e.queue_name
), number AS (
    SELECT name.queue_name, COALESCE(due.due, 0) AS due, COALESCE(in_lanes.due, 0) AS due_in_lanes,
           COALESCE(EXTRACT(EPOCH FROM statement_timestamp()) - EXTRACT(EPOCH FROM due.oldest), 0) AS oldest,
           COALESCE(running.running, 0) AS running, COALESCE(ran.seconds, GREATEST(1, running.seconds)) AS seconds
      FROM (SELECT d.queue_name FROM due d UNION SELECT i.queue_name FROM in_lanes i
            UNION SELECT r.queue_name FROM running r) name
      LEFT JOIN due ON due.queue_name = name.queue_name
      LEFT JOIN in_lanes ON in_lanes.queue_name = name.queue_name
      LEFT JOIN running ON running.queue_name = name.queue_name
      LEFT JOIN ran ON ran.queue_name = name.queue_name
)
SELECT n.queue_name, n.due, n.due_in_lanes, LEAST(1e9, n.oldest), n.running, bounded.seconds,
       n.running + CEIL(n.due * bounded.seconds / 15)::bigint
  FROM number n CROSS JOIN LATERAL (SELECT LEAST(1e6, GREATEST(0, n.seconds)) AS seconds) bounded
$load$;
CREATE VIEW txtasks_load AS SELECT * FROM txtasks_load_now();
"""
NO_LOAD = "DROP VIEW txtasks_load; DROP FUNCTION txtasks_load_now();"


class OnPostgreSQL(migrations.RunSQL):
    """SQL for PostgreSQL, in databases that have the table of tasks."""

    def database_forwards(self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any) -> None:
        if self._has_table(app_label, schema_editor, to_state):
            super().database_forwards(app_label, schema_editor, from_state, to_state)

    def database_backwards(self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any) -> None:
        if self._has_table(app_label, schema_editor, to_state):
            super().database_backwards(app_label, schema_editor, from_state, to_state)

    def _has_table(self, app_label: str, schema_editor: Any, state: Any) -> bool:
        connection, model = schema_editor.connection, state.apps.get_model(app_label, 'task')
        # allow_migrate_model returns False if the project's router keeps the table elsewhere
        return bool(connection.vendor == 'postgresql' and self.allow_migrate_model(connection.alias, model))


class Migration(migrations.Migration):

    dependencies = [
        ('txtasks', '0003_index_of_causes'),
    ]

    operations = [
        migrations.AlterField(
            model_name='finishedtask',
            name='outcome',
            field=django_txtasks.models.ExactText(choices=[('succeeded', 'succeeded'), ('cancelled', 'cancelled'), ('discarded', 'discarded'), ('expired', 'cancelled: expired'), ('merged', 'merged into another one'), ('handed', 'handed over')], max_length=10),
        ),
        OnPostgreSQL(LOAD, NO_LOAD, hints={'model_name': 'task'}),
    ]
