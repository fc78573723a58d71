"""The index of what was merged, made as that of unique keys: one index in a migration can be repeated."""

from importlib import import_module

from django.db import migrations, models

AddIndex = import_module('django_txtasks.migrations.0007_unique_index').AddIndex


class Migration(migrations.Migration):

    atomic = False

    dependencies = [
        ('txtasks', '0007_unique_index'),
    ]

    operations = [
        AddIndex(
            model_name='finishedtask',
            index=models.Index(condition=models.Q(('merged_into__isnull', False)), fields=['merged_into'], name='txtasks_merged'),
        ),
    ]
