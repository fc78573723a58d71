"""The index of last chances: pending rows whose next attempt is the last allowed one after a crash.

It has no entry of a task that never crashes. An operator makes it before, if the table is large: see
docs/how-to/upgrades.md. On MariaDB and MySQL it consists of a computed column, which is empty in all other rows.
"""

from collections.abc import Iterator
from importlib import import_module
from typing import Any

from django.db import migrations, models
from django.db.models import F, Q

AddIndexIfMissing = import_module('django_txtasks.migrations.0003_index_of_causes').AddIndexIfMissing
COLUMN = """
    ADD COLUMN last_chance_at datetime(6) GENERATED ALWAYS AS
        (CASE WHEN status = 'pending' AND crashes > 0 AND crashes + 1 >= max_crashes THEN run_after END) STORED
"""


class AddLastChances(AddIndexIfMissing):  # type: ignore[misc, valid-type] # its module has no importable name
    """Add the index unless an operator has made it already."""

    def database_backwards(self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any) -> None:
        model = from_state.apps.get_model(app_label, self.model_name)
        if schema_editor.connection.vendor != 'mysql':
            super().database_backwards(app_label, schema_editor, from_state, to_state)
        elif self.allow_migrate_model(schema_editor.connection.alias, model):
            schema_editor.execute(
                'ALTER TABLE txtasks_task DROP INDEX txtasks_last_chance, DROP COLUMN last_chance_at'
            )

    def _of_mysql(self, connection: Any, *, as_new: bool) -> Iterator[str]:
        columns = []
        if not as_new:
            with connection.cursor() as cursor:
                columns = connection.introspection.get_table_description(cursor, 'txtasks_task')
        if 'last_chance_at' not in [one.name for one in columns]:
            yield COLUMN.strip()
            yield 'ADD INDEX txtasks_last_chance (last_chance_at)'


class Migration(migrations.Migration):

    dependencies = [
        ('txtasks', '0005_links'),
    ]

    operations = [
        AddLastChances(
            model_name='task',
            index=models.Index(
                fields=['run_after'],
                condition=Q(status='pending', crashes__gt=0, crashes__gte=F('max_crashes') - 1),
                name='txtasks_last_chance',
            ),
        ),
    ]
