"""The index of members that have finished, made as that of unique keys: one index in a migration can be repeated."""

from importlib import import_module

from django.db import migrations, models

AddIndex = import_module('django_txtasks.migrations.0007_unique_index').AddIndex


class Migration(migrations.Migration):

    atomic = False

    dependencies = [
        ('txtasks', '0019_batch_index'),
    ]

    operations = [
        AddIndex(
            model_name='finishedtask',
            index=models.Index(condition=models.Q(('batch__isnull', False)), fields=['batch', 'outcome'], name='txtasks_of_batch'),
        ),
    ]
