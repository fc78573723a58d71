"""The index of what waits by lane takes the place, and the name, of the one that workers of before know.

They find what waits by that name on MariaDB and SQLite, and go on. But for them a long backlog is slow then: where many
tasks wait, replace them between ``migrate txtasks 0011`` and ``migrate``.
"""

from importlib import import_module
from typing import Any

from django.db import migrations
from django.db.migrations.operations.base import Operation

AddIndex = import_module('django_txtasks.migrations.0007_unique_index').AddIndex
OLD, NEW = 'txtasks_pending', 'txtasks_waiting'


class SwapIndex(Operation):
    """Drop the old index and give its name to the new one. It looks what is there: it can be repeated."""

    reversible = True

    def state_forwards(self, app_label: str, state: Any) -> None:
        state.remove_index(app_label, 'task', OLD)
        state.rename_index(app_label, 'task', NEW, OLD)

    def database_forwards(
        self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any
    ) -> None:
        there = self._there(app_label, schema_editor, from_state)
        if there is None:
            return
        if OLD in there and 'lane' not in there[OLD]:
            old = from_state.models[app_label, 'task'].get_index_by_name(OLD)
            AddIndex('task', old).database_backwards(
                app_label, schema_editor, from_state, from_state
            )
            del there[OLD]
        if OLD in there:
            return
        if NEW in there:
            rename = migrations.RenameIndex(model_name='task', old_name=NEW, new_name=OLD)
            rename.database_forwards(app_label, schema_editor, from_state, to_state)
        else:
            new = to_state.models[app_label, 'task'].get_index_by_name(OLD)
            AddIndex('task', new).database_forwards(app_label, schema_editor, from_state, to_state)

    def database_backwards(
        self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any
    ) -> None:
        there = self._there(app_label, schema_editor, to_state)
        if there is None:
            return
        if NEW not in there:
            rename = migrations.RenameIndex(model_name='task', old_name=OLD, new_name=NEW)
            rename.database_forwards(app_label, schema_editor, from_state, to_state)
        old = to_state.models[app_label, 'task'].get_index_by_name(OLD)
        AddIndex('task', old).database_forwards(app_label, schema_editor, from_state, to_state)

    def describe(self) -> str:
        return f'Put index {NEW} in the place of {OLD}'

    def _there(self, app_label: str, schema_editor: Any, state: Any) -> dict[str, list[str]] | None:
        """Return the columns of each index; None = the table is not in this database."""
        model, connection = state.apps.get_model(app_label, 'task'), schema_editor.connection
        if not self.allow_migrate_model(connection.alias, model):
            return None
        with connection.cursor() as cursor:
            found = connection.introspection.get_constraints(cursor, model._meta.db_table)
        return {name: one['columns'] for name, one in found.items() if one['index']}


class Migration(migrations.Migration):

    atomic = False

    dependencies = [
        ('txtasks', '0011_lane_index'),
    ]

    operations = [
        SwapIndex(),
    ]
