"""Cleaners get rows, and workers say which task functions they declare.

A new table, and a column with a default that the database keeps beside the table: no row is rewritten, and
``txtasks_task`` is not touched. Workers that run are kept waiting for one beat at most.
"""

import django_txtasks.models
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('txtasks', '0003_storage_parameters'),
    ]

    operations = [
        migrations.CreateModel(
            name='Cleaner',
            fields=[
                ('id', django_txtasks.models.TaskId(editable=False, primary_key=True, serialize=False)),
                ('host', models.CharField(max_length=200)),
                ('pid', models.PositiveIntegerField()),
                ('interval', models.FloatField(help_text='seconds between two of its passes; empty = it cleans once', null=True)),
                ('lease', models.FloatField(help_text='seconds of silence after which it counts as gone')),
                ('started_at', models.DateTimeField(db_default=django_txtasks.models.DatabaseNow())),
                ('seen_at', models.DateTimeField(db_default=django_txtasks.models.DatabaseNow())),
                ('passed_at', models.DateTimeField(help_text='when its last whole pass ended', null=True)),
                ('error', models.CharField(db_default='', help_text='why it failed since; empty = it did not', max_length=500)),
            ],
            options={
                'default_permissions': ('view',),
            },
        ),
        migrations.AddField(
            model_name='worker',
            name='task_names',
            field=models.JSONField(db_default=models.Value([], models.JSONField()), help_text='the task functions that its code declares; it claims no others'),
        ),
    ]
