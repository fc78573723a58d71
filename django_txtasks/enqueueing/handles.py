"""The handle of an enqueued task: how it stands, what came of it, and its cancel."""

from __future__ import annotations

import math
import uuid
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol

from asgiref.sync import sync_to_async
from django.db import transaction

from django_txtasks.conf import get_config
from django_txtasks.declarations import foreign
from django_txtasks.enqueueing.calls import bind, static_lane, with_texts
from django_txtasks.enqueueing.commit_hints import notify_on_commit
from django_txtasks.exceptions import InvalidArguments, InvalidOption
from django_txtasks.results import waiting

if TYPE_CHECKING:
    from django_txtasks.progress import Progress
    from django_txtasks.results.cancelling import CancelResult

P = ParamSpec("P")

CANCELLED_TOGETHER = 500
"""Tasks that one statement of ``cancel_tasks`` takes."""


class Enqueueable(Protocol[P]):
    """A task function, or a task of Django's ``@task`` on this package's backend."""

    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> Any: ...


@dataclass(frozen=True, slots=True)
class TaskHandle:
    """A reference to an enqueued task: its id is in the table once the transaction commits.

    Attributes:
        queue_name: of this request; the first one under a key of ``once`` may have asked for another one.
        is_new: False = it was enqueued before, under the same key of ``once``.
    """

    id: uuid.UUID
    task_name: str
    queue_name: str
    using: str
    is_new: bool = True

    if not TYPE_CHECKING:  # to type checkers, it would have any attribute

        def __getattr__(self, name: str) -> Any:
            raise foreign.no_attribute_of_handle(self, name)

    def cancel(self) -> CancelResult:
        """Cancel the task, in the current transaction; see ``cancel_task``."""
        return cancel_task(self.id, using=self.using)

    def status(self) -> str:
        """Return what has become of the task, as this connection sees it now; see ``status_of``."""
        return status_of(self.id, using=self.using)

    def progress(self) -> Progress | None:
        """Return what the task has said last by ``ctx.progress()``; None = it does not run, or said nothing."""
        from django_txtasks.lifecycle.workers import progress_of

        return progress_of(self.using, self.id)

    def result(self, timeout: timedelta | float | None = None) -> Any:
        """Wait until the task has succeeded, and return what its function returned.

        It looks for the end: each 2 ms at first, then at longer intervals, up to 0.25 s.

        Args:
            timeout: the longest wait, as timedelta or seconds; None = for ever.

        Raises:
            TaskFailed: it is dead, or was cancelled, discarded, or expired.
            ResultTimeout: it has not ended in time. It goes on.
            ResultUnavailable: in a transaction, in a task, where finished tasks are not kept, or if it has no row.
        """
        return waiting.result_of(self.using, self.id, _seconds(timeout))

    async def aresult(self, timeout: timedelta | float | None = None) -> Any:
        """Like ``result``, from async code: any number of them at a time cost one statement."""
        return await waiting.aresult_of(self.using, self.id, _seconds(timeout))

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
    """Return the handle of a task that was enqueued elsewhere, or before.

    Args:
        task_id: that of a ``TaskHandle``.
        using: the database alias in which the task is.

    Raises:
        InvalidArguments: that is no id.
        ResultUnavailable: the task has no row, as this connection sees it: rolled back, or not kept any more.
    """
    from django_txtasks.models import FinishedTask, Task

    wanted = _id_of(task_id, "get_handle()")
    for model in (Task, FinishedTask):
        rows = model._default_manager.using(using).filter(pk=wanted)
        if found := rows.values_list("task_name", "queue_name").first():
            return TaskHandle(wanted, found[0], found[1], using)
    raise waiting.no_row(wanted)


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
    """Return the state or the outcome of a task; of one that was merged, those of the task that runs instead.

    Args:
        task_id: that of a ``TaskHandle``.
        using: the database alias in which the task is.

    Returns:
        ``pending``, ``claimed``, ``dead`` or ``held``; ``succeeded``, ``cancelled``, ``discarded`` or ``expired``;
        or ``gone``: it has no row (any more), since it was rolled back, or has finished and is not kept.

    Raises:
        InvalidArguments: that is no id.
    """
    from django_txtasks.results.standing import state_of

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
    """Cancel a task in the current transaction, or in one of its own if there is none.

    What waits, or is held, never runs. An attempt that runs goes on, and was asked to stop: it sees that at
    ``ctx.check()`` and ``ctx.cancelled``, an async one gets ``CancelledError``, and one that is declared
    ``interruptible`` gets ``TaskCancelled`` wherever it is. However it ends, no other attempt starts; if it
    finishes all the same, the task has succeeded.

    It waits for a worker that is about to claim the task, and a worker that ends it waits for this transaction.

    Args:
        task_id: that of a ``TaskHandle``.
        using: the database alias in which the task is.

    Returns:
        ``CANCELLED``: it never starts. ``ASKED``: a worker has it. ``TOO_LATE``: it has finished, is dead, or is
        not there.

    Raises:
        InvalidArguments: that is no id.
    """
    from django_txtasks.results.cancelling import cancel

    wanted = _id_of(task_id, "cancel_task()")
    results, follow_ups = cancel(using, [wanted], keep=get_config().keeps_finished)
    notify_on_commit(using, follow_ups)
    return results[wanted]


async def acancel_task(task_id: uuid.UUID | str, *, using: str = "default") -> CancelResult:
    """Like ``cancel_task``, from async code."""
    return await sync_to_async(cancel_task, thread_sensitive=True)(task_id, using=using)


def cancel_tasks(
    function: Enqueueable[Any], /, *, unique_key: str
) -> dict[uuid.UUID, CancelResult]:
    """Cancel all tasks of a unique key, in the current transaction, each as ``cancel_task`` does.

    Args:
        function: the task function; one with ``using()`` where its queue, lane or database is another one.
        unique_key: the key's text.

    Returns:
        What came of each, by its id. One that was enqueued by a transaction that is still open is not among them.

    Raises:
        NotATask, InvalidOption: before any SQL.
    """
    from django_txtasks.results.cancelling import cancel, of_key

    bound = bind(function)
    if not isinstance(unique_key, str):
        raise InvalidOption(f"unique_key={unique_key!r} is no text.")
    defaults = with_texts(bound, static_lane(bound), unique_key).defaults
    ids = of_key(bound.alias, str(defaults.unique_key), defaults.task_name, defaults.queue_name)
    keep, results = get_config().keeps_finished, {}
    with transaction.atomic(using=bound.alias):
        for start in range(0, len(ids), CANCELLED_TOGETHER):
            some = ids[start : start + CANCELLED_TOGETHER]
            those, follow_ups = cancel(bound.alias, some, keep=keep)
            results.update(those)
            notify_on_commit(bound.alias, follow_ups)
    return results


async def acancel_tasks(
    function: Enqueueable[Any], /, *, unique_key: str
) -> dict[uuid.UUID, CancelResult]:
    """Like ``cancel_tasks``, from async code."""
    return await sync_to_async(cancel_tasks, thread_sensitive=True)(function, unique_key=unique_key)
