"""The index of what waits, by lane. Workers of before go on with the one that they know, until 0012."""

from importlib import import_module

from django.db import migrations, models

AddIndex = import_module('django_txtasks.migrations.0007_unique_index').AddIndex


class Migration(migrations.Migration):

    atomic = False

    dependencies = [
        ('txtasks', '0009_lanes'),
    ]

    operations = [
        AddIndex(
            model_name='task',
            index=models.Index(condition=models.Q(('status', 'pending')), fields=['status', 'lane', 'queue_name', 'priority', 'run_after', 'id'], name='txtasks_waiting'),
        ),
    ]
