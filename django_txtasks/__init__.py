"""A task queue whose tasks are rows, written in the same transaction as the data that they belong to.

Public names are loaded on first use, because some need models, and ``import django_txtasks`` must work while
Django is still loading its apps.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from django_txtasks.assembly import assemble

if TYPE_CHECKING:
    from django_txtasks.context import TaskContext
    from django_txtasks.enqueueing import NotTransactionalWarning
    from django_txtasks.enqueueing.batches import (
        BatchHandle,
        BatchStatus,
        aget_batch,
        batch,
        get_batch,
    )
    from django_txtasks.enqueueing.events import NoSubscribersWarning, apublish, publish, subscribe
    from django_txtasks.enqueueing.handles import (
        TaskHandle,
        acancel_task,
        acancel_tasks,
        aenqueue_many,
        aenqueue_task,
        aget_handle,
        astatus_of,
        cancel_task,
        cancel_tasks,
        enqueue_many,
        enqueue_task,
        get_handle,
        status_of,
    )
    from django_txtasks.exceptions import (
        BatchEnded,
        ClaimLost,
        HandedOver,
        InvalidToken,
        NotInBatch,
        Refused,
        Reject,
        ResultTimeout,
        ResultUnavailable,
        Retry,
        Snooze,
        StepRefused,
        Suspended,
        TaskCancelled,
        TaskFailed,
        TimedOut,
        TxTasksError,
        WaitTimedOut,
    )
    from django_txtasks.functions import TaskFunction, task
    from django_txtasks.hand_over.external import external
    from django_txtasks.items import Item
    from django_txtasks.links.details import TaskDetails
    from django_txtasks.links.reading import tasks_of
    from django_txtasks.results.cancelling import CancelResult
    from django_txtasks.schedules.periodic import periodic
    from django_txtasks.steps.answering import aresume, resume, resume_url

__all__ = [
    "BatchEnded",
    "BatchHandle",
    "BatchStatus",
    "CancelResult",
    "ClaimLost",
    "HandedOver",
    "InvalidToken",
    "Item",
    "NoSubscribersWarning",
    "NotInBatch",
    "NotTransactionalWarning",
    "Refused",
    "Reject",
    "ResultTimeout",
    "ResultUnavailable",
    "Retry",
    "Snooze",
    "StepRefused",
    "Suspended",
    "TaskCancelled",
    "TaskContext",
    "TaskDetails",
    "TaskFailed",
    "TaskFunction",
    "TaskHandle",
    "TimedOut",
    "TxTasksError",
    "WaitTimedOut",
    "acancel_task",
    "acancel_tasks",
    "aenqueue_many",
    "aenqueue_task",
    "aget_batch",
    "aget_handle",
    "apublish",
    "aresume",
    "astatus_of",
    "batch",
    "cancel_task",
    "cancel_tasks",
    "enqueue_many",
    "enqueue_task",
    "external",
    "get_batch",
    "get_handle",
    "periodic",
    "publish",
    "resume",
    "resume_url",
    "status_of",
    "subscribe",
    "task",
    "tasks_of",
]
__version__ = "0.1.0"

_ROOM_OF = {
    "BatchEnded": "exceptions",
    "BatchHandle": "enqueueing.batches",
    "BatchStatus": "enqueueing.batches",
    "CancelResult": "results.cancelling",
    "ClaimLost": "exceptions",
    "HandedOver": "exceptions",
    "InvalidToken": "exceptions",
    "Item": "items",
    "NoSubscribersWarning": "enqueueing.events",
    "NotInBatch": "exceptions",
    "NotTransactionalWarning": "enqueueing",
    "Refused": "exceptions",
    "Reject": "exceptions",
    "ResultTimeout": "exceptions",
    "ResultUnavailable": "exceptions",
    "Retry": "exceptions",
    "Snooze": "exceptions",
    "StepRefused": "exceptions",
    "Suspended": "exceptions",
    "TaskCancelled": "exceptions",
    "TaskContext": "context",
    "TaskDetails": "links.details",
    "TaskFailed": "exceptions",
    "TaskFunction": "functions",
    "TaskHandle": "enqueueing.handles",
    "TimedOut": "exceptions",
    "TxTasksError": "exceptions",
    "WaitTimedOut": "exceptions",
    "acancel_task": "enqueueing.handles",
    "acancel_tasks": "enqueueing.handles",
    "aenqueue_many": "enqueueing.handles",
    "aenqueue_task": "enqueueing.handles",
    "aget_batch": "enqueueing.batches",
    "aget_handle": "enqueueing.handles",
    "apublish": "enqueueing.events",
    "aresume": "steps.answering",
    "astatus_of": "enqueueing.handles",
    "batch": "enqueueing.batches",
    "cancel_task": "enqueueing.handles",
    "cancel_tasks": "enqueueing.handles",
    "enqueue_many": "enqueueing.handles",
    "enqueue_task": "enqueueing.handles",
    "external": "hand_over.external",
    "get_batch": "enqueueing.batches",
    "get_handle": "enqueueing.handles",
    "periodic": "schedules.periodic",
    "publish": "enqueueing.events",
    "resume": "steps.answering",
    "resume_url": "steps.answering",
    "status_of": "enqueueing.handles",
    "subscribe": "enqueueing.events",
    "task": "functions",
    "tasks_of": "links.reading",
}

assemble()  # before any module declares a task function


def __getattr__(name: str) -> Any:
    if name not in _ROOM_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_ROOM_OF[name]}"), name)
