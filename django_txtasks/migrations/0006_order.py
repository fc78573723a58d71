"""Tasks can be asked to stop, put themselves off, and be merged by a unique key.

Columns that are empty, or have a default that the database keeps beside the table: no row is rewritten. Workers of
before go on beside it: they do not look for who was asked to stop, and the row expires all the same; they run each of
the tasks that newer workers would merge.
"""

import django_txtasks.models
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('txtasks', '0005_paused_queues'),
    ]

    operations = [
        migrations.AlterModelOptions(
            name='task',
            options={'default_permissions': ('view',), 'permissions': (('revive_task', 'Can revive dead tasks'), ('discard_task', 'Can discard dead tasks'), ('hold_task', 'Can hold pending tasks'), ('resume_task', 'Can resume held tasks'), ('cancel_task', 'Can cancel pending tasks'), ('run_now_task', 'Can run pending tasks at once'), ('ask_to_stop_task', 'Can ask running tasks to stop'))},
        ),
        migrations.AddField(
            model_name='task',
            name='cancel_asked_at',
            field=models.DateTimeField(help_text='when the attempt that runs was asked to stop; no other one starts', null=True),
        ),
        migrations.AddField(
            model_name='task',
            name='snoozes',
            field=models.IntegerField(db_default=0, help_text='attempts that gave it back to be run later'),
        ),
        migrations.AddField(
            model_name='task',
            name='unique_key',
            field=django_txtasks.models.TaskId(help_text='tasks of the same one are merged before they begin', null=True),
        ),
        migrations.AddField(
            model_name='task',
            name='unique_text',
            field=models.CharField(help_text='its unique key, as it was said', max_length=200, null=True),
        ),
        migrations.AddField(
            model_name='task',
            name='absorbed',
            field=models.IntegerField(db_default=0, help_text='tasks of the same unique key that were merged into it'),
        ),
        migrations.AddField(
            model_name='finishedtask',
            name='merged_into',
            field=django_txtasks.models.TaskId(help_text='the task of the same unique key that ran instead', null=True),
        ),
        migrations.AlterField(
            model_name='finishedtask',
            name='outcome',
            field=models.CharField(choices=[('succeeded', 'succeeded'), ('cancelled', 'cancelled'), ('discarded', 'discarded'), ('expired', 'cancelled: expired'), ('merged', 'merged into another one')], max_length=10),
        ),
    ]
