"""Keys under which tasks are enqueued once. A new table; workers of before do not need it."""

import django_txtasks.models
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('txtasks', '0012_swap_pending_index'),
    ]

    operations = [
        migrations.CreateModel(
            name='Once',
            fields=[
                ('key', django_txtasks.models.TaskId(editable=False, primary_key=True, serialize=False)),
                ('text', models.CharField(help_text='the key, as it was said', max_length=200)),
                ('task_name', models.CharField(max_length=200)),
                ('task_id', django_txtasks.models.TaskId(help_text='the task that was enqueued')),
                ('until', models.DateTimeField()),
            ],
            options={
                'default_permissions': ('view',),
                'indexes': [models.Index(fields=['until'], name='txtasks_once_until')],
            },
        ),
    ]
