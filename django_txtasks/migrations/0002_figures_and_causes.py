"""Tables for figures and for the stack of a running task, and the cause of a failure.

Columns with a default are added without rewriting the table. The index of causes is a migration of its own.

Each row of ``RawStat`` lives for one pass of a cleaner, and each row of ``Stat`` is written several times. So both have
storage parameters as in 0001.
"""

from importlib import import_module

import django_txtasks.models
from django.db import migrations, models

initial = import_module('django_txtasks.migrations.0001_initial')

class Migration(migrations.Migration):

    dependencies = [
        ('txtasks', '0001_initial'),
    ]

    operations = [
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
                ('wait', models.CharField(db_default='', help_text='histogram of the times from due to start, as bucket:count', max_length=600)),
                ('run', models.CharField(db_default='', help_text='histogram of the times of the attempts, as bucket:count', max_length=600)),
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
                ('asked_by', models.CharField(db_default='', max_length=150)),
                ('answered_at', models.DateTimeField(null=True)),
                ('text', models.TextField(db_default='', help_text='the answer: frames without values')),
            ],
            options={
                'default_permissions': (),
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
                ('wait', models.CharField(db_default='', help_text='histogram of the times from due to start, as bucket:count', max_length=600)),
                ('run', models.CharField(db_default='', help_text='histogram of the times of the attempts, as bucket:count', max_length=600)),
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
                'indexes': [],
                'constraints': [],
            },
            bases=('txtasks.task',),
        ),
        migrations.AlterModelOptions(
            name='task',
            options={'default_permissions': ('view',), 'permissions': (('revive_task', 'Can revive dead tasks'), ('discard_task', 'Can discard dead tasks'), ('hold_task', 'Can hold pending tasks'), ('resume_task', 'Can resume held tasks'), ('cancel_task', 'Can cancel pending tasks'), ('run_now_task', 'Can run pending tasks at once'), ('ask_to_stop_task', 'Can ask running tasks to stop'), ('look_into_task', 'Can see the stack of running tasks'), ('again_task', 'Can enqueue ended tasks again')), 'verbose_name': 'task', 'verbose_name_plural': 'tasks'},
        ),
        migrations.AddField(
            model_name='endedworker',
            name='release',
            field=models.CharField(db_default='', help_text="release of the worker's code; empty = not set", max_length=100),
        ),
        migrations.AddField(
            model_name='task',
            name='cause',
            field=models.BigIntegerField(help_text='fingerprint of the last failure: task function, exceptions, place in the code; empty = the last attempt did not fail', null=True),
        ),
        migrations.AddField(
            model_name='task',
            name='headers',
            field=models.JSONField(help_text='what programs beside the queue send along with the task, such as a trace id', null=True),
        ),
        migrations.AddField(
            model_name='worker',
            name='release',
            field=models.CharField(db_default='', help_text="release of the worker's code; empty = not set", max_length=100),
        ),
        migrations.AddField(
            model_name='worker',
            name='stats_seq',
            field=models.BigIntegerField(db_default=0, help_text='number of the last statistics that the worker has written'),
        ),
        migrations.AddIndex(
            model_name='stackrequest',
            index=models.Index(fields=['worker'], name='txtasks_stack_worker'),
        ),
        initial.SetStorage('RawStat', {**initial.QUEUE, 'fillfactor': '100'}),  # its rows are never updated
        initial.SetStorage('Stat', initial.QUEUE),
    ]
