"""A batch knows the task that opened it, the first task of that work, and the tasks that its end has enqueued.

Columns without a default: processes of before go on to write batches, whose openers nobody knows. The table of batches
is locked while its rows are read once for the index, which has no row yet. MariaDB writes the table anew, because a
JSON column has a check. With 100,000 batches that took 0.04 s on PostgreSQL and 0.18 s on MariaDB.
"""

import django_txtasks.models
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('txtasks', '0025_code_versions'),
    ]

    operations = [
        migrations.AddField(
            model_name='batch',
            name='opened_by',
            field=django_txtasks.models.TaskId(help_text='the task that opened it; empty = no task did', null=True),
        ),
        migrations.AddField(
            model_name='batch',
            name='root_task',
            field=django_txtasks.models.TaskId(help_text='the first task of the work that it belongs to: that which opened the batch of which opened_by is a member, and so on; else opened_by', null=True),
        ),
        migrations.AddField(
            model_name='batch',
            name='hook_tasks',
            field=models.JSONField(help_text='ids of the tasks that its end has enqueued, by hook', null=True),
        ),
        migrations.AddIndex(
            model_name='batch',
            index=models.Index(condition=models.Q(('root_task__isnull', False)), fields=['root_task'], name='txtasks_batch_root'),
        ),
    ]
