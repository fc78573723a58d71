"""The index of what runs in a lane. MariaDB and MySQL, which know no part of a table, have that of 0010 for it."""

from importlib import import_module
from typing import Any

from django.db import migrations, models

AddIndex = import_module('django_txtasks.migrations.0007_unique_index').AddIndex


class AddPartialIndex(AddIndex):  # type: ignore[misc, valid-type]
    """Only where an index can have a condition."""

    def database_forwards(
        self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any
    ) -> None:
        if schema_editor.connection.features.supports_partial_indexes:
            super().database_forwards(app_label, schema_editor, from_state, to_state)

    def database_backwards(
        self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any
    ) -> None:
        if schema_editor.connection.features.supports_partial_indexes:
            super().database_backwards(app_label, schema_editor, from_state, to_state)


class Migration(migrations.Migration):

    atomic = False

    dependencies = [
        ('txtasks', '0010_waiting_index'),
    ]

    operations = [
        AddPartialIndex(
            model_name='task',
            index=models.Index(condition=models.Q(('lane__gt', ''), ('status', 'claimed')), fields=['lane'], name='txtasks_in_lane'),
        ),
    ]
