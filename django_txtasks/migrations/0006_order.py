"""Tasks can be asked to stop, and put themselves off.

Columns that are empty, or have a default that the database keeps beside the table: no row is rewritten. Workers of
before go on beside it: they do not look for who was asked to stop, and the row expires all the same.
"""

from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('txtasks', '0005_paused_queues'),
    ]

    operations = [
        migrations.AddField(
            model_name='task',
            name='cancel_asked_at',
            field=models.DateTimeField(help_text='when the attempt that runs was asked to stop; no other one starts', null=True),
        ),
        migrations.AddField(
            model_name='task',
            name='snoozes',
            field=models.PositiveIntegerField(db_default=0, help_text='attempts that gave it back to be run later'),
        ),
    ]
