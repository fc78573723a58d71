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

QUEUE = {
    'autovacuum_vacuum_scale_factor': '0',
    'autovacuum_vacuum_threshold': '1000',
    'autovacuum_vacuum_cost_delay': '0',
    'vacuum_truncate': 'off',
    'fillfactor': '50',
}


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
    """Add an index only where an index can have a condition: MariaDB and MySQL would index the whole table."""

    def database_forwards(self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any) -> None:
        if schema_editor.connection.features.supports_partial_indexes:
            super().database_forwards(app_label, schema_editor, from_state, to_state)

    def database_backwards(self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any) -> None:
        """Do nothing: the table goes next."""


class Migration(migrations.Migration):

    initial = True

    dependencies = []

    operations = [
        migrations.CreateModel(
            name='Worker',
            fields=[
                ('id', django_txtasks.models.TaskId(editable=False, primary_key=True, serialize=False)),
                ('host', models.CharField(max_length=200)),
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
                ('outcome', django_txtasks.models.ExactText(choices=[('succeeded', 'succeeded'), ('cancelled', 'cancelled'), ('discarded', 'discarded'), ('expired', 'cancelled: expired'), ('merged', 'merged into another one')], max_length=10)),
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
                ('unique_text', models.CharField(help_text='the unique key as text', max_length=200, null=True)),
                ('absorbed', models.IntegerField(db_default=0, help_text='number of tasks with the same unique key that were merged into this task')),
                ('lane', django_txtasks.models.LaneName(db_default='', help_text='the lane whose limits the task shares; empty = no lane', max_length=200)),
                ('batch', django_txtasks.models.TaskId(help_text='the batch of which the task is a member', null=True)),
            ],
            options={
                'verbose_name': 'task',
                'verbose_name_plural': 'tasks',
                'permissions': (('revive_task', 'Can revive dead tasks'), ('discard_task', 'Can discard dead tasks'), ('hold_task', 'Can hold pending tasks'), ('resume_task', 'Can resume held tasks'), ('cancel_task', 'Can cancel pending tasks'), ('run_now_task', 'Can run pending tasks at once'), ('ask_to_stop_task', 'Can ask running tasks to stop')),
                'default_permissions': ('view',),
                'indexes': [
                    models.Index(condition=models.Q(('status', 'claimed')), fields=['worker'], name='txtasks_claimed'),
                    models.Index(condition=models.Q(('status__in', ['dead', 'held'])), fields=['status', 'run_after'], name='txtasks_stopped'),
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
                ('host', models.CharField(max_length=200)),
                ('pid', models.PositiveIntegerField()),
                ('interval', models.FloatField(help_text='seconds between two passes of the cleaner; empty = it runs once', null=True)),
                ('lease', models.FloatField(help_text='seconds without a pass after which the cleaner counts as gone', verbose_name='lease')),
                ('started_at', models.DateTimeField(db_default=django_txtasks.models.DatabaseNow())),
                ('seen_at', models.DateTimeField(db_default=django_txtasks.models.DatabaseNow())),
                ('passed_at', models.DateTimeField(help_text="when the cleaner's last complete pass ended", null=True)),
                ('error', models.CharField(db_default='', help_text='why a pass has failed since then; empty = none has failed', max_length=500)),
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
                ('paused_by', models.CharField(db_default='', max_length=150)),
                ('reason', models.CharField(blank=True, db_default='', help_text='a note for people who find the queue or lane paused', max_length=200, verbose_name='reason')),
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
                ('rate', models.CharField(blank=True, db_default='', help_text='task starts in a time, such as 10/s or 100/m', max_length=20, verbose_name='rate')),
                ('burst', models.IntegerField(blank=True, help_text='task starts that are allowed at once after a quiet time', null=True, verbose_name='burst')),
                ('weight', models.FloatField(blank=True, help_text='share of the slots, relative to other lanes', null=True, verbose_name='weight')),
                ('paused_at', models.DateTimeField(blank=True, null=True)),
                ('paused_by', models.CharField(blank=True, db_default='', max_length=150)),
                ('reason', models.CharField(blank=True, db_default='', help_text='a note for people who find the queue or lane paused', max_length=200, verbose_name='reason')),
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
                ('text', models.CharField(help_text='the key as text', max_length=200)),
                ('task_name', models.CharField(max_length=200)),
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
                ('host', models.CharField(max_length=200)),
                ('pid', models.PositiveIntegerField()),
                ('started_at', models.DateTimeField()),
                ('ended_at', models.DateTimeField(db_default=django_txtasks.models.DatabaseNow())),
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
                ('cron', models.CharField(blank=True, db_default='', help_text="such as 0 3 * * *, in the schedule's time zone", max_length=200, verbose_name='cron')),
                ('every', models.FloatField(blank=True, help_text='seconds between ticks; give this or cron', null=True, verbose_name='every')),
                ('tz', models.CharField(db_default='UTC', max_length=64, verbose_name='time zone')),
                ('catch_up', models.CharField(choices=[('last', 'the last one'), ('all', 'all of them'), ('none', 'none')], db_default='last', help_text='which ticks are made up for after a time without a cleaner', max_length=4, verbose_name='catch up')),
                ('grace', models.FloatField(blank=True, help_text='longest delay of a tick, in seconds; empty = no limit', null=True, verbose_name='grace')),
                ('ready_by', models.CharField(blank=True, db_default='', help_text='hour of the day, such as 07:00', max_length=5, verbose_name='ready by')),
                ('enabled', models.BooleanField(db_default=True, verbose_name='enabled')),
                ('next_at', models.DateTimeField(help_text='the next tick; empty = a cleaner computes it', null=True)),
                ('last_at', models.DateTimeField(help_text='the last tick for which a task was written', null=True)),
                ('last_task', django_txtasks.models.TaskId(null=True)),
                ('waiting_since', models.DateTimeField(help_text='the oldest tick whose task still waits', null=True)),
                ('watched_from', models.DateTimeField(db_default=django_txtasks.models.DatabaseNow(), help_text='ticks since this time must be done by the hour of ready_by')),
                ('told_at', models.DateTimeField(help_text='the last tick that was reported as not done in time', null=True)),
                ('from_code', models.BooleanField(db_default=False)),
                ('edited', models.BooleanField(db_default=False, help_text="a person has edited the schedule, so the code no longer changes it")),
                ('release', models.BigIntegerField(db_default=0, help_text='release of the code from which the schedule was synchronised')),
                ('error', models.CharField(db_default='', max_length=500)),
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
                ('value', models.TextField(help_text='JSON text, returned unchanged')),
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
                ('name', models.CharField(blank=True, db_default='', max_length=200)),
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
                ('value', models.TextField(help_text='JSON text, returned unchanged; empty = no value has arrived', null=True)),
                ('ended_at', models.DateTimeField(help_text='when the value arrived, or when the time limit passed', null=True)),
            ],
            options={
                'default_permissions': (),
            },
        ),
        AddPartialIndex(
            model_name='task',
            index=models.Index(condition=models.Q(('lane__gt', ''), ('status', 'claimed')), fields=['lane'], name='txtasks_in_lane'),
        ),
        SetStorage('Task', {**QUEUE, 'toast.autovacuum_vacuum_threshold': '100'}),
        SetStorage('Worker', {**QUEUE, 'autovacuum_vacuum_threshold': '50'}),
        SetStorage('FinishedTask', {
            'autovacuum_vacuum_scale_factor': '0.02',
            'autovacuum_vacuum_insert_scale_factor': '0.05',
        }),
    ]
