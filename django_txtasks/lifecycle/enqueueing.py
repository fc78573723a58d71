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
    """A validated row to be; ``args`` and ``kwargs`` are JSON text."""

    task_id: uuid.UUID
    task_name: str
    queue_name: str
    priority: int
    args: str
    kwargs: str
    run_after: datetime | timedelta | None
    max_attempts: int
    max_crashes: int
    on_crash: str


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
    dialect = dialect_of(connections[alias])
    values: dict[str, Any] = {
        "id": task.task_id.hex,
        "name": task.task_name,
        "queue": task.queue_name,
        "priority": task.priority,
        "args": task.args,
        "kwargs": task.kwargs,
        "attempts": task.max_attempts,
        "crashes": task.max_crashes,
        "on_crash": task.on_crash,
    }
    places = {name: f"%({name}{index})s" for name in values}
    when = dialect.now
    if isinstance(task.run_after, timedelta):
        values["delay"] = task.run_after.total_seconds()
        when = dialect.later.replace("%(delay)s", f"%(delay{index})s")
    elif task.run_after is not None:
        values["when"] = stored_time(alias, task.run_after)
        when = f"%(when{index})s"
    first, last = list(places.values())[:6], list(places.values())[6:]
    return f"({', '.join([*first, when, *last])})", {
        f"{name}{index}": value for name, value in values.items()
    }
