"""Tasks that are rows, written in the same transaction as their data, so that a committed one runs.

The public names are loaded on first use, so that ``import django_txtasks`` works
while Django is still loading its apps; no model is imported here.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from django_txtasks.batches import BatchHandle, BatchStatus, aget_batch, batch, get_batch
    from django_txtasks.enqueueing import (
        NotTransactionalWarning,
        aenqueue_many,
        aenqueue_task,
        enqueue_many,
        enqueue_task,
    )
    from django_txtasks.events import NoSubscribersWarning, apublish, publish, subscribe
    from django_txtasks.exceptions import (
        BatchEnded,
        ClaimLost,
        InvalidToken,
        NotInBatch,
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
    from django_txtasks.functions import TaskContext, TaskFunction, task
    from django_txtasks.handles import (
        TaskHandle,
        acancel_task,
        acancel_tasks,
        aget_handle,
        astatus_of,
        cancel_task,
        cancel_tasks,
        get_handle,
        status_of,
    )
    from django_txtasks.lifecycle.cancelling import CancelResult
    from django_txtasks.resuming import aresume, resume, resume_url
    from django_txtasks.scheduling import periodic

__all__ = [
    "BatchEnded",
    "BatchHandle",
    "BatchStatus",
    "CancelResult",
    "ClaimLost",
    "InvalidToken",
    "NoSubscribersWarning",
    "NotInBatch",
    "NotTransactionalWarning",
    "Reject",
    "ResultTimeout",
    "ResultUnavailable",
    "Retry",
    "Snooze",
    "StepRefused",
    "Suspended",
    "TaskCancelled",
    "TaskContext",
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
    "get_batch",
    "get_handle",
    "periodic",
    "publish",
    "resume",
    "resume_url",
    "status_of",
    "subscribe",
    "task",
]
__version__ = "0.1.0"

_ROOM_OF = {
    "BatchEnded": "exceptions",
    "BatchHandle": "batches",
    "BatchStatus": "batches",
    "CancelResult": "lifecycle.cancelling",
    "ClaimLost": "exceptions",
    "InvalidToken": "exceptions",
    "NoSubscribersWarning": "events",
    "NotInBatch": "exceptions",
    "NotTransactionalWarning": "enqueueing",
    "Reject": "exceptions",
    "ResultTimeout": "exceptions",
    "ResultUnavailable": "exceptions",
    "Retry": "exceptions",
    "Snooze": "exceptions",
    "StepRefused": "exceptions",
    "Suspended": "exceptions",
    "TaskCancelled": "exceptions",
    "TaskContext": "functions",
    "TaskFailed": "exceptions",
    "TaskFunction": "functions",
    "TaskHandle": "handles",
    "TimedOut": "exceptions",
    "TxTasksError": "exceptions",
    "WaitTimedOut": "exceptions",
    "acancel_task": "handles",
    "acancel_tasks": "handles",
    "aenqueue_many": "enqueueing",
    "aenqueue_task": "enqueueing",
    "aget_batch": "batches",
    "aget_handle": "handles",
    "apublish": "events",
    "aresume": "resuming",
    "astatus_of": "handles",
    "batch": "batches",
    "cancel_task": "handles",
    "cancel_tasks": "handles",
    "enqueue_many": "enqueueing",
    "enqueue_task": "enqueueing",
    "get_batch": "batches",
    "get_handle": "handles",
    "periodic": "scheduling",
    "publish": "events",
    "resume": "resuming",
    "resume_url": "resuming",
    "status_of": "handles",
    "subscribe": "events",
    "task": "functions",
}


def __getattr__(name: str) -> Any:
    if name not in _ROOM_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_ROOM_OF[name]}"), name)
