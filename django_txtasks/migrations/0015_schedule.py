"""Schedules. A new table; workers and cleaners of before do not need it."""

import django_txtasks.models
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('txtasks', '0014_outcome'),
    ]

    operations = [
        migrations.CreateModel(
            name='Schedule',
            fields=[
                ('name', django_txtasks.models.LaneName(max_length=200, primary_key=True, serialize=False, verbose_name='name')),
                ('task_name', models.CharField(max_length=200)),
                ('queue_name', models.CharField(db_default='default', max_length=100)),
                ('args', models.JSONField(blank=True, db_default=models.Value([], models.JSONField()))),
                ('kwargs', models.JSONField(blank=True, db_default=models.Value({}, models.JSONField()))),
                ('cron', models.CharField(blank=True, db_default='', help_text='such as 0 3 * * *, in its time zone', max_length=200)),
                ('every', models.FloatField(blank=True, help_text='seconds; or else cron', null=True)),
                ('tz', models.CharField(db_default='UTC', max_length=64, verbose_name='time zone')),
                ('catch_up', models.CharField(choices=[('last', 'the last one'), ('all', 'all of them'), ('none', 'none')], db_default='last', help_text='of ticks that were missed while no cleaner was at work', max_length=4)),
                ('grace', models.FloatField(blank=True, help_text='seconds that a tick may be late; empty = any time', null=True)),
                ('ready_by', models.CharField(blank=True, db_default='', help_text='hour of the day, such as 07:00', max_length=5)),
                ('enabled', models.BooleanField(db_default=True)),
                ('next_at', models.DateTimeField(help_text='its next tick; empty = a cleaner says so', null=True)),
                ('last_at', models.DateTimeField(help_text='the last tick that has a task', null=True)),
                ('last_task', django_txtasks.models.TaskId(null=True)),
                ('waiting_since', models.DateTimeField(help_text='the tick since which its tasks have waited', null=True)),
                ('watched_from', models.DateTimeField(db_default=django_txtasks.models.DatabaseNow(), help_text='ticks since then have to be done by their hour')),
                ('told_at', models.DateTimeField(help_text='the last tick of which it was told that it is not done', null=True)),
                ('from_code', models.BooleanField(db_default=False)),
                ('edited', models.BooleanField(db_default=False, help_text="people's words count, not the code's")),
                ('release', models.BigIntegerField(db_default=0, help_text='of the code it was synchronised from')),
                ('error', models.CharField(db_default='', max_length=500)),
            ],
            options={
                'default_permissions': ('view', 'add', 'change', 'delete'),
                'indexes': [models.Index(fields=['enabled', 'next_at'], name='txtasks_next_tick')],
            },
        ),
    ]
