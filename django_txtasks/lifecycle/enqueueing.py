"""The first arrow: a row in the caller's transaction."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from django.db.backends.base.base import BaseDatabaseWrapper

from django_txtasks.lifecycle import statements
from django_txtasks.lifecycle.dialect import dialect_of

ROWS_PER_STATEMENT = 500


class NewTask(NamedTuple):
    """A validated row to be; ``args``, ``kwargs`` and ``hooks`` are JSON text, ``timeout`` is in seconds.

    The defaults are those of the columns: a column that all rows leave as it is, is not in the statement.
    """

    task_id: uuid.UUID
    task_name: str
    queue_name: str = "default"
    priority: int = 0
    args: str = "[]"
    kwargs: str = "{}"
    run_after: datetime | timedelta | None = None
    expires_at: datetime | timedelta | None = None
    max_attempts: int = 5
    max_crashes: int = 3
    on_crash: str = "dead"
    timeout: float | None = None
    hooks: str = "{}"


COLUMNS = ("id", *NewTask._fields[1:])
RUN_AFTER = COLUMNS.index("run_after")
_WITHOUT_DEFAULT = len(COLUMNS) - len(NewTask._field_defaults)
_DEFAULTS = list(enumerate(NewTask._field_defaults.values(), start=_WITHOUT_DEFAULT))


def insert(connection: BaseDatabaseWrapper, tasks: Sequence[NewTask]) -> None:
    """-> PENDING. Writes the rows in the connection's open transaction, few statements for many."""
    for start in range(0, len(tasks), ROWS_PER_STATEMENT):
        _insert(connection, tasks[start : start + ROWS_PER_STATEMENT])


def _insert(connection: BaseDatabaseWrapper, tasks: Sequence[NewTask]) -> None:
    said = _said(tasks)
    columns = ", ".join([COLUMNS[index] for index in said])
    later = dialect_of(connection).later.replace("%(delay)s", "%s")
    rows, params = [], []
    for task in tasks:
        values = [_value(task, index) for index in said]
        places = [later if isinstance(value, timedelta) else "%s" for value in values]
        rows.append(f"({', '.join(places)})")
        params += [_stored(connection, value) for value in values]
    with connection.cursor() as cursor:
        cursor.execute(
            statements.INSERT_TASKS.format(columns=columns, rows=", ".join(rows)), params
        )


def _said(tasks: Sequence[NewTask]) -> list[int]:
    """Return the columns in which some row is not what the column is by default."""
    differ = {index for task in tasks for index, default in _DEFAULTS if task[index] != default}
    return [*range(_WITHOUT_DEFAULT), *sorted(differ)]


def _value(task: NewTask, index: int) -> Any:
    """Return what is in a column; a row to run at once, beside others that wait, says so as they do."""
    value = task[index]
    return timedelta(0) if value is None and index == RUN_AFTER else value


def _stored(connection: BaseDatabaseWrapper, value: Any) -> Any:
    """Return a value as this database takes it; a timedelta is seconds from now on, by its clock."""
    if isinstance(value, uuid.UUID):
        return value.hex
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, datetime):
        return connection.ops.adapt_datetimefield_value(value)
    return value
