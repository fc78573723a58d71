"""All tables, with their indexes, constraints and, on PostgreSQL, storage parameters.

Columns and indexes stand in the order that they have in the tables.

Storage parameters keep the tables healthy as queues. A task dies twice, when it is claimed and when it is finished.
PostgreSQL's default lets a fifth of a table die before it is vacuumed: 400,000 rows beside 2,000,000 that are due
later. Here 1,000 dead rows are enough, at full speed; how often PostgreSQL looks is ``autovacuum_naptime``, which only
the server can set. VACUUM does not cut empty pages off the end of a file that the next burst fills again, because it
would lock everybody out for that.

A fleet of five workers leaves 1,000 dead rows only after minutes, in which each of its rows has died 200 times, and
each look at the workers reads all of them: 50 dead rows are enough there. Long values of tasks (TOAST) are cut into
chunks of 2 kB, so 100 of these are enough.

Pages are filled to the half, so that the next version of a row finds room beside the last one. A beat, and each other
change of columns without an index, then touches no index (HOT); a claim writes less (see
docs/explanation/performance.md). A full table is twice as large, until its tasks are done.

History is large and only its oldest rows die: there the default's fractions are made smaller, and its slow pace is
kept.
"""

from typing import Any

import django_txtasks.models
from django.db import migrations, models
from django.db.migrations.operations.base import Operation
from django.db.models import F, Q

QUEUE = {
    'autovacuum_vacuum_scale_factor': '0',
    'autovacuum_vacuum_threshold': '1000',
    'autovacuum_vacuum_cost_delay': '0',
    'vacuum_truncate': 'off',
    'fillfactor': '50',
}

# MariaDB and MySQL have no index of a part of a table: they would have an entry for each row, and would change it when
# the row is claimed. There, such an index begins with a computed column, which is empty in all other rows. The column is
# stored: after the deletion of a row, an index of a virtual one would need the server to compute it again.
FAILED = """
    ADD COLUMN failed_status varchar(10) CHARACTER SET utf8mb4 COLLATE {collation} GENERATED ALWAYS AS
        (CASE WHEN status IN ('dead', 'held') OR (cause IS NOT NULL AND status = 'pending') THEN status END) STORED,
    ADD INDEX txtasks_stopped (failed_status, run_after),
    ADD INDEX txtasks_cause (failed_status, queue_name, cause, run_after, id)
"""
LAST_CHANCES = """
    ADD COLUMN last_chance_at datetime(6) GENERATED ALWAYS AS
        (CASE WHEN status = 'pending' AND crashes > 0 AND crashes + 1 >= max_crashes THEN run_after END) STORED,
    ADD INDEX txtasks_last_chance (last_chance_at)
"""
# The settings keep PostgreSQL at the order of the index, whatever its statistics say. The place of the next head is a
# comparison of whole rows. A comparison of whole rows does not end a range, so the due rows of a head are those with
# its columns. There, PostgreSQL would leave ``status = 'pending'`` out of the search, because it is the index's own
# condition, and would read the whole index; it does search for a status out of an array.
# All heads together read about 40,000 rows.
# The view cannot read the setting ``hand_over``: after each ``migrate``, ``features.hand_over.at_start`` writes it here.
LOAD = """
CREATE OR REPLACE FUNCTION txtasks_handed_queues() RETURNS text[] LANGUAGE sql STABLE AS $$SELECT ARRAY[]::text[]$$;
CREATE OR REPLACE FUNCTION txtasks_load_now()
RETURNS TABLE (queue_name text, due bigint, due_in_lanes bigint, oldest_seconds double precision, running bigint,
               run_seconds double precision, wanted_threads bigint)
LANGUAGE sql STABLE
SET enable_sort = off SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off SET search_path FROM CURRENT
AS $load$
WITH RECURSIVE living AS MATERIALIZED (
    SELECT w.id, w.threads, w.queues, w.task_names,
           CASE WHEN w.task_names @> '["@loop"]' OR w.task_names @> '["@drain"]' OR w.task_names @> '["@alone"]' THEN 0
                WHEN w.task_names = '[]' OR CAST(w.task_names AS text) ~ '"(@|django_txtasks[.])'
                  OR CAST(w.sessions AS text) ~ '"process ' THEN 2
                ELSE 1 END AS kind
      FROM txtasks_worker w WHERE NOT w.lost AND w.seen_at > statement_timestamp() - make_interval(secs => w.lease)
), declared AS MATERIALIZED (
    SELECT DISTINCT kind.kind, queue.name AS queue_name, task.name AS task_name
      FROM (SELECT DISTINCT l.kind, l.queues, l.task_names FROM living l
             WHERE jsonb_typeof(l.queues) = 'array' AND jsonb_typeof(l.task_names) = 'array') kind
     CROSS JOIN LATERAL jsonb_array_elements_text(kind.queues) queue(name)
     CROSS JOIN LATERAL jsonb_array_elements_text(kind.task_names) task(name)
), served AS MATERIALIZED (
    SELECT d.queue_name, MAX(d.kind) AS kind FROM declared d GROUP BY d.queue_name
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
           AND t.queue_name = head.queue_name AND t.priority = head.priority AND (t.crashes = 0 OR t.crashes < t.max_crashes - 1)
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
     WHERE pair.queue_name <> ALL (txtasks_handed_queues())
       AND (EXISTS (SELECT FROM declared d JOIN served s ON s.queue_name = d.queue_name AND s.kind = d.kind
                     WHERE d.kind > 0 AND d.queue_name = pair.queue_name AND d.task_name = pair.task_name)
            OR NOT EXISTS (SELECT FROM declared d WHERE d.queue_name = pair.queue_name
                                                    AND (d.kind > 0 OR d.task_name IN (pair.task_name, '@drain'))))
), due AS (
    SELECT w.queue_name, LEAST(10000, SUM(w.due))::bigint AS due, MIN(w.oldest) AS oldest
      FROM waiting w JOIN of_threads o ON o.queue_name = w.queue_name AND o.task_name = w.task_name
     WHERE w.queue_name NOT IN (SELECT p.queue_name FROM txtasks_pausedqueue p)
     GROUP BY w.queue_name
), in_lanes AS (
    SELECT row.queue_name, COUNT(*) AS due FROM (
        SELECT t.queue_name, t.run_after, t.expires_at FROM txtasks_task t
         WHERE t.status = 'pending' AND (t.status, t.lane) > ('pending', '') AND (t.crashes = 0 OR t.crashes < t.max_crashes - 1)
         ORDER BY t.status, t.lane, t.queue_name, t.priority, t.run_after, t.id LIMIT 10000) row
     WHERE row.run_after <= statement_timestamp()
       AND (row.expires_at IS NULL OR row.expires_at > statement_timestamp())
       AND row.queue_name NOT IN (SELECT p.queue_name FROM txtasks_pausedqueue p)
       AND row.queue_name <> ALL (txtasks_handed_queues())
     GROUP BY row.queue_name
), running AS (
    SELECT row.queue_name, COUNT(*) AS running,
           AVG(EXTRACT(EPOCH FROM statement_timestamp()) - EXTRACT(EPOCH FROM row.claimed_at)) AS seconds
      FROM living l CROSS JOIN LATERAL (
        SELECT t.queue_name, t.claimed_at FROM txtasks_task t WHERE t.status = 'claimed' AND t.worker = l.id
         ORDER BY t.claimed_at LIMIT l.threads) row
     WHERE l.kind > 0
       AND (l.kind = 2 OR NOT EXISTS (SELECT FROM served s WHERE s.queue_name = row.queue_name AND s.kind = 2))
     GROUP BY row.queue_name
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
CREATE OR REPLACE VIEW txtasks_load AS SELECT * FROM txtasks_load_now();
"""
NO_LOAD = "DROP VIEW txtasks_load; DROP FUNCTION txtasks_load_now(); DROP FUNCTION txtasks_handed_queues();"


