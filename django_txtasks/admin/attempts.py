"""The attempts of a task as lines, from its row and the hosts of their workers."""

from __future__ import annotations

from typing import Any

from django_txtasks.admin import shown
from django_txtasks.admin.columns import parse
from django_txtasks.admin.shown import MAX_ERRORS


def timeline(task: Any, errors: str | None) -> str:
    """Return a line for each attempt that left an error, and for the last attempt, the newest first.

    A line has the attempt's number, its worker, the time of its end, or of its begin if it runs, and its outcome.

    Args:
        errors: the row's JSON, as text.
    """
    from django_txtasks.insight.story import processes_of, worker_of  # imported by this page alone

    entries = [one for one in _entries(errors) if isinstance(one, dict)]
    known = processes_of(task._state.db, {*map(worker_of, entries), task.worker})
    names = {worker: one.where for worker, one in known.items()}
    found = [
        (
            str(one.get("attempt", "")),
            names.get(worker_of(one), str(one.get("worker") or "")),
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
