"""The first arrow: a row in the caller's transaction."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db import connections

from django_txtasks.lifecycle import statements
from django_txtasks.lifecycle.dialect import dialect_of, stored_time

ROWS_PER_STATEMENT = 500


@dataclass(frozen=True, slots=True)
class NewTask:
    """A validated row to be; ``args``, ``kwargs`` and ``hooks`` are JSON text, ``timeout`` is in seconds."""

    task_id: uuid.UUID
    task_name: str
    queue_name: str
    priority: int
    args: str
    kwargs: str
    run_after: datetime | timedelta | None
    expires_at: datetime | timedelta | None
    max_attempts: int
    max_crashes: int
    on_crash: str
    timeout: float | None
    hooks: str


def insert(alias: str, tasks: Sequence[NewTask]) -> None:
    """-> PENDING. Writes the rows in the connection's open transaction, few statements for many."""
    connection = connections[alias]
    for start in range(0, len(tasks), ROWS_PER_STATEMENT):
        rows, params = [], {}
        for index, task in enumerate(tasks[start : start + ROWS_PER_STATEMENT]):
            row, values = _row(alias, task, str(index))
            rows.append(row)
            params.update(values)
        with connection.cursor() as cursor:
            cursor.execute(statements.INSERT_TASKS + ", ".join(rows), params)


def _row(alias: str, task: NewTask, index: str) -> tuple[str, dict[str, Any]]:
    """Return a row's placeholders, numbered, and their values."""
    first: dict[str, Any] = {
        "id": task.task_id.hex,
        "name": task.task_name,
        "queue": task.queue_name,
        "priority": task.priority,
        "args": task.args,
        "kwargs": task.kwargs,
    }
    last: dict[str, Any] = {
        "attempts": task.max_attempts,
        "crashes": task.max_crashes,
        "on_crash": task.on_crash,
        "timeout": task.timeout,
        "hooks": task.hooks,
    }
    dialect = dialect_of(connections[alias])
    start, starts = _time(alias, task.run_after, f"start{index}", default=dialect.now)
    end, ends = _time(alias, task.expires_at, f"end{index}", default="NULL")
    places = [
        *(f"%({name}{index})s" for name in first), start, end, *(f"%({name}{index})s" for name in last),
    ]  # fmt: skip
    values = {f"{name}{index}": value for name, value in {**first, **last}.items()}
    return f"({', '.join(places)})", {**values, **starts, **ends}


def _time(
    alias: str, when: datetime | timedelta | None, name: str, *, default: str
) -> tuple[str, dict[str, Any]]:
    """Return SQL for a time, and its parameter: the database's clock is the one that counts."""
    if when is None:
        return default, {}
    if isinstance(when, timedelta):
        later = dialect_of(connections[alias]).later
        return later.replace("%(delay)s", f"%({name})s"), {name: when.total_seconds()}
    return f"%({name})s", {name: stored_time(alias, when)}
