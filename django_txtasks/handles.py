"""The handle of an enqueued task, with its status, its result and its cancel.

For type checkers, the functions that enqueue return it here; see ``django_txtasks.core.enqueueing``.
"""

from __future__ import annotations

import math
import uuid
from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ParamSpec

from asgiref.sync import sync_to_async
from django.db import transaction

from django_txtasks.core.enqueueing.calls import BoundFunction, bind, with_texts
from django_txtasks.core.enqueueing.commit_hints import notify_on_commit
from django_txtasks.core.enqueueing.handles import CoreHandle, Enqueueable
from django_txtasks.core.ground.config import get_config
from django_txtasks.exceptions import InvalidArguments, InvalidOption
from django_txtasks.features.results import polling

if TYPE_CHECKING:
    from django_txtasks.features.progress.notes import Progress
    from django_txtasks.features.results.cancelling import CancelResult

    P = ParamSpec("P")

    def enqueue_task(function: Enqueueable[P], /, *args: P.args, **kwargs: P.kwargs) -> TaskHandle:
        """Write a task in the current transaction, or in its own transaction if none is open."""

    async def aenqueue_task(
        function: Enqueueable[P], /, *args: P.args, **kwargs: P.kwargs
    ) -> TaskHandle:
        """Like ``enqueue_task``, from async code."""

    def enqueue_many(calls: Iterable[Sequence[Any]]) -> list[TaskHandle]:
        """Write many tasks in few statements: all of them or, after any error, no task."""

    async def aenqueue_many(calls: Iterable[Sequence[Any]]) -> list[TaskHandle]:
        """Like ``enqueue_many``, from async code."""
else:
    from django_txtasks.core.enqueueing import (  # noqa: F401
        aenqueue_many,
        aenqueue_task,
        enqueue_many,
        enqueue_task,
    )

CANCELLED_TOGETHER = 500
"""Number of tasks that ``cancel_tasks`` cancels in one statement."""


class TaskHandle(CoreHandle):
    """A reference to an enqueued task, whose row is in the table once the transaction has committed.

    Attributes:
        queue_name: the queue of this call. If an earlier call had the same key of ``once``, its queue may differ.
        is_new: False: an earlier call had the same key of ``once``, and this is the handle of its task.
    """

    __slots__ = ()

    def cancel(self) -> CancelResult:
        """Cancel the task, in the current transaction; see ``cancel_task``."""
        return cancel_task(self.id, using=self.using)

    def status(self) -> str:
        """Return the task's status, as this connection sees it now; see ``status_of``."""
        return status_of(self.id, using=self.using)

    def progress(self) -> Progress | None:
        """Return the latest report of ``ctx.progress()``; None: the task does not run, or has reported nothing."""
        from django_txtasks.features.progress.rows import progress_of

        return progress_of(self.using, self.id)

    def result(self, timeout: timedelta | float | None = None) -> Any:
        """Wait until the task has succeeded, and return the value of its function.

        The call looks for the end every 2 ms at first, and then at growing intervals, up to 0.25 s.

        Args:
            timeout: the longest wait, as timedelta or seconds; None: no limit.

        Raises:
            TaskFailed: the task is dead, or was cancelled, discarded or expired.
            ResultTimeout: the task has not ended in time. It continues.
            ResultUnavailable: called in a transaction or in a task; or finished tasks are not kept; or the task
                has no row.
        """
        return polling.result_of(self.using, self.id, _seconds(timeout))

    async def aresult(self, timeout: timedelta | float | None = None) -> Any:
        """Like ``result``, from async code. Any number of concurrent waits share one statement."""
        return await polling.aresult_of(self.using, self.id, _seconds(timeout))

    async def astatus(self) -> str:
        """Like ``status``, from async code."""
        return await sync_to_async(self.status, thread_sensitive=True)()

    async def aprogress(self) -> Progress | None:
        """Like ``progress``, from async code."""
        return await sync_to_async(self.progress, thread_sensitive=True)()

    async def acancel(self) -> CancelResult:
        """Like ``cancel``, from async code."""
        return await sync_to_async(self.cancel, thread_sensitive=True)()


def get_handle(task_id: uuid.UUID | str, *, using: str = "default") -> TaskHandle:
    """Return the handle of a task by its id, for example in another process.

    Args:
        task_id: the id of a ``TaskHandle``.
        using: alias of the database that has the task.

    Raises:
        InvalidArguments: not an id.
        ResultUnavailable: this connection sees no row of the task: it was rolled back, or is not kept any longer.
    """
    from django_txtasks.models import FinishedTask, Task

    wanted = _id_of(task_id, "get_handle()")
    for model in (Task, FinishedTask):
        rows = model._default_manager.using(using).filter(pk=wanted)
        if found := rows.values_list("task_name", "queue_name").first():
            return TaskHandle(wanted, found[0], found[1], using)
    raise polling.no_row(wanted)


async def aget_handle(task_id: uuid.UUID | str, *, using: str = "default") -> TaskHandle:
    """Like ``get_handle``, from async code."""
    return await sync_to_async(get_handle, thread_sensitive=True)(task_id, using=using)


