"""The first arrow: a row in the caller's transaction."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from datetime import datetime, timedelta, timezone
from typing import Any, NamedTuple

from django.db.backends.base.base import BaseDatabaseWrapper

from django_txtasks.lifecycle import statements
from django_txtasks.lifecycle.dialect import dialect_of

ROWS_PER_STATEMENT = 500
ROWS_WORTH_A_COPY = 20
ROWS_PER_WRITE = 1000


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
RUN_AFTER, EXPIRES_AT = COLUMNS.index("run_after"), COLUMNS.index("expires_at")
_WITHOUT_DEFAULT = len(COLUMNS) - len(NewTask._field_defaults)
_DEFAULTS = list(enumerate(NewTask._field_defaults.values(), start=_WITHOUT_DEFAULT))


def insert(connection: BaseDatabaseWrapper, tasks: Sequence[NewTask]) -> None:
    """-> PENDING. Writes the rows in the connection's open transaction, few statements for many."""
    if connection.vendor == "postgresql" and len(tasks) >= ROWS_WORTH_A_COPY:
        _copy(connection, tasks)
        return
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


def _copy(connection: Any, tasks: Sequence[NewTask]) -> None:
    """Stream the rows. Django wraps no COPY, so we do what it does around a statement."""
    said = _said(tasks)
    columns = ", ".join([COLUMNS[index] for index in said])
    connection.validate_no_broken_transaction()
    with connection.cursor() as cursor, connection.wrap_database_errors:
        now = _now(cursor) if RUN_AFTER in said or EXPIRES_AT in said else None
        with cursor.copy(statements.COPY_TASKS.format(columns=columns)) as copy:
            for start in range(0, len(tasks), ROWS_PER_WRITE):
                copy.write(_lines(tasks[start : start + ROWS_PER_WRITE], said, now))


def _now(cursor: Any) -> datetime:
    """Return the database's time: COPY takes no expressions, and no other clock counts."""
    cursor.execute(statements.POSTGRES_NOW)
    now: datetime = cursor.fetchone()[0]
    return now.replace(tzinfo=timezone.utc)


def _lines(tasks: Sequence[NewTask], said: list[int], now: datetime | None) -> str:
    """Return rows as COPY reads them. No name has control characters, and in JSON they are escaped."""
    texts = []
    for index in said:
        values = [_value(task, index) for task in tasks]
        texts.append(values if isinstance(values[0], str) else [_text(one, now) for one in values])
    lines = "".join([f"{line}\n" for line in map("\t".join, zip(*texts, strict=True))])
    return lines.replace("\\", "\\\\")


def _text(value: Any, now: datetime | None) -> str:
    if isinstance(value, uuid.UUID):
        return value.hex
    if isinstance(value, timedelta) and now is not None:
        value = now + value
    if isinstance(value, datetime):
        return value.isoformat()
    return "" if value is None else str(value)


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
