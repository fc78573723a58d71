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

_NAMES_OF = {
    "context": ["TaskContext"],
    "enqueueing": ["NotTransactionalWarning"],
    "enqueueing.batches": ["BatchHandle", "BatchStatus", "aget_batch", "batch", "get_batch"],
    "enqueueing.events": ["NoSubscribersWarning", "apublish", "publish", "subscribe"],
    "enqueueing.handles": [
        "TaskHandle",
        "acancel_task",
        "acancel_tasks",
        "aenqueue_many",
        "aenqueue_task",
        "aget_handle",
        "astatus_of",
        "cancel_task",
        "cancel_tasks",
        "enqueue_many",
        "enqueue_task",
        "get_handle",
        "status_of",
    ],
    "functions": ["TaskFunction", "task"],
    "hand_over.external": ["external"],
    "items": ["Item"],
    "links.details": ["TaskDetails"],
    "links.reading": ["tasks_of"],
    "results.cancelling": ["CancelResult"],
    "schedules.periodic": ["periodic"],
    "steps.answering": ["aresume", "resume", "resume_url"],
}
"""Public names by their module. All other ones are in ``exceptions``."""
_ROOM_OF = dict.fromkeys(__all__, "exceptions")
_ROOM_OF |= {name: room for room, names in _NAMES_OF.items() for name in names}

assemble()  # before any module declares a task function


def __getattr__(name: str) -> Any:
    if name not in _ROOM_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_ROOM_OF[name]}"), name)
