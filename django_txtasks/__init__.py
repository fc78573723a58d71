"""Tasks that are rows, written in the same transaction as their data, so that a committed one runs.

The public names are loaded on first use, so that ``import django_txtasks`` works
while Django is still loading its apps; no model is imported here.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from django_txtasks.batches import BatchHandle, BatchStatus, batch, get_batch
    from django_txtasks.enqueueing import (
        NotTransactionalWarning,
        TaskHandle,
        aenqueue_task,
        cancel_task,
        cancel_tasks,
        enqueue_many,
        enqueue_task,
        status_of,
    )
    from django_txtasks.exceptions import (
        BatchEnded,
        ClaimLost,
        NotInBatch,
        Reject,
        Retry,
        Snooze,
        TaskCancelled,
        TimedOut,
        TxTasksError,
    )
    from django_txtasks.functions import TaskContext, TaskFunction, task
    from django_txtasks.lifecycle.cancelling import CancelResult

__all__ = [
    "BatchEnded",
    "BatchHandle",
    "BatchStatus",
    "CancelResult",
    "ClaimLost",
    "NotInBatch",
    "NotTransactionalWarning",
    "Reject",
    "Retry",
    "Snooze",
    "TaskCancelled",
    "TaskContext",
    "TaskFunction",
    "TaskHandle",
    "TimedOut",
    "TxTasksError",
    "aenqueue_task",
    "batch",
    "cancel_task",
    "cancel_tasks",
    "enqueue_many",
    "enqueue_task",
    "get_batch",
    "status_of",
    "task",
]
__version__ = "0.1.0"

_ROOM_OF = {
    "BatchEnded": "exceptions",
    "BatchHandle": "batches",
    "BatchStatus": "batches",
    "CancelResult": "lifecycle.cancelling",
    "ClaimLost": "exceptions",
    "NotInBatch": "exceptions",
    "NotTransactionalWarning": "enqueueing",
    "Reject": "exceptions",
    "Retry": "exceptions",
    "Snooze": "exceptions",
    "TaskCancelled": "exceptions",
    "TaskContext": "functions",
    "TaskFunction": "functions",
    "TaskHandle": "enqueueing",
    "TimedOut": "exceptions",
    "TxTasksError": "exceptions",
    "aenqueue_task": "enqueueing",
    "batch": "batches",
    "cancel_task": "enqueueing",
    "cancel_tasks": "enqueueing",
    "enqueue_many": "enqueueing",
    "enqueue_task": "enqueueing",
    "get_batch": "batches",
    "status_of": "enqueueing",
    "task": "functions",
}


def __getattr__(name: str) -> Any:
    if name not in _ROOM_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_ROOM_OF[name]}"), name)
