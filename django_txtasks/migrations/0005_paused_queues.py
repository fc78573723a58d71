"""Queues can be paused, and workers say which release's rules they know.

A new table, and a column with a default that the database keeps beside the table: no row is rewritten, and
``txtasks_task`` is not touched. Workers that run are kept waiting for one beat at most, and claim from paused queues
until they are replaced.
"""

import django_txtasks.models
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('txtasks', '0004_cleaners_and_names'),
    ]

    operations = [
        migrations.CreateModel(
            name='PausedQueue',
            fields=[
                ('queue_name', models.CharField(max_length=100, primary_key=True, serialize=False, verbose_name='queue')),
                ('paused_at', models.DateTimeField(db_default=django_txtasks.models.DatabaseNow())),
                ('paused_by', models.CharField(db_default='', max_length=150)),
                ('reason', models.CharField(blank=True, db_default='', help_text='for whoever finds it paused', max_length=200)),
            ],
            options={
                'default_permissions': ('view', 'add', 'delete'),
            },
        ),
        migrations.AddField(
            model_name='worker',
            name='protocol',
            field=models.SmallIntegerField(db_default=0, help_text='what its release knows of; 0 = it claims from paused queues, too'),
        ),
    ]
