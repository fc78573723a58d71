"""Django's ``task_finished`` for tasks that end without an attempt in this process that could send it.

A cleaner buries the task of a lost worker, a person cancels a task, a task expires: without this module, an
observer of Django's signals would show such a task as READY or RUNNING for ever. This package's own signals
report each of these ends after the commit, and this module then sends ``task_finished`` with the status FAILED,
unless ``running`` has announced the end.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

from django.db import close_old_connections

from django_txtasks import signals
from django_txtasks.backends import compat
from django_txtasks.backends.running import EntryPoint, was_announced
from django_txtasks.core.declaring import registry
from django_txtasks.signals import LogSignal

ENDS = (
    signals.task_died,
    signals.task_cancelled,
    signals.task_stopped,
    signals.task_expired,
)
"""Ends that Django calls FAILED. ``task_discarded`` is not among them, because the death was announced before."""


def listen() -> None:
    """Send ``task_finished`` for these ends from now on, in this process."""
    for end in ENDS:
        end.connect(_announce, dispatch_uid="txtasks.task_finished")


def _announce(
    task_id: uuid.UUID, task: str, queue: str, attempt: int | None = None, **_: Any
) -> None:
    entry = registry.find(task)
    if entry is None or not isinstance(entry.function, EntryPoint):
        return  # not declared with Django's @task
    if attempt is not None and was_announced(task_id, attempt):
        return
    in_thread_of_signals = LogSignal.queue is not None
    if in_thread_of_signals:  # no request and no slot closes the sessions of that thread
        close_old_connections()
    try:
        _send(task_id, entry.function.task, queue)
    finally:
        if in_thread_of_signals:
            close_old_connections()


def _send(task_id: uuid.UUID, task: Any, queue: str) -> None:
    backend, result = _result(task_id, task, queue)
    if result.status is compat.TaskResultStatus.FAILED:  # not if a person has revived the task
        compat.task_finished.send_robust(sender=type(backend), task_result=result)


def _result(task_id: uuid.UUID, task: Any, queue: str) -> tuple[Any, compat.TaskResult]:
    """Return the backend through which the task was enqueued, and the task's result."""
    for backend in _backends(task, queue):
        try:
            return backend, backend.get_result(str(task_id))
        except compat.TaskResultDoesNotExist:
            continue
    backend = next(_backends(task, queue))
    unkept = compat.TaskResult(  # TXTASKS["keep_finished"] is 0: only the id is left
        task=task.as_enqueued(queue_name=queue, backend=backend.alias),
        id=str(task_id), status=compat.TaskResultStatus.FAILED, enqueued_at=None, started_at=None,
        finished_at=None, last_attempted_at=None, args=[], kwargs={}, backend=backend.alias, errors=[],
        worker_ids=[],
    )  # fmt: skip
    return backend, unkept


def _backends(task: Any, queue: str) -> Iterator[Any]:
    """Yield the backends that may have written the row, the most likely first."""
    declared = task.get_backend()
    others = [one for one in compat.task_backends.all() if hasattr(one, "database")]
    for backend in (declared, *(one for one in others if one is not declared)):
        if hasattr(backend, "database") and queue in backend.queues:
            yield backend
    yield declared
