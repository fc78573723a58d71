"""On MariaDB and MySQL, every text column takes every character, whatever the database's character set.

There, the tables are copied if their text has another character set. Meanwhile others can read them and wait to write.
"""

from django.db import migrations

from django_txtasks.database.text_columns import AlterTexts
from django_txtasks.models import ExactLongText, ExactText


class Migration(migrations.Migration):

    dependencies = [
        ('txtasks', '0007_ends_of_workers'),
    ]

    operations = [
        AlterTexts(state_operations=[
            migrations.AlterField('batch', 'name', ExactText(blank=True, db_default='', max_length=200)),
            migrations.AlterField('cleaner', 'error', ExactText(db_default='', help_text='why a pass has failed since then; empty = none has failed', max_length=500)),
            migrations.AlterField('cleaner', 'host', ExactText(max_length=200)),
            migrations.AlterField('endedworker', 'host', ExactText(max_length=200)),
            migrations.AlterField('endedworker', 'release', ExactText(db_default='', help_text="release of the worker's code; empty = not set", max_length=100)),
            migrations.AlterField('lane', 'paused_by', ExactText(blank=True, db_default='', max_length=150)),
            migrations.AlterField('lane', 'rate', ExactText(blank=True, db_default='', help_text='task starts in a time, such as 10/s or 100/m', max_length=20, verbose_name='rate')),
            migrations.AlterField('lane', 'reason', ExactText(blank=True, db_default='', help_text='a note for people who find the queue or lane paused', max_length=200, verbose_name='reason')),
            migrations.AlterField('once', 'task_name', ExactText(max_length=200)),
            migrations.AlterField('once', 'text', ExactText(help_text='the key as text', max_length=200)),
            migrations.AlterField('pausedqueue', 'paused_by', ExactText(db_default='', max_length=150)),
            migrations.AlterField('pausedqueue', 'reason', ExactText(blank=True, db_default='', help_text='a note for people who find the queue or lane paused', max_length=200, verbose_name='reason')),
            migrations.AlterField('rawstat', 'run', ExactText(db_default='', help_text='histogram of the times of the attempts, as bucket:count', max_length=600)),
            migrations.AlterField('rawstat', 'wait', ExactText(db_default='', help_text='histogram of the times from due to start, as bucket:count', max_length=600)),
            migrations.AlterField('schedule', 'catch_up', ExactText(choices=[('last', 'the last one'), ('all', 'all of them'), ('none', 'none')], db_default='last', help_text='which ticks are made up for after a time without a cleaner', max_length=4, verbose_name='catch up')),
            migrations.AlterField('schedule', 'cron', ExactText(blank=True, db_default='', help_text="such as 0 3 * * *, in the schedule's time zone", max_length=200, verbose_name='cron')),
            migrations.AlterField('schedule', 'error', ExactText(db_default='', max_length=500)),
            migrations.AlterField('schedule', 'ready_by', ExactText(blank=True, db_default='', help_text='hour of the day, such as 07:00', max_length=5, verbose_name='ready by')),
            migrations.AlterField('schedule', 'tz', ExactText(db_default='UTC', max_length=64, verbose_name='time zone')),
            migrations.AlterField('stackrequest', 'asked_by', ExactText(db_default='', max_length=150)),
            migrations.AlterField('stackrequest', 'text', ExactLongText(db_default='', help_text='the answer: frames without values')),
            migrations.AlterField('stat', 'run', ExactText(db_default='', help_text='histogram of the times of the attempts, as bucket:count', max_length=600)),
            migrations.AlterField('stat', 'wait', ExactText(db_default='', help_text='histogram of the times from due to start, as bucket:count', max_length=600)),
            migrations.AlterField('step', 'value', ExactLongText(help_text='JSON text, returned unchanged')),
            migrations.AlterField('task', 'unique_text', ExactText(help_text='the unique key as text', max_length=200, null=True)),
            migrations.AlterField('wait', 'value', ExactLongText(help_text='JSON text, returned unchanged; empty = no value has arrived', null=True)),
            migrations.AlterField('worker', 'host', ExactText(max_length=200)),
            migrations.AlterField('worker', 'release', ExactText(db_default='', help_text="release of the worker's code; empty = not set", max_length=100)),
        ]),
    ]
