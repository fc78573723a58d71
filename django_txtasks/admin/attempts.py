"""The attempts of a task as lines, from its row and the hosts of their workers."""

from __future__ import annotations

import uuid
from typing import Any

from django_txtasks.admin import shown
from django_txtasks.admin.columns import parse
from django_txtasks.admin.shown import MAX_ERRORS
from django_txtasks.models import EndedWorker, Worker


def timeline(task: Any, errors: str | None) -> str:
    """Return a line for each attempt that left an error, and for the last attempt, the newest first.

    A line has the attempt's number, its worker, the time of its end, or of its begin if it runs, and its outcome.

    Args:
        errors: the row's JSON, as text.
    """
    entries = [one for one in _entries(errors) if isinstance(one, dict)]
    names = _names(task._state.db, {_id(one.get("worker")) for one in entries} | {task.worker})
    found = [
        (
            str(one.get("attempt", "")),
            names.get(_id(one.get("worker")), str(one.get("worker") or "")),
            str(one.get("at") or ""),
            str(one.get("type") or ""),
        )
        for one in reversed(entries[-MAX_ERRORS:])
    ]
    if task.attempt and not any(number == str(task.attempt) for number, *_ in found):
        state = getattr(task, "status", None) or task.outcome
        where = names.get(task.worker, str(task.worker or ""))
        ended = getattr(task, "finished_at", None) or task.started_at
        when = shown.clock(ended) if ended is not None else ""
        found.insert(0, (str(task.attempt), where, when, shown.state(state)))
    return shown.lines(
        " · ".join(shown.line(part) for part in (shown.attempt(number), *rest) if part)
        for number, *rest in found
    )


def _entries(errors: str | None) -> list[Any]:
    try:
        value = parse(errors)
    except ValueError:
        return []
    return value if isinstance(value, list) else []


def _names(alias: str, ids: set[uuid.UUID | None]) -> dict[uuid.UUID | None, str]:
    """Return host and process of these workers, living or ended; workers without a row are left out."""
    wanted = [one for one in ids if one is not None][: 2 * MAX_ERRORS]
    names: dict[uuid.UUID | None, str] = {}
    for model in (EndedWorker, Worker):
        rows = model._default_manager.using(alias).filter(pk__in=wanted)
        names |= {
            pk: f"{host} pid {pid}" for pk, host, pid in rows.values_list("pk", "host", "pid")
        }
    return names


def _id(value: Any) -> uuid.UUID | None:
    try:
        return uuid.UUID(str(value))
    except ValueError:
        return None
