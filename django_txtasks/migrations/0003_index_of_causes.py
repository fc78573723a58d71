"""The index of failures by cause.

It is made in a transaction of its own, which lets others read the table. On a large table, an operator makes it before
without keeping writers waiting: see docs/how-to/upgrades.md.
"""

from typing import Any

from django.core.management.base import CommandError
from django.db import migrations, models


class AddIndexIfMissing(migrations.AddIndex):
    """Add an index unless an operator has made it already."""

    def database_forwards(self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any) -> None:
        connection = schema_editor.connection
        model = to_state.apps.get_model(app_label, self.model_name)
        has_table = self.allow_migrate_model(connection.alias, model)  # False = the project's router keeps it elsewhere
        if has_table and (schema_editor.collect_sql or not self._is_there(connection)):
            super().database_forwards(app_label, schema_editor, from_state, to_state)

    def _is_there(self, connection: Any) -> bool:
        name = self.index.name
        with connection.cursor() as cursor:
            if name not in connection.introspection.get_constraints(cursor, 'txtasks_task'):
                return False
            if connection.vendor == 'postgresql':
                cursor.execute('SELECT indisvalid FROM pg_index WHERE indexrelid = to_regclass(%s)', [name])
                if cursor.fetchone() == (False,):
                    raise CommandError(
                        f'Index {name} is invalid, because CREATE INDEX CONCURRENTLY has failed or still runs. Wait '
                        f'until it has ended. If it has failed, run DROP INDEX {name}, then migrate again.'
                    )
        return True


class Migration(migrations.Migration):

    dependencies = [
        ('txtasks', '0002_figures_and_causes'),
    ]

    operations = [
        AddIndexIfMissing(
            model_name='task',
            index=models.Index(condition=models.Q(('cause__isnull', False), ('status__in', ['dead', 'held']), _connector='OR'), fields=['status', 'queue_name', 'cause', 'run_after', 'id'], name='txtasks_cause'),
        ),
    ]
