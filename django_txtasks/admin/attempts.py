"""The attempts of a task, from its row, and the hosts of their workers."""

from __future__ import annotations

import uuid
from typing import Any

from django_txtasks.admin.columns import parse
from django_txtasks.admin.shown import MAX_ERRORS, ShownAttempt, clock
from django_txtasks.admin.shown import state as shown_state
from django_txtasks.models import EndedWorker, Worker


def attempts_of(task: Any, errors: str | None) -> list[ShownAttempt]:
    """Return the attempts that left an error, and the last attempt, newest first.

    Args:
        errors: the row's JSON, as text.
    """
    entries = [one for one in _entries(errors) if isinstance(one, dict)]
    names = _names(task._state.db, {_id(one.get("worker")) for one in entries} | {task.worker})
    found = [
        ShownAttempt(
            number=str(one.get("attempt", "")),
            where=names.get(_id(one.get("worker")), str(one.get("worker") or "")),
            when=str(one.get("at") or ""),
            how=str(one.get("type") or ""),
        )
        for one in reversed(entries[-MAX_ERRORS:])
    ]
    if task.attempt and not any(one.number == str(task.attempt) for one in found):
        state = getattr(task, "status", None) or task.outcome
        where = names.get(task.worker, str(task.worker or ""))
        ended = getattr(task, "finished_at", None) or task.started_at
        when = clock(ended) if ended is not None else ""
        found.insert(0, ShownAttempt(str(task.attempt), where, when, shown_state(state)))
    return found


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