class SetStorage(Operation):
    """Set storage parameters of a model's table on PostgreSQL; do nothing elsewhere."""

    reduces_to_sql = True
    reversible = True

    def __init__(self, model_name: str, parameters: dict[str, str]) -> None:
        self.model_name = model_name
        self.parameters = parameters

    def state_forwards(self, app_label: str, state: Any) -> None:
        """Leave the models as they are."""

    def database_forwards(self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any) -> None:
        model, connection = to_state.apps.get_model(app_label, self.model_name), schema_editor.connection
        if connection.vendor == 'postgresql' and self.allow_migrate_model(connection.alias, model):
            table = schema_editor.quote_name(model._meta.db_table)
            pairs = ', '.join(f'{name} = {value}' for name, value in self.parameters.items())
            schema_editor.execute(f'ALTER TABLE {table} SET ({pairs})')

    def database_backwards(self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any) -> None:
        """Do nothing: the table goes next."""

    def describe(self) -> str:
        return f'Set storage parameters of {self.model_name} on PostgreSQL'


class AddPartialIndex(migrations.AddIndex):
    """Add an index of a part of a table.

    Args:
        in_mysql: the changes of the table that MariaDB and MySQL make instead; empty = none.
    """

    def __init__(self, model_name: str, index: models.Index, in_mysql: str = '') -> None:
        super().__init__(model_name, index)
        self.in_mysql = in_mysql

    def database_forwards(self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any) -> None:
        connection = schema_editor.connection
        model = to_state.apps.get_model(app_label, self.model_name)
        if connection.vendor != 'mysql':
            super().database_forwards(app_label, schema_editor, from_state, to_state)
        elif self.in_mysql and self.allow_migrate_model(connection.alias, model):
            changes = self.in_mysql.strip().format(collation=django_txtasks.models.exact_collation(connection))
            schema_editor.execute(f'ALTER TABLE {model._meta.db_table} {changes}')

    def database_backwards(self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any) -> None:
        """Do nothing: the table goes next."""


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

    initial = True

    dependencies = []

    # A database has all of them or none: see ``checks.PARTIAL``.
    replaces = [
        ('txtasks', '0001_initial'),
        ('txtasks', '0002_figures_and_causes'),
        ('txtasks', '0003_index_of_causes'),
        ('txtasks', '0004_beyond_one_machine'),
        ('txtasks', '0005_links'),
        ('txtasks', '0006_last_chances'),
        ('txtasks', '0007_ends_of_workers'),
        ('txtasks', '0008_text_of_all_languages'),
        ('txtasks', '0009_load_without_last_chances'),
    ]

    operations = [
        migrations.CreateModel(
            name='Worker',
            fields=[
                ('id', django_txtasks.models.TaskId(editable=False, primary_key=True, serialize=False)),
                ('host', django_txtasks.models.ExactText(max_length=200)),
                ('pid', models.PositiveIntegerField()),
                ('queues', models.JSONField()),
                ('threads', models.PositiveSmallIntegerField()),
                ('running', models.PositiveSmallIntegerField(db_default=0)),
                ('listening', models.BooleanField(help_text='hints reach the worker; empty = it has no source of hints, and scans', null=True)),
                ('lease', models.FloatField(help_text='seconds without a beat after which the worker may be declared lost', verbose_name='lease')),
                ('started_at', models.DateTimeField(db_default=django_txtasks.models.DatabaseNow())),
                ('seen_at', models.DateTimeField(db_default=django_txtasks.models.DatabaseNow())),
                ('beat', models.BigIntegerField(db_default=0, verbose_name='beat')),
                ('lost', models.BooleanField(db_default=False)),
                ('sessions', models.JSONField(db_default=models.Value([], models.JSONField()), help_text="sessions: the loop's first, then those of slots, last the worker's process; empty = not known")),
                ('suspected_at', models.DateTimeField(help_text='when RabbitMQ delivered the last will', null=True)),
                ('will', models.PositiveIntegerField(db_default=0, help_text='number of the last will that RabbitMQ holds; 0 = none')),
                ('task_names', models.JSONField(db_default=models.Value([], models.JSONField()), help_text="the task functions that the worker's code declares; it claims no others")),
                ('protocol', models.SmallIntegerField(db_default=0, help_text="what the worker's release supports: 1 = paused queues, 2 = lanes, too")),
                ('progress', models.JSONField(db_default=models.Value({}, models.JSONField()), help_text='progress that the running tasks have reported, by task id')),
                ('release', django_txtasks.models.ExactText(db_default='', help_text="release of the worker's code; empty = not set", max_length=100)),
                ('stats_seq', models.BigIntegerField(db_default=0, help_text='number of the last statistics that the worker has written')),
                ('how', django_txtasks.models.ExactText(db_default='', help_text='how its process ended; empty = it runs, or not known', max_length=30)),
            ],
            options={
                'verbose_name': 'worker',
                'verbose_name_plural': 'workers',
                'default_permissions': ('view',),
            },
        ),
        migrations.CreateModel(
            name='FinishedTask',
            fields=[
                ('id', django_txtasks.models.TaskId(editable=False, primary_key=True, serialize=False)),
                ('task_name', django_txtasks.models.ExactText(max_length=200)),
                ('queue_name', django_txtasks.models.ExactText(db_default='default', max_length=100)),
                ('priority', models.SmallIntegerField(db_default=0, verbose_name='priority')),
                ('args', models.JSONField(db_default=models.Value([], models.JSONField()))),
                ('kwargs', models.JSONField(db_default=models.Value({}, models.JSONField()))),
                ('enqueued_at', models.DateTimeField(db_default=django_txtasks.models.DatabaseNow())),
                ('run_after', models.DateTimeField(db_default=django_txtasks.models.DatabaseNow())),
                ('worker', django_txtasks.models.TaskId(null=True)),
                ('started_at', models.DateTimeField(null=True)),
                ('attempt', models.PositiveIntegerField(db_default=0, verbose_name='attempt')),
                ('failures', models.PositiveIntegerField(db_default=0, verbose_name='failures')),
                ('crashes', models.PositiveIntegerField(db_default=0, verbose_name='crashes')),
                ('errors', models.JSONField(db_default=models.Value([], models.JSONField()))),
                ('outcome', django_txtasks.models.ExactText(choices=[('succeeded', 'succeeded'), ('cancelled', 'cancelled'), ('discarded', 'discarded'), ('expired', 'cancelled: expired'), ('merged', 'merged into another one'), ('handed', 'handed over')], max_length=10)),
                ('finished_at', models.DateTimeField(db_default=django_txtasks.models.DatabaseNow())),
                ('result', models.JSONField(null=True)),
                ('late_finishes', models.JSONField(db_default=models.Value([], models.JSONField()), help_text='attempts that finished although their worker had been declared lost')),
                ('merged_into', django_txtasks.models.TaskId(help_text='the task with the same unique key that ran instead', null=True)),
                ('batch', django_txtasks.models.TaskId(help_text='the batch of which the task is a member', null=True)),
            ],
            options={
                'verbose_name': 'finished task',
                'verbose_name_plural': 'finished tasks',
                'default_permissions': ('view',),
                'indexes': [
                    models.Index(fields=['finished_at'], name='txtasks_finished_at'),
                    models.Index(condition=models.Q(('merged_into__isnull', False)), fields=['merged_into'], name='txtasks_merged'),
                    models.Index(condition=models.Q(('batch__isnull', False)), fields=['batch', 'outcome'], name='txtasks_of_batch'),
                ],
            },
        ),
        migrations.CreateModel(
            name='Task',
            fields=[
                ('id', django_txtasks.models.TaskId(editable=False, primary_key=True, serialize=False)),
                ('task_name', django_txtasks.models.ExactText(max_length=200)),
                ('queue_name', django_txtasks.models.ExactText(db_default='default', max_length=100)),
                ('priority', models.SmallIntegerField(db_default=0, verbose_name='priority')),
                ('args', models.JSONField(db_default=models.Value([], models.JSONField()))),
                ('kwargs', models.JSONField(db_default=models.Value({}, models.JSONField()))),
                ('enqueued_at', models.DateTimeField(db_default=django_txtasks.models.DatabaseNow())),
                ('run_after', models.DateTimeField(db_default=django_txtasks.models.DatabaseNow())),
                ('worker', django_txtasks.models.TaskId(null=True)),
                ('started_at', models.DateTimeField(null=True)),
                ('attempt', models.PositiveIntegerField(db_default=0, verbose_name='attempt')),
                ('failures', models.PositiveIntegerField(db_default=0, verbose_name='failures')),
                ('crashes', models.PositiveIntegerField(db_default=0, verbose_name='crashes')),
                ('errors', models.JSONField(db_default=models.Value([], models.JSONField()))),
                ('status', django_txtasks.models.ExactText(choices=[('pending', 'pending'), ('claimed', 'claimed'), ('dead', 'dead'), ('held', 'held')], db_default='pending', max_length=10)),
                ('max_attempts', models.PositiveSmallIntegerField(db_default=5)),
                ('max_crashes', models.PositiveSmallIntegerField(db_default=3)),
                ('on_crash', django_txtasks.models.ExactText(choices=[('dead', 'leave it dead'), ('retry', 'run it again'), ('compensate', 'leave it dead and run its compensation'), ('retry+undo', 'run it again, and in the end run its compensation')], db_default='dead', max_length=10, verbose_name='after a crash')),
                ('claimed_at', models.DateTimeField(null=True)),
                ('notified_at', models.DateTimeField(null=True)),
                ('expires_at', models.DateTimeField(help_text='no attempt starts after this time', null=True)),
                ('hooks', models.JSONField(db_default=models.Value({}, models.JSONField()), help_text='the tasks that are enqueued when this task changes its state')),
                ('late_finishes', models.JSONField(db_default=models.Value([], models.JSONField()), help_text='attempts that finished although their worker had been declared lost')),
                ('timeout', models.FloatField(help_text='longest time of one attempt, in seconds', null=True)),
                ('cancel_asked_at', models.DateTimeField(help_text='when the running attempt was asked to stop; no further attempt starts', null=True)),
                ('snoozes', models.IntegerField(db_default=0, help_text='number of times that the task postponed itself', verbose_name='snoozes')),
                ('unique_key', django_txtasks.models.TaskId(help_text='waiting tasks with the same key are merged into one run', null=True)),
                ('unique_text', django_txtasks.models.ExactText(help_text='the unique key as text', max_length=200, null=True)),
                ('absorbed', models.IntegerField(db_default=0, help_text='number of tasks with the same unique key that were merged into this task')),
                ('lane', django_txtasks.models.LaneName(db_default='', help_text='the lane whose limits the task shares; empty = no lane', max_length=200)),
                ('batch', django_txtasks.models.TaskId(help_text='the batch of which the task is a member', null=True)),
                ('cause', models.BigIntegerField(help_text='fingerprint of the last failure: task function, exceptions, place in the code; empty = the last attempt did not fail', null=True)),
                ('headers', models.JSONField(help_text='what programs beside the queue send along with the task, such as a trace id', null=True)),
            ],
            options={
                'verbose_name': 'task',
                'verbose_name_plural': 'tasks',
                'permissions': (('revive_task', 'Can revive dead tasks'), ('discard_task', 'Can discard dead tasks'), ('hold_task', 'Can hold pending tasks'), ('resume_task', 'Can resume held tasks'), ('cancel_task', 'Can cancel pending tasks'), ('run_now_task', 'Can run pending tasks at once'), ('ask_to_stop_task', 'Can ask running tasks to stop'), ('look_into_task', 'Can see the stack of running tasks'), ('again_task', 'Can enqueue ended tasks again')),
                'default_permissions': ('view',),
                'indexes': [
                    models.Index(condition=models.Q(('status', 'claimed')), fields=['worker'], name='txtasks_claimed'),
                    models.Index(condition=models.Q(('expires_at__isnull', False), ('status', 'pending')), fields=['expires_at'], name='txtasks_expires'),
                    models.Index(condition=models.Q(('unique_key__isnull', False)), fields=['unique_key', '-priority', 'run_after', 'id'], name='txtasks_unique'),
                    models.Index(condition=models.Q(('status', 'pending')), fields=['status', 'lane', 'queue_name', 'priority', 'run_after', 'id'], name='txtasks_pending'),
                    models.Index(condition=models.Q(('batch__isnull', False), models.Q(('status', 'claimed'), _negated=True)), fields=['batch', 'id'], name='txtasks_in_batch'),
                ],
                'constraints': [
                    models.CheckConstraint(condition=models.Q(('status__in', ['pending', 'claimed', 'dead', 'held'])), name='txtasks_task_status'),
                    models.CheckConstraint(condition=models.Q(models.Q(('claimed_at__isnull', False), ('status', 'claimed'), ('worker__isnull', False)), models.Q(models.Q(('status', 'claimed'), _negated=True), ('claimed_at__isnull', True), ('worker__isnull', True)), _connector='OR'), name='txtasks_task_claim'),
                ],
            },
        ),
        migrations.CreateModel(
            name='Cleaner',
            fields=[
                ('id', django_txtasks.models.TaskId(editable=False, primary_key=True, serialize=False)),
                ('host', django_txtasks.models.ExactText(max_length=200)),
                ('pid', models.PositiveIntegerField()),
                ('interval', models.FloatField(help_text='seconds between two passes of the cleaner; empty = it runs once', null=True)),
                ('lease', models.FloatField(help_text='seconds without a pass after which the cleaner counts as gone', verbose_name='lease')),
                ('started_at', models.DateTimeField(db_default=django_txtasks.models.DatabaseNow())),
                ('seen_at', models.DateTimeField(db_default=django_txtasks.models.DatabaseNow())),
                ('passed_at', models.DateTimeField(help_text="when the cleaner's last complete pass ended", null=True)),
                ('error', django_txtasks.models.ExactText(db_default='', help_text='why a pass has failed since then; empty = none has failed', max_length=500)),
            ],
            options={
                'verbose_name': 'cleaner',
                'verbose_name_plural': 'cleaners',
                'default_permissions': ('view',),
            },
        ),
        migrations.CreateModel(
            name='PausedQueue',
            fields=[
                ('queue_name', django_txtasks.models.ExactText(max_length=100, primary_key=True, serialize=False, verbose_name='queue')),
                ('paused_at', models.DateTimeField(db_default=django_txtasks.models.DatabaseNow())),
                ('paused_by', django_txtasks.models.ExactText(db_default='', max_length=150)),
                ('reason', django_txtasks.models.ExactText(blank=True, db_default='', help_text='a note for people who find the queue or lane paused', max_length=200, verbose_name='reason')),
            ],
            options={
                'verbose_name': 'paused queue',
                'verbose_name_plural': 'paused queues',
                'default_permissions': ('view', 'add', 'delete'),
            },
        ),
        migrations.CreateModel(
            name='Lane',
            fields=[
                ('name', django_txtasks.models.LaneName(max_length=200, primary_key=True, serialize=False, verbose_name='lane')),
                ('at_most', models.IntegerField(blank=True, help_text='tasks that may run at the same time', null=True, verbose_name='at most')),
                ('rate', django_txtasks.models.ExactText(blank=True, db_default='', help_text='task starts in a time, such as 10/s or 100/m', max_length=20, verbose_name='rate')),
                ('burst', models.IntegerField(blank=True, help_text='task starts that are allowed at once after a quiet time', null=True, verbose_name='burst')),
                ('weight', models.FloatField(blank=True, help_text='share of the slots, relative to other lanes', null=True, verbose_name='weight')),
                ('paused_at', models.DateTimeField(blank=True, null=True)),
                ('paused_by', django_txtasks.models.ExactText(blank=True, db_default='', max_length=150)),
                ('reason', django_txtasks.models.ExactText(blank=True, db_default='', help_text='a note for people who find the queue or lane paused', max_length=200, verbose_name='reason')),
                ('tokens', models.FloatField(help_text='task starts that the rate allows now', null=True)),
                ('served_at', models.DateTimeField(help_text='when a worker last claimed tasks of the lane', null=True)),
                ('tag', models.FloatField(db_default=0.0, help_text='virtual time of fair queueing: service received / weight; the smallest is next')),
                ('held_until', models.DateTimeField(help_text='a task has asked that no other task of the lane starts before this time', null=True)),
            ],
            options={
                'verbose_name': 'lane',
                'verbose_name_plural': 'lanes',
                'default_permissions': ('view', 'change'),
            },
        ),
        migrations.CreateModel(
            name='Once',
            fields=[
                ('key', django_txtasks.models.TaskId(editable=False, primary_key=True, serialize=False)),
                ('text', django_txtasks.models.ExactText(help_text='the key as text', max_length=200)),
                ('task_name', django_txtasks.models.ExactText(max_length=200)),
                ('task_id', django_txtasks.models.TaskId(help_text='the task that was enqueued')),
                ('until', models.DateTimeField()),
            ],
            options={
                'default_permissions': ('view',),
                'indexes': [models.Index(fields=['until'], name='txtasks_once_until')],
            },
        ),
        migrations.CreateModel(
            name='EndedWorker',
            fields=[
                ('id', django_txtasks.models.TaskId(editable=False, primary_key=True, serialize=False)),
                ('host', django_txtasks.models.ExactText(max_length=200)),
                ('pid', models.PositiveIntegerField()),
                ('started_at', models.DateTimeField()),
                ('ended_at', models.DateTimeField(db_default=django_txtasks.models.DatabaseNow())),
                ('release', django_txtasks.models.ExactText(db_default='', help_text="release of the worker's code; empty = not set", max_length=100)),
                ('held', models.JSONField(db_default=models.Value({}, models.JSONField()), help_text='the task functions that it held when it ended otherwise, each with a queue')),
                ('how', django_txtasks.models.ExactText(db_default='', help_text='how its process ended; empty = in good order', max_length=30)),
            ],
            options={
                'default_permissions': ('view',),
                'indexes': [models.Index(fields=['ended_at'], name='txtasks_worker_ended')],
            },
        ),
        migrations.CreateModel(
            name='Schedule',
            fields=[
                ('name', django_txtasks.models.LaneName(max_length=200, primary_key=True, serialize=False, verbose_name='name')),
                ('task_name', django_txtasks.models.ExactText(max_length=200)),
                ('queue_name', django_txtasks.models.ExactText(db_default='default', max_length=100)),
                ('args', models.JSONField(blank=True, db_default=models.Value([], models.JSONField()), verbose_name='arguments')),
                ('kwargs', models.JSONField(blank=True, db_default=models.Value({}, models.JSONField()), verbose_name='keyword arguments')),
                ('cron', django_txtasks.models.ExactText(blank=True, db_default='', help_text="such as 0 3 * * *, in the schedule's time zone", max_length=200, verbose_name='cron')),
                ('every', models.FloatField(blank=True, help_text='seconds between ticks; give this or cron', null=True, verbose_name='every')),
                ('tz', django_txtasks.models.ExactText(db_default='UTC', max_length=64, verbose_name='time zone')),
                ('catch_up', django_txtasks.models.ExactText(choices=[('last', 'the last one'), ('all', 'all of them'), ('none', 'none')], db_default='last', help_text='which ticks are made up for after a time without a cleaner', max_length=4, verbose_name='catch up')),
                ('grace', models.FloatField(blank=True, help_text='longest delay of a tick, in seconds; empty = no limit', null=True, verbose_name='grace')),
                ('ready_by', django_txtasks.models.ExactText(blank=True, db_default='', help_text='hour of the day, such as 07:00', max_length=5, verbose_name='ready by')),
                ('enabled', models.BooleanField(db_default=True, verbose_name='enabled')),
                ('next_at', models.DateTimeField(help_text='the next tick; empty = a cleaner computes it', null=True)),
                ('last_at', models.DateTimeField(help_text='the last tick for which a task was written', null=True)),
                ('last_task', django_txtasks.models.TaskId(null=True)),
                ('waiting_since', models.DateTimeField(help_text='the oldest tick whose task still waits', null=True)),
                ('watched_from', models.DateTimeField(db_default=django_txtasks.models.DatabaseNow(), help_text='ticks since this time must be done by the hour of ready_by')),
                ('told_at', models.DateTimeField(help_text='the last tick that was reported as not done in time', null=True)),
                ('from_code', models.BooleanField(db_default=False)),
                ('edited', models.BooleanField(db_default=False, help_text='a person has edited the schedule, so the code no longer changes it')),
                ('release', models.BigIntegerField(db_default=0, help_text='release of the code from which the schedule was synchronised')),
                ('error', django_txtasks.models.ExactText(db_default='', max_length=500)),
                ('code_versions', models.JSONField(db_default=models.Value([], models.JSONField()), editable=False, help_text='digests of the schedule as releases of the code declared it, the newest last')),
            ],
            options={
                'verbose_name': 'schedule',
                'verbose_name_plural': 'schedules',
                'default_permissions': ('view', 'add', 'change', 'delete'),
                'indexes': [models.Index(fields=['enabled', 'next_at'], name='txtasks_next_tick')],
            },
        ),
        migrations.CreateModel(
            name='Step',
            fields=[
                ('pk', models.CompositePrimaryKey('task_id', 'name', blank=True, editable=False, primary_key=True, serialize=False)),
                ('task_id', django_txtasks.models.TaskId()),
                ('name', django_txtasks.models.ExactText(max_length=100)),
                ('value', django_txtasks.models.ExactLongText(help_text='JSON text, returned unchanged')),
                ('attempt', models.PositiveIntegerField(help_text='the attempt that completed the step')),
                ('done_at', models.DateTimeField()),
            ],
            options={
                'default_permissions': (),
            },
        ),
        migrations.CreateModel(
            name='Batch',
            fields=[
                ('id', django_txtasks.models.TaskId(editable=False, primary_key=True, serialize=False)),
                ('name', django_txtasks.models.ExactText(blank=True, db_default='', max_length=200)),
                ('hooks', models.JSONField(db_default=models.Value({}, models.JSONField()), help_text='the tasks that are enqueued when the batch ends')),
                ('created_at', models.DateTimeField(db_default=django_txtasks.models.DatabaseNow())),
                ('finished_at', models.DateTimeField(help_text='when a worker or another process found that all its tasks had ended', null=True)),
                ('failed', models.BooleanField(help_text='whether a task of the batch has failed; empty = the batch has not ended', null=True)),
                ('opened_by', django_txtasks.models.TaskId(help_text='the task that opened the batch; empty = no task did', null=True)),
                ('root_task', django_txtasks.models.TaskId(help_text='the first task of this work: opened_by, or if opened_by is itself a member of a batch, the root task of that batch', null=True)),
                ('hook_tasks', models.JSONField(help_text='ids of the tasks that were enqueued when the batch ended, by hook', null=True)),
            ],
            options={
                'verbose_name': 'batch',
                'verbose_name_plural': 'batches',
                'default_permissions': ('view',),
                'indexes': [
                    models.Index(fields=['finished_at', 'id'], name='txtasks_batch_end'),
                    models.Index(condition=models.Q(('root_task__isnull', False)), fields=['root_task'], name='txtasks_batch_root'),
                ],
            },
        ),
        migrations.CreateModel(
            name='Wait',
            fields=[
                ('pk', models.CompositePrimaryKey('task_id', 'name', blank=True, editable=False, primary_key=True, serialize=False)),
                ('task_id', django_txtasks.models.TaskId()),
                ('name', django_txtasks.models.ExactText(max_length=100)),
                ('is_sleep', models.BooleanField(help_text='the wait ends at a time; otherwise it needs a value')),
                ('until', models.DateTimeField(help_text='empty = no time limit', null=True)),
                ('value', django_txtasks.models.ExactLongText(help_text='JSON text, returned unchanged; empty = no value has arrived', null=True)),
                ('ended_at', models.DateTimeField(help_text='when the value arrived, or when the time limit passed', null=True)),
            ],
            options={
                'default_permissions': (),
            },
        ),
        migrations.CreateModel(
            name='RawStat',
            fields=[
                ('queue_name', django_txtasks.models.ExactText(max_length=100)),
                ('task_name', django_txtasks.models.ExactText(db_default='', max_length=200)),
                ('succeeded', models.BigIntegerField(db_default=0)),
                ('failed', models.BigIntegerField(db_default=0, help_text='attempts that failed and that are run again')),
                ('died', models.BigIntegerField(db_default=0, help_text='attempts that left the task dead')),
                ('other', models.BigIntegerField(db_default=0, help_text='attempts that ended otherwise, and tasks that were cancelled or expired')),
                ('run_ms', models.BigIntegerField(db_default=0, help_text='time of all attempts, in milliseconds')),
                ('wait', django_txtasks.models.ExactText(db_default='', help_text='histogram of the times from due to start, as bucket:count', max_length=600)),
                ('run', django_txtasks.models.ExactText(db_default='', help_text='histogram of the times of the attempts, as bucket:count', max_length=600)),
                ('pk', models.CompositePrimaryKey('worker', 'seq', 'queue_name', 'task_name', blank=True, editable=False, primary_key=True, serialize=False)),
                ('worker', django_txtasks.models.TaskId(help_text='the worker, or a fresh id for other processes')),
                ('seq', models.BigIntegerField()),
                ('at', models.DateTimeField(db_default=django_txtasks.models.DatabaseNow())),
            ],
            options={
                'default_permissions': (),
            },
        ),
        migrations.CreateModel(
            name='StackRequest',
            fields=[
                ('task_id', django_txtasks.models.TaskId(editable=False, primary_key=True, serialize=False)),
                ('attempt', models.PositiveIntegerField()),
                ('worker', django_txtasks.models.TaskId()),
                ('asked_at', models.DateTimeField(db_default=django_txtasks.models.DatabaseNow())),
                ('asked_by', django_txtasks.models.ExactText(db_default='', max_length=150)),
                ('answered_at', models.DateTimeField(null=True)),
                ('text', django_txtasks.models.ExactLongText(db_default='', help_text='the answer: frames without values')),
            ],
            options={
                'default_permissions': (),
                'indexes': [models.Index(fields=['worker'], name='txtasks_stack_worker')],
            },
        ),
        migrations.CreateModel(
            name='Stat',
            fields=[
                ('queue_name', django_txtasks.models.ExactText(max_length=100)),
                ('task_name', django_txtasks.models.ExactText(db_default='', max_length=200)),
                ('succeeded', models.BigIntegerField(db_default=0)),
                ('failed', models.BigIntegerField(db_default=0, help_text='attempts that failed and that are run again')),
                ('died', models.BigIntegerField(db_default=0, help_text='attempts that left the task dead')),
                ('other', models.BigIntegerField(db_default=0, help_text='attempts that ended otherwise, and tasks that were cancelled or expired')),
                ('run_ms', models.BigIntegerField(db_default=0, help_text='time of all attempts, in milliseconds')),
                ('wait', django_txtasks.models.ExactText(db_default='', help_text='histogram of the times from due to start, as bucket:count', max_length=600)),
                ('run', django_txtasks.models.ExactText(db_default='', help_text='histogram of the times of the attempts, as bucket:count', max_length=600)),
                ('pk', models.CompositePrimaryKey('width', 'starts_at', 'queue_name', 'task_name', blank=True, editable=False, primary_key=True, serialize=False)),
                ('width', models.PositiveIntegerField()),
                ('starts_at', models.DateTimeField()),
                ('due', models.BigIntegerField(help_text='due tasks of the queue at the end', null=True)),
                ('oldest', models.FloatField(help_text='seconds for which the oldest due task had waited at the end', null=True)),
            ],
            options={
                'default_permissions': (),
            },
        ),
        migrations.CreateModel(
            name='Overview',
            fields=[
            ],
            options={
                'verbose_name': 'at a glance',
                'verbose_name_plural': 'at a glance',
                'proxy': True,
                'default_permissions': (),
            },
            bases=('txtasks.task',),
        ),
        migrations.CreateModel(
            name='Link',
            fields=[
                ('pk', models.CompositePrimaryKey('task_id', 'subject_type', 'subject_id', blank=True, editable=False, primary_key=True, serialize=False)),
                ('task_id', django_txtasks.models.TaskId()),
                ('subject_type', django_txtasks.models.ExactText(help_text="the object's model, such as shop.order", max_length=200)),
                ('subject_id', django_txtasks.models.ExactText(help_text="the object's primary key, as text", max_length=200)),
            ],
            options={
                'default_permissions': (),
                'indexes': [models.Index(fields=['subject_type', 'subject_id', 'task_id'], name='txtasks_subject')],
            },
        ),
        AddPartialIndex('task', models.Index(
            condition=Q(lane__gt='', status='claimed'), fields=['lane'], name='txtasks_in_lane',
        )),
        AddPartialIndex('task', models.Index(
            condition=Q(status__in=['dead', 'held']), fields=['status', 'run_after'], name='txtasks_stopped',
        )),
        AddPartialIndex('task', models.Index(
            condition=Q(('cause__isnull', False), ('status__in', ['dead', 'held']), _connector='OR'),
            fields=['status', 'queue_name', 'cause', 'run_after', 'id'],
            name='txtasks_cause',
        ), in_mysql=FAILED),
        AddPartialIndex('task', models.Index(
            condition=Q(status='pending', crashes__gt=0, crashes__gte=F('max_crashes') - 1),
            fields=['run_after'],
            name='txtasks_last_chance',
        ), in_mysql=LAST_CHANCES),
        SetStorage('Task', {**QUEUE, 'toast.autovacuum_vacuum_threshold': '100'}),
        SetStorage('Worker', {**QUEUE, 'autovacuum_vacuum_threshold': '50'}),
        SetStorage('FinishedTask', {
            'autovacuum_vacuum_scale_factor': '0.02',
            'autovacuum_vacuum_insert_scale_factor': '0.05',
        }),
        SetStorage('RawStat', {**QUEUE, 'fillfactor': '100'}),  # its rows are never updated
        SetStorage('Stat', QUEUE),
        OnPostgreSQL(LOAD, NO_LOAD, hints={'model_name': 'task'}),
    ]
