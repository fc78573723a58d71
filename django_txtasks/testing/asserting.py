"""Assertions about enqueued tasks, for tests of projects."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from django_txtasks.core.declaring.registry import Declaration
from django_txtasks.core.ground import payload
from django_txtasks.exceptions import NotATask
from django_txtasks.models import FinishedTask, Task, TaskColumns

MAX_SHOWN_TASKS = 20


def assert_enqueued(
    function: Any,
    args: Sequence[Any] | None = None,
    kwargs: Mapping[str, Any] | None = None,
    *,
    using: str = "default",
    **columns: Any,
) -> TaskColumns:
    """Assert that a task was enqueued; return the newest such row, live or finished.

    Args:
        function: a task function, or a task of Django's ``@task``.
        args, kwargs: arguments of the call; None = any.
        columns: expected values of other columns, such as ``queue_name="mail"``.

    Raises:
        AssertionError: there is no such task; the message lists the tasks that exist.
    """
    rows = _rows(function, using)
    for row in rows:
        if _fits(row, args, kwargs, columns):
            return row
    wanted = _described(_name(function), args, kwargs, columns)
    others = [
        _described(row.task_name, row.args, row.kwargs, {one: _column(row, one) for one in columns})
        for row in rows or _all(using)
    ]
    if not others:
        raise AssertionError(f"{wanted} was not enqueued, nor was anything else.")
    what = "it was enqueued as" if rows else "there are"
    raise AssertionError(
        "\n  ".join([f"{wanted} was not enqueued; {what}:", *others[:MAX_SHOWN_TASKS]])
    )


def assert_not_enqueued(
    function: Any,
    args: Sequence[Any] | None = None,
    kwargs: Mapping[str, Any] | None = None,
    *,
    using: str = "default",
    **columns: Any,
) -> None:
    """Assert that no such task was enqueued; arguments as for ``assert_enqueued``."""
    for row in _rows(function, using):
        if _fits(row, args, kwargs, columns):
            found = _described(row.task_name, row.args, row.kwargs, columns)
            raise AssertionError(f"{found} was enqueued: {row.pk}.")


def _name(function: Any) -> str:
    declaration = getattr(function, "declaration", None)
    if not isinstance(declaration, Declaration):
        raise NotATask(f"{function!r} is not a task function. Declare it with @task.")
    return declaration.name


def _rows(function: Any, using: str) -> list[TaskColumns]:
    name = _name(function)
    return [row for row in _all(using) if row.task_name == name]


def _all(using: str) -> list[TaskColumns]:
    rows = [*Task.objects.using(using), *FinishedTask.objects.using(using)]
    return sorted(rows, key=lambda row: row.enqueued_at, reverse=True)


def _fits(
    row: TaskColumns,
    args: Sequence[Any] | None,
    kwargs: Mapping[str, Any] | None,
    columns: Mapping[str, Any],
) -> bool:
    return (
        (args is None or row.args == _as_stored(list(args)))
        and (kwargs is None or row.kwargs == _as_stored(dict(kwargs)))
        and all(_column(row, name) == value for name, value in columns.items())
    )


def _column(row: TaskColumns, name: str) -> Any:
    """Return a column's value; None if this kind of row lacks it, as a finished task lacks ``status``."""
    if not any(hasattr(model, name) for model in (Task, FinishedTask)):
        raise TypeError(f"Rows of tasks have no column {name!r}.")
    return getattr(row, name, None)


def _as_stored(value: Any) -> Any:
    return json.loads(payload.encode(value, name="args"))


def _described(name: str, args: Any, kwargs: Any, columns: Mapping[str, Any]) -> str:
    given = {"args": args, "kwargs": kwargs}
    given = {**{key: value for key, value in given.items() if value is not None}, **columns}
    said = ", ".join(f"{key}={value!r}" for key, value in given.items())
    return f"{name}({said})"