def _seconds(timeout: Any) -> float | None:
    if isinstance(timeout, timedelta):
        return timeout.total_seconds()
    if timeout is None:
        return None
    if type(timeout) in (int, float) and not math.isnan(timeout):
        return float(timeout)
    raise InvalidOption(
        f"result(timeout={timeout!r}): use seconds (a number), a timedelta, or None."
    )


def status_of(task_id: uuid.UUID | str, *, using: str = "default") -> str:
    """Return the status of a task. A task that was merged has the status of the task that runs instead.

    Args:
        task_id: the id of a ``TaskHandle``.
        using: alias of the database that has the task.

    Returns:
        ``pending``, ``claimed``, ``dead`` or ``held`` for a live task; ``succeeded``, ``cancelled``,
        ``discarded`` or ``expired`` for a finished task; ``gone`` for a task without a row: it was rolled back,
        or it has finished and is not kept.

    Raises:
        InvalidArguments: not an id.
    """
    from django_txtasks.features.results.task_states import state_of

    return state_of(using, _id_of(task_id, "status_of()"))


async def astatus_of(task_id: uuid.UUID | str, *, using: str = "default") -> str:
    """Like ``status_of``, from async code."""
    return await sync_to_async(status_of, thread_sensitive=True)(task_id, using=using)


def _id_of(task_id: Any, where: str) -> uuid.UUID:
    try:
        return task_id if isinstance(task_id, uuid.UUID) else uuid.UUID(task_id)
    except (ValueError, AttributeError, TypeError):
        raise InvalidArguments(
            f"{where} got {task_id!r}; pass the id of a TaskHandle, or ask the handle itself."
        ) from None


def cancel_task(task_id: uuid.UUID | str, *, using: str = "default") -> CancelResult:
    """Cancel a task in the current transaction, or in its own transaction if none is open.

    A pending or held task never runs. A running attempt is asked to stop: the function learns of it at
    ``ctx.check()`` and ``ctx.cancelled``, an async function gets ``CancelledError``, and an ``interruptible``
    function gets ``TaskCancelled`` at any line. No other attempt starts. If the attempt still finishes, the task
    has succeeded.

    This call waits for a worker that is claiming the task. A worker that is ending the task waits for this
    transaction.

    Args:
        task_id: the id of a ``TaskHandle``.
        using: alias of the database that has the task.

    Returns:
        ``CANCELLED``: the task never starts. ``ASKED``: a worker has claimed it. ``TOO_LATE``: it has finished, is
        dead, or has no row.

    Raises:
        InvalidArguments: not an id.
    """
    from django_txtasks.features.results.cancelling import cancel

    wanted = _id_of(task_id, "cancel_task()")
    results, follow_ups = cancel(using, [wanted], keep=get_config().keeps("cancelled"))
    notify_on_commit(using, follow_ups)
    return results[wanted]


async def acancel_task(task_id: uuid.UUID | str, *, using: str = "default") -> CancelResult:
    """Like ``cancel_task``, from async code."""
    return await sync_to_async(cancel_task, thread_sensitive=True)(task_id, using=using)


def cancel_tasks(
    function: Enqueueable[Any], /, *, unique_key: str
) -> dict[uuid.UUID, CancelResult]:
    """Cancel all tasks of a unique key in the current transaction, each like ``cancel_task``.

    Args:
        function: the task function, with ``using()`` if the tasks have another queue, lane or database.
        unique_key: the key's text.

    Returns:
        The result for each task, by id, without tasks of transactions that have not committed.

    Raises:
        NotATask, InvalidOption: before any SQL.
    """
    from django_txtasks.features.results.cancelling import cancel, of_key

    bound = bind(function)
    if not isinstance(unique_key, str):
        raise InvalidOption(f"unique_key={unique_key!r} is no text.")
    defaults = with_texts(bound, {"lane": _static_lane(bound), "unique_key": unique_key}).defaults
    ids = of_key(bound.alias, str(defaults.unique_key), defaults.task_name, defaults.queue_name)
    keep, results = get_config().keeps("cancelled"), {}
    with transaction.atomic(using=bound.alias):
        for start in range(0, len(ids), CANCELLED_TOGETHER):
            some = ids[start : start + CANCELLED_TOGETHER]
            those, follow_ups = cancel(bound.alias, some, keep=keep)
            results.update(those)
            notify_on_commit(bound.alias, follow_ups)
    return results


def _static_lane(bound: BoundFunction) -> str:
    """Return the lane of a function whose lane is text; "" for no lane.

    Raises:
        InvalidOption: the lane depends on the arguments.
    """
    lane = bound.values.get("lane")
    if lane is None or isinstance(lane, str):
        return lane or ""
    raise InvalidOption(
        f"The lane of {bound.declaration.name} depends on the arguments. Say which one: "
        f"{bound.declaration.function.__name__}.using(lane='…')."
    )


async def acancel_tasks(
    function: Enqueueable[Any], /, *, unique_key: str
) -> dict[uuid.UUID, CancelResult]:
    """Like ``cancel_tasks``, from async code."""
    return await sync_to_async(cancel_tasks, thread_sensitive=True)(function, unique_key=unique_key)
