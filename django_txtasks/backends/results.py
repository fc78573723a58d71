"""Django's task result, made from a row."""

from __future__ import annotations

import json
import uuid
from datetime import datetime
from typing import TYPE_CHECKING, Any

from django.utils.dateparse import parse_datetime

from django_txtasks.backends import compat
from django_txtasks.backends.running import EntryPoint, task_error, workers_of
from django_txtasks.core.declaring import registry

if TYPE_CHECKING:
    from django_txtasks.models import FinishedTask
    from django_txtasks.models import Task as Row


def find(database: str, result_id: str, backend: str) -> compat.TaskResult:
    """Return the current result of a task.

    Raises:
        TaskResultDoesNotExist: no such id, a finished task that is not kept any longer, or a task that is not
            declared with Django's ``@task``.
    """
    from django_txtasks import models

    try:
        task_id = uuid.UUID(str(result_id))
    except ValueError:
        raise compat.TaskResultDoesNotExist(result_id) from None
    # The live row is read first, because a row moves to the finished rows, and never back.
    for model in (models.Task, models.FinishedTask):
        row = model._default_manager.using(database).filter(pk=task_id).first()
        if isinstance(row, models.FinishedTask) and row.merged_into is not None:
            return _of_request(find(database, row.merged_into, backend), row)
        if row is not None:
            return _result(row, backend)
    raise compat.TaskResultDoesNotExist(result_id)


def _of_request(result: compat.TaskResult, row: FinishedTask) -> compat.TaskResult:
    """Return the result of the task into which a task was merged, as the result of the merged task."""
    for name, value in (("id", str(row.pk)), ("enqueued_at", row.enqueued_at)):
        object.__setattr__(result, name, value)
    return result


def _result(row: Row | FinishedTask, backend: str) -> compat.TaskResult:
    from django_txtasks.core.rows.attempts import read_entries
    from django_txtasks.core.rows.enqueueing import Times

    entry = registry.find(row.task_name)
    if entry is None or not isinstance(entry.function, EntryPoint):
        raise compat.TaskResultDoesNotExist(
            f"{row.pk} is a task of {row.task_name}, which is not declared with Django's @task here."
        )
    status, errors = _status(row), read_entries(json.dumps(row.errors))
    result = compat.TaskResult(
        task=entry.function.task.as_enqueued(
            backend=backend,
            priority=row.priority,
            queue_name=row.queue_name,
            run_after=Times(row.enqueued_at, row.run_after).later,
            **{
                name: getattr(row, name)
                for name in ("max_attempts", "max_crashes")
                if hasattr(row, name)
            },
        ),
        id=str(row.pk),
        status=status,
        enqueued_at=row.enqueued_at,
        started_at=row.started_at,
        finished_at=_finished_at(row, status, errors),
        last_attempted_at=row.started_at or _last_end(errors),
        args=row.args,
        kwargs=row.kwargs,
        backend=backend,
        errors=[task_error(one) for one in errors],
        worker_ids=[*workers_of(errors), *([str(row.worker)] if row.worker else [])],
    )
    object.__setattr__(result, "_return_value", getattr(row, "result", None))
    return result


def _status(row: Any) -> compat.TaskResultStatus:
    state = getattr(row, "status", None) or row.outcome
    known = {
        "claimed": compat.TaskResultStatus.RUNNING,
        "dead": compat.TaskResultStatus.FAILED,
        "pending": compat.TaskResultStatus.READY,
        "held": compat.TaskResultStatus.READY,
        "succeeded": compat.TaskResultStatus.SUCCESSFUL,
        "handed": compat.TaskResultStatus.RUNNING,  # in another system, which has its result
    }
    return known.get(state, compat.TaskResultStatus.FAILED)  # cancelled, discarded, expired


def _finished_at(
    row: Any, status: compat.TaskResultStatus, errors: list[dict[str, Any]]
) -> datetime | None:
    if status is compat.TaskResultStatus.RUNNING:  # also in another system
        return None
    if hasattr(row, "finished_at"):
        return row.finished_at  # type: ignore[no-any-return]
    return _last_end(errors) if status is compat.TaskResultStatus.FAILED else None


def _last_end(errors: list[dict[str, Any]]) -> datetime | None:
    """Return the time at which the last attempt with an error ended."""
    try:
        return parse_datetime(str(errors[-1].get("at"))) if errors else None
    except ValueError:  # written by hand
        return None
