"""MariaDB and MySQL compare names exactly: case, accents and spaces at the end count. Other databases: no change.

The collation that such a server gives a table by default takes ``mail`` and ``Mail`` for one queue. All columns that
decide anything are changed here, in one ALTER TABLE for each table. The server copies the table: meanwhile everybody
can read it, and everything that writes to it waits, an enqueue() too. For locks and times see
docs/how-to/databases.md. The migration asks which columns are exact already, so it can be repeated.

Backwards it leaves all columns exact: releases before this one work with them.
"""

from __future__ import annotations

from typing import Any

import django_txtasks.models
from django.db import migrations, models
from django.db.migrations.operations.base import Operation

ExactText = django_txtasks.models.ExactText
NAMES = {'task_name': ExactText(max_length=200), 'queue_name': ExactText(db_default='default', max_length=100)}
COLUMNS: dict[str, dict[str, Any]] = {
    'Task': {
        **NAMES,
        'status': ExactText(choices=[('pending', 'pending'), ('claimed', 'claimed'), ('dead', 'dead'), ('held', 'held')], db_default='pending', max_length=10),
        'on_crash': ExactText(choices=[('dead', 'leave it dead'), ('retry', 'run it again'), ('compensate', 'leave it dead and run its compensation'), ('retry+undo', 'run it again, and in the end run its compensation')], db_default='dead', max_length=10),
    },
    'FinishedTask': {
        **NAMES,
        'outcome': ExactText(choices=[('succeeded', 'succeeded'), ('cancelled', 'cancelled'), ('discarded', 'discarded'), ('expired', 'cancelled: expired'), ('merged', 'merged into another one')], max_length=10),
    },
    'Schedule': NAMES,
    'PausedQueue': {'queue_name': ExactText(max_length=100, primary_key=True, serialize=False, verbose_name='queue')},
}
# MariaDB would choose to build the indexes anew beside writers. Seen on 10.11: what was written meanwhile left indexes
# that the server called corrupted (error 1712), so that no task could be claimed.
HOW = 'ALGORITHM=COPY, LOCK=SHARED'
IS_EXACT = """
    SELECT column_name FROM information_schema.columns
     WHERE table_schema = DATABASE() AND table_name = %s AND collation_name = %s
"""


class CompareExactly(Operation):
    """Make columns ExactText, and give all columns of this type, those of older migrations too, its collation."""

    reduces_to_sql = True
    reversible = True

    def state_forwards(self, app_label: str, state: Any) -> None:
        for model_name, fields in COLUMNS.items():
            for name, field in fields.items():
                state.alter_field(app_label, model_name.lower(), name, field, True)

    def database_forwards(
        self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any
    ) -> None:
        if schema_editor.connection.vendor != 'mysql':
            return
        for model in to_state.apps.get_app_config(app_label).get_models():
            if self.allow_migrate_model(schema_editor.connection.alias, model):
                _alter(schema_editor, model)

    def database_backwards(
        self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any
    ) -> None:
        """Leave the columns exact."""

    def describe(self) -> str:
        return 'Compare names exactly on MariaDB and MySQL'

    @property
    def migration_name_fragment(self) -> str:
        return 'exact_names'


def _alter(schema_editor: Any, model: Any) -> None:
    """Change all columns of a table that are not exact yet, in one statement."""
    connection, table = schema_editor.connection, model._meta.db_table
    with connection.cursor() as cursor:
        cursor.execute(IS_EXACT, [table, django_txtasks.models.exact_collation(connection)])
        exact = {name for (name,) in cursor.fetchall()}
    fields = [
        one for one in model._meta.local_fields
        if isinstance(one, ExactText) and one.column not in exact
    ]
    for field in fields:
        if field.choices:
            _spell_as_declared(schema_editor, table, field)
    if fields:
        changes = ', '.join(_definition(schema_editor, model, one) for one in fields)
        schema_editor.execute(f'ALTER TABLE {schema_editor.quote_name(table)} {changes}, {HOW}')


def _definition(schema_editor: Any, model: Any, field: Any) -> str:
    """Return the change of a column; its default and whether it may be NULL stay, and so does a primary key."""
    text, params = schema_editor.column_sql(model, field)
    text %= tuple(schema_editor.quote_value(one) for one in params)
    return f'MODIFY {schema_editor.quote_name(field.column)} {text.replace(" PRIMARY KEY", "")}'


def _spell_as_declared(schema_editor: Any, table: str, field: Any) -> None:
    """Rewrite what raw SQL wrote as ``Pending``: the table's CHECK would refuse such a row in the new collation."""
    values = ', '.join(schema_editor.quote_value(value) for value, _ in field.choices)
    name = schema_editor.quote_name(field.column)
    schema_editor.execute(
        f'UPDATE {schema_editor.quote_name(table)} SET {name} = ELT(FIELD({name}, {values}), {values})'
        f' WHERE {name} IN ({values}) AND CAST({name} AS BINARY) NOT IN ({values})'
    )


class Migration(migrations.Migration):

    dependencies = [
        ('txtasks', '0021_wait'),
    ]

    operations = [
        CompareExactly(),
    ]
