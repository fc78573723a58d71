"""The index of members that are not claimed, so that a claim need not write there; made as that of unique keys: one index in a migration can be repeated."""

from importlib import import_module

from django.db import migrations, models

AddIndex = import_module('django_txtasks.migrations.0007_unique_index').AddIndex


class Migration(migrations.Migration):

    atomic = False

    dependencies = [
        ('txtasks', '0018_batch'),
    ]

    operations = [
        AddIndex(
            model_name='task',
            index=models.Index(condition=models.Q(('batch__isnull', False), models.Q(('status', 'claimed'), _negated=True)), fields=['batch', 'id'], name='txtasks_in_batch'),
        ),
    ]
