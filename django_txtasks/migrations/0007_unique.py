"""The indexes of unique keys and of what was merged.

On PostgreSQL they are made while everything goes on, in no transaction: it reads both tables once, and waits for the
transactions that are open. If that fails half-way, PostgreSQL leaves an index that is not valid: drop it, and repeat.
They are empty at first, and on PostgreSQL and SQLite rows without a unique key are never in them.
"""

from typing import Any

from django.db import migrations, models


class AddIndex(migrations.AddIndex):
    """Like Django's, but concurrently on PostgreSQL; Django's own needs its contrib.postgres."""

    def database_forwards(self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any) -> None:
        model = to_state.apps.get_model(app_label, self.model_name)
        if self.allow_migrate_model(schema_editor.connection.alias, model):
            how = {'concurrently': True} if schema_editor.connection.vendor == 'postgresql' else {}
            schema_editor.add_index(model, self.index, **how)

    def database_backwards(self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any) -> None:
        model = from_state.apps.get_model(app_label, self.model_name)
        if self.allow_migrate_model(schema_editor.connection.alias, model):
            how = {'concurrently': True} if schema_editor.connection.vendor == 'postgresql' else {}
            schema_editor.remove_index(model, self.index, **how)


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
        AddIndex(
            model_name='finishedtask',
            index=models.Index(condition=models.Q(('merged_into__isnull', False)), fields=['merged_into'], name='txtasks_merged'),
        ),
    ]
