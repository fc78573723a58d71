"""The index of failures by cause.

It is made in a transaction of its own, which lets others read the table. On a large table, an operator makes it before
without keeping writers waiting: see docs/how-to/upgrades.md.

MariaDB and MySQL have an entry for each row in each index, and would change it when the row is claimed. There, the
index begins with a computed column, which is empty until a row fails or is held, and so does the index of dead and
held rows. So a row that never fails has one more entry, but a claim changes one entry less.
"""

from collections.abc import Iterator
from typing import Any

from django.core.management.base import CommandError
from django.db import migrations, models

from django_txtasks.models import exact_collation


# A stored column: after the deletion of a row, an index of a virtual one would need the server to compute it again.
COLUMN = """
    ADD COLUMN failed_status varchar(10) CHARACTER SET utf8mb4 COLLATE {collation} GENERATED ALWAYS AS
        (CASE WHEN status IN ('dead', 'held') OR (cause IS NOT NULL AND status = 'pending') THEN status END) STORED
"""
INDEXES = {
    'txtasks_stopped': ['failed_status', 'run_after'],
    'txtasks_cause': ['failed_status', 'queue_name', 'cause', 'run_after', 'id'],
}


class AddIndexIfMissing(migrations.AddIndex):
    """Add an index unless an operator has made it already."""

    def database_forwards(self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any) -> None:
        connection = schema_editor.connection
        model = to_state.apps.get_model(app_label, self.model_name)
        if not self.allow_migrate_model(connection.alias, model):  # the project's router keeps it elsewhere
            return
        if connection.vendor == 'mysql':
            if changes := [*self._of_mysql(connection, as_new=schema_editor.collect_sql)]:
                schema_editor.execute(f'ALTER TABLE txtasks_task {", ".join(changes)}')
        elif schema_editor.collect_sql or not self._is_there(connection):
            super().database_forwards(app_label, schema_editor, from_state, to_state)

    def database_backwards(self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any) -> None:
        connection = schema_editor.connection
        model = from_state.apps.get_model(app_label, self.model_name)
        if connection.vendor != 'mysql':
            super().database_backwards(app_label, schema_editor, from_state, to_state)
        elif self.allow_migrate_model(connection.alias, model):
            schema_editor.execute(
                'ALTER TABLE txtasks_task DROP INDEX txtasks_cause, DROP INDEX txtasks_stopped, '
                'DROP COLUMN failed_status, ADD INDEX txtasks_stopped (status, run_after)'
            )

    def _of_mysql(self, connection: Any, *, as_new: bool) -> Iterator[str]:
        """Yield the changes of the table that are still to be made on MariaDB and MySQL, where one statement copies it."""
        there, columns = {'txtasks_stopped': ['status', 'run_after']}, []
        if not as_new:
            with connection.cursor() as cursor:
                found = connection.introspection.get_constraints(cursor, 'txtasks_task')
                columns = connection.introspection.get_table_description(cursor, 'txtasks_task')
            there = {name: one['columns'] for name, one in found.items()}
        if 'failed_status' not in [one.name for one in columns]:
            yield COLUMN.strip().format(collation=exact_collation(connection))
        for name, wanted in INDEXES.items():
            if there.get(name) != wanted:
                if name in there:
                    yield f'DROP INDEX {name}'
                yield f'ADD INDEX {name} ({", ".join(wanted)})'

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
