"""The index of unique keys.

On PostgreSQL it is made while everything goes on, in no transaction: that reads the table once, and waits for the
transactions that are open. If it fails, repeat it. The index is empty at first, and on PostgreSQL and SQLite rows
without a unique key are never in it.
"""

from typing import Any

from django.db import migrations, models


class AddIndex(migrations.AddIndex):
    """Like Django's, but concurrently on PostgreSQL outside of a transaction; Django's own needs contrib.postgres."""

    def database_forwards(
        self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any
    ) -> None:
        model = to_state.apps.get_model(app_label, self.model_name)
        if self.allow_migrate_model(schema_editor.connection.alias, model):
            if how := _concurrently(schema_editor):  # what failed may have left one that is not valid
                name = schema_editor.quote_name(self.index.name)
                schema_editor.execute(f'DROP INDEX CONCURRENTLY IF EXISTS {name}')
            schema_editor.add_index(model, self.index, **how)

    def database_backwards(
        self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any
    ) -> None:
        model = from_state.apps.get_model(app_label, self.model_name)
        if self.allow_migrate_model(schema_editor.connection.alias, model):
            schema_editor.remove_index(model, self.index, **_concurrently(schema_editor))


def _concurrently(schema_editor: Any) -> dict[str, bool]:
    connection = schema_editor.connection
    may = connection.vendor == 'postgresql' and not connection.in_atomic_block
    return {'concurrently': True} if may else {}


class Migration(migrations.Migration):

    atomic = False

    dependencies = [
        ('txtasks', '0006_order'),
    ]

    operations = [
        AddIndex(
            model_name='task',
            index=models.Index(condition=models.Q(('unique_key__isnull', False)), fields=['unique_key', '-priority', 'run_after', 'id'], name='txtasks_unique'),
        ),
    ]
