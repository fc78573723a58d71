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
    from django_txtasks.core.enqueueing import NotTransactionalWarning
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
    from django_txtasks.features.batches.api import (
        BatchHandle,
        BatchStatus,
        aget_batch,
        batch,
        get_batch,
    )
    from django_txtasks.features.events.api import (
        NoSubscribersWarning,
        apublish,
        publish,
        subscribe,
    )
    from django_txtasks.features.hand_over.external import external
    from django_txtasks.features.links.details import TaskDetails
    from django_txtasks.features.links.reading import tasks_of
    from django_txtasks.features.many.items import Item
    from django_txtasks.features.results.cancelling import CancelResult
    from django_txtasks.features.schedules.periodic import periodic
    from django_txtasks.features.steps.answering import aresume, resume, resume_url
    from django_txtasks.functions import TaskFunction, task
    from django_txtasks.handles import (
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

_NAMES_IN = {
    "context": ("TaskContext",),
    "core.enqueueing": ("NotTransactionalWarning",),
    "features.batches.api": ("BatchHandle", "BatchStatus", "aget_batch", "batch", "get_batch"),
    "features.events.api": ("NoSubscribersWarning", "apublish", "publish", "subscribe"),
    "handles": (
        "TaskHandle", "acancel_task", "acancel_tasks", "aenqueue_many", "aenqueue_task", "aget_handle",
        "astatus_of", "cancel_task", "cancel_tasks", "enqueue_many", "enqueue_task", "get_handle", "status_of",
    ),
    "exceptions": (
        "BatchEnded", "ClaimLost", "HandedOver", "InvalidToken", "NotInBatch", "Refused", "Reject",
        "ResultTimeout", "ResultUnavailable", "Retry", "Snooze", "StepRefused", "Suspended", "TaskCancelled",
        "TaskFailed", "TimedOut", "TxTasksError", "WaitTimedOut",
    ),
    "functions": ("TaskFunction", "task"),
    "features.hand_over.external": ("external",),
    "features.many.items": ("Item",),
    "features.links.details": ("TaskDetails",),
    "features.links.reading": ("tasks_of",),
    "features.results.cancelling": ("CancelResult",),
    "features.schedules.periodic": ("periodic",),
    "features.steps.answering": ("aresume", "resume", "resume_url"),
}  # fmt: skip
_ROOM_OF = {one: module for module, names in _NAMES_IN.items() for one in names}

assemble()  # before any module declares a task function


def __getattr__(name: str) -> Any:
    if name not in _ROOM_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_ROOM_OF[name]}"), name)
