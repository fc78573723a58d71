"""The operation of migrations by which text columns get a character set of their own on MariaDB and MySQL."""

from __future__ import annotations

from itertools import groupby
from typing import Any

from django.db import router
from django.db.migrations.operations import SeparateDatabaseAndState


class AlterTexts(SeparateDatabaseAndState):
    """Make text columns of ``models.ExactText`` and ``models.ExactLongText``, with one statement for each table.

    PostgreSQL and SQLite have one encoding for all text, so nothing is executed there. Nothing is executed
    backwards either, because the columns could lose characters, and older releases can use them.

    Args:
        state_operations: an AlterField for each column. The columns of one model are together.
    """

    def database_forwards(
        self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any
    ) -> None:
        """Alter the columns on MariaDB and MySQL, in each table that a router allows."""
        connection = schema_editor.connection
        if connection.vendor != "mysql":
            return
        alterations: list[Any] = list(self.state_operations)
        for model_name, operations in groupby(alterations, _model_of):
            model = to_state.apps.get_model(app_label, model_name)
            if router.allow_migrate_model(connection.alias, model):
                fields = [model._meta.get_field(one.name) for one in operations]
                _alter(schema_editor, model, fields)

    def database_backwards(
        self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any
    ) -> None:
        """Leave the columns as they are."""


def _model_of(operation: Any) -> str:
    return str(operation.model_name)


def _alter(schema_editor: Any, model: Any, fields: list[Any]) -> None:
    changes, values = [], list[Any]()
    for field in fields:
        definition, params = schema_editor.column_sql(model, field)
        changes.append(f"MODIFY {schema_editor.quote_name(field.column)} {definition}")
        values += params
    table = schema_editor.quote_name(model._meta.db_table)
    schema_editor.execute(f"ALTER TABLE {table} {', '.join(changes)}", values)
