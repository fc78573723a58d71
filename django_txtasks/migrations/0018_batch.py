"""Tasks can be members of a batch.

A new table, and columns without a default: no row is rewritten. Workers of before end members without looking at
their batch, which a cleaner of this release does then.
"""

import django_txtasks.models
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('txtasks', '0017_retry_then_compensate'),
    ]

    operations = [
        migrations.CreateModel(
            name='Batch',
            fields=[
                ('id', django_txtasks.models.TaskId(editable=False, primary_key=True, serialize=False)),
                ('name', models.CharField(blank=True, db_default='', max_length=200)),
                ('hooks', models.JSONField(db_default=models.Value({}, models.JSONField()), help_text='the tasks that its end enqueues')),
                ('created_at', models.DateTimeField(db_default=django_txtasks.models.DatabaseNow())),
                ('finished_at', models.DateTimeField(help_text='when it was seen that all of its tasks had ended', null=True)),
                ('failed', models.BooleanField(help_text='whether one of them has failed; empty = it has not ended', null=True)),
            ],
            options={
                'verbose_name_plural': 'batches',
                'default_permissions': ('view',),
                'indexes': [models.Index(fields=['finished_at', 'id'], name='txtasks_batch_end')],
            },
        ),
        migrations.AddField(
            model_name='task',
            name='batch',
            field=django_txtasks.models.TaskId(help_text='of which it is a member', null=True),
        ),
        migrations.AddField(
            model_name='finishedtask',
            name='batch',
            field=django_txtasks.models.TaskId(help_text='of which it is a member', null=True),
        ),
    ]
