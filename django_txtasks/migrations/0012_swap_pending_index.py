"""The index of what waits by lane takes the place, and the name, of the one that workers of before know.

They find what waits by that name on MariaDB and SQLite, and go on. But for them a long backlog is slow then: where many
tasks wait, replace them between ``migrate txtasks 0011`` and ``migrate``.
"""

from importlib import import_module
from typing import Any

from django.db import migrations

AddIndex = import_module('django_txtasks.migrations.0007_unique_index').AddIndex


class RemoveIndex(migrations.RemoveIndex):
    """Like Django's, but concurrently on PostgreSQL outside of a transaction."""

    def database_forwards(
        self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any
    ) -> None:
        self._its(from_state, app_label).database_backwards(
            app_label, schema_editor, from_state, to_state
        )

    def database_backwards(
        self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any
    ) -> None:
        self._its(to_state, app_label).database_forwards(
            app_label, schema_editor, from_state, to_state
        )

    def _its(self, state: Any, app_label: str) -> Any:
        index = state.models[app_label, self.model_name_lower].get_index_by_name(self.name)
        return AddIndex(self.model_name, index)


class Migration(migrations.Migration):

    atomic = False

    dependencies = [
        ('txtasks', '0011_lane_index'),
    ]

    operations = [
        RemoveIndex(model_name='task', name='txtasks_pending'),
        migrations.RenameIndex(
            model_name='task', old_name='txtasks_waiting', new_name='txtasks_pending'
        ),
    ]
