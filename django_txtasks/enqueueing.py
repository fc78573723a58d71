"""enqueue_task(): validate, write the row in the caller's transaction, notify after its commit."""

from __future__ import annotations

import sys
import uuid
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta, timezone
from types import FrameType
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, TypeVar

from asgiref.sync import sync_to_async
from django.db import connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper

from django_txtasks import hints, open_batches, signals
from django_txtasks.calls import (
    Call,
    bind,
    read_call,
    to_row,
    to_rows,
)
from django_txtasks.conf import Config, get_config
from django_txtasks.exceptions import InvalidArguments, InvalidOption
from django_txtasks.lifecycle import once
from django_txtasks.lifecycle.enqueueing import (
    NewTask,
    Times,
    insert,
    insert_and_read,
    insert_as_made,
)
from django_txtasks.lifecycle.once import OnceKey
from django_txtasks.per_call import BoundFunction, of_call, static_lane, with_texts

if TYPE_CHECKING:
    from django_txtasks.lifecycle.cancelling import CancelResult

P = ParamSpec("P")
T = TypeVar("T")

NEAR = timedelta(seconds=10)
"""Hints go out for what is due within this time; a worker sets a timer for the rest of it."""


CANCELLED_TOGETHER = 500
"""Tasks that one statement of ``cancel_tasks`` takes."""


class NotTransactionalWarning(UserWarning):
    """The task is written, but not in the transaction that its caller seems to mean."""


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

    def cancel(self) -> CancelResult:
        """Cancel the task, in the current transaction; see ``cancel_task``."""
        return cancel_task(self.id, using=self.using)

    def status(self) -> str:
        """Return what has become of the task, as this connection sees it now; see ``status_of``."""
        return status_of(self.id, using=self.using)

    async def acancel(self) -> CancelResult:
        """Like ``cancel``, from async code."""
        return await sync_to_async(self.cancel, thread_sensitive=True)()


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
    from django_txtasks.lifecycle.standing import state_of

    return state_of(using, _id_of(task_id, "status_of()"))


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
    from django_txtasks.lifecycle.cancelling import cancel

    wanted = _id_of(task_id, "cancel_task()")
    results, follow_ups = cancel(using, [wanted], keep=get_config().keeps_finished)
    notify_on_commit(using, follow_ups)
    return results[wanted]


class Enqueueable(Protocol[P]):
    """A task function, or a task of Django's ``@task`` on this package's backend."""

    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> Any: ...


def enqueue_task(function: Enqueueable[P], /, *args: P.args, **kwargs: P.kwargs) -> TaskHandle:
    """Write a task in the current transaction, or in one of its own if there is none.

    It runs some time after the transaction has committed, and never if it rolls back.

    Args:
        function: declared with ``@task``, possibly changed by its ``using()``.
        args, kwargs: its arguments: None, bool, int, float, str, list, tuple, dict.

    Raises:
        NotATask, InvalidArguments, UnknownQueue, InvalidOption: before any SQL; the caller's
            transaction stays usable.
    """
    return _enqueue(function, args, kwargs, _insert_one)[0]


def enqueue_and_read(
    function: Enqueueable[P], /, *args: P.args, **kwargs: P.kwargs
) -> tuple[TaskHandle, Times | None]:
    """Enqueue as ``enqueue_task`` does, and return the row's times too, for results of Django's Tasks.

    There are none where the task was enqueued before, under the same key of ``once``.
    """
    return _enqueue(function, args, kwargs, insert_and_read)


def enqueue_many(calls: Iterable[Sequence[Any]]) -> list[TaskHandle]:
    """Write many tasks in few statements: all of them or, if anything is wrong, none.

    Those of several databases (``using``) are written in a transaction of each. These commit one after the other:
    if a COMMIT fails, tasks of the databases before it are there, as with any two transactions.

    On PostgreSQL many are written by COPY, in the same transaction. Django's execute wrappers do not see
    that; its log of queries does.

    Args:
        calls: ``(function, args)`` or ``(function, args, kwargs)`` each.

    Returns:
        The handles, in the order of the calls.

    Raises:
        As ``enqueue_task``; what was written before is rolled back to a savepoint.
    """
    bound_functions: dict[int, tuple[Any, BoundFunction]] = {}
    # All first: this may use the database.
    wanted = [read_call(call, bound_functions) for call in calls]
    parts = {
        alias: [one for one in wanted if one[0].alias == alias]
        for alias in sorted({bound.alias for _, bound in bound_functions.values()})
    }
    if open_batches.is_any():
        parts = {alias: _in_batch(alias, part) for alias, part in parts.items()}
    for alias in parts:
        warn_if_apart(alias)
    with ExitStack() as stack:
        for alias in parts:
            stack.enter_context(transaction.atomic(using=alias))
        written = {alias: _insert_many(alias, part) for alias, part in parts.items()}
    for alias, part in parts.items():
        _tell(alias, written[alias], [bound for bound, _, _ in part])
    in_order = {alias: iter(handles) for alias, handles in written.items()}
    return [next(in_order[bound.alias]) for bound, _, _ in wanted]


async def aenqueue_task(
    function: Enqueueable[P], /, *args: P.args, **kwargs: P.kwargs
) -> TaskHandle:
    """Like ``enqueue_task``, from async code.

    Django has no transactions in async code: to enqueue together with other writes, put both
    into one sync function with ``transaction.atomic()`` and call that by ``sync_to_async``.
    """
    return await sync_to_async(enqueue_task, thread_sensitive=True)(function, *args, **kwargs)


def notify_on_commit(alias: str, tasks: Iterable[tuple[uuid.UUID, str]]) -> None:
    """Have hints of (id, queue) pairs sent when the current transaction commits.

    One hook per alias and savepoint stack, which holds its ids itself: a savepoint that is
    rolled back takes its own along, and nothing outlives the transaction.
    """
    connection, config = connections[alias], get_config()
    if not hints.can_notify(config, connection.vendor):
        return
    if not connection.in_atomic_block and not connection.get_autocommit():
        return  # the end of a transaction by hand is not told to anybody; workers scan
    hook = _open_hook(connection)
    if hook is not None:
        hook.add(tasks)
        return
    hook = _CommitHook(alias, config)
    hook.add(tasks)
    if hook.tasks:
        connection.on_commit(hook, robust=True)


@dataclass
class _CommitHook:
    """Runs after the commit, in the request's thread: a buffer append, no wait, no error.

    Attributes:
        tasks: (id, queue) of those to notify workers about: of each queue one more than hints will name, at most.
        numbers: how many of them are of which queue.
    """

    alias: str
    config: Config
    tasks: list[tuple[uuid.UUID, str]] = field(default_factory=list)
    numbers: dict[str, int] = field(default_factory=dict)
    __qualname__ = "django_txtasks hints"  # Django's log of a failed hook names it

    def add(self, tasks: Iterable[tuple[uuid.UUID, str]]) -> None:
        """Keep what hints will name; the first one beyond them says that there are more."""
        for task in tasks:
            number = self.numbers.get(task[1], 0)
            if number <= hints.MOST_IDS:
                self.numbers[task[1]] = number + 1
                self.tasks.append(task)

    def __call__(self) -> None:
        hints.notify(self.config, self.alias, self.tasks)


def _open_hook(connection: BaseDatabaseWrapper) -> _CommitHook | None:
    """Return this transaction's hook, if it was registered in the same savepoints."""
    if not connection.run_on_commit:
        return None
    savepoints = set(connection.savepoint_ids)
    for sids, hook, *_ in reversed(connection.run_on_commit[-50:]):
        if isinstance(hook, _CommitHook) and sids == savepoints:
            return hook
    return None


def _enqueue(
    function: Any,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    write: Callable[[BaseDatabaseWrapper, NewTask], T],
) -> tuple[TaskHandle, T | None]:
    """Validate a call, write its row, and have it told; return what ``write`` did, too.

    Where its key of ``once`` is another task's, nothing is written, and ``write`` is not called.
    """
    bound = of_call(bind(function), args, kwargs)
    if open_batches.is_any():
        ((bound, *_),) = _in_batch(bound.alias, [(bound, args, kwargs)])
    task = to_row((bound, args, kwargs))
    warn_if_apart(bound.alias)
    if bound.once_key is not None:
        return _enqueue_once(bound, bound.once_key, task, write)
    written = write(connections[bound.alias], task)
    handle = _handle(bound, task)
    _tell(bound.alias, [handle], [bound])
    return handle, written


def _in_batch(alias: str, wanted: Sequence[Call]) -> list[Call]:
    """Return these calls as members of the batch that is open here, if one is.

    Raises:
        InvalidOption: it is one of another database.
    """
    batch = open_batches.batch_at(alias)
    if batch is None:
        return list(wanted)
    known: dict[int, BoundFunction] = {}
    members = []
    for bound, args, kwargs in wanted:
        if id(bound) not in known:
            defaults = bound.defaults._replace(batch=batch.hex)
            known[id(bound)] = bound._replace(defaults=defaults)
        members.append((known[id(bound)], args, kwargs))
    return members


def _enqueue_once(
    bound: BoundFunction,
    key: OnceKey,
    task: NewTask,
    write: Callable[[BaseDatabaseWrapper, NewTask], T],
) -> tuple[TaskHandle, T | None]:
    handle = _handle(bound, task)
    with transaction.atomic(using=bound.alias, savepoint=False):
        winner = once.take(bound.alias, [(key, task.task_id)])[key.digest]
        if winner != task.task_id:
            return replace(handle, id=winner, is_new=False), None
        written = write(connections[bound.alias], task)
    _tell(bound.alias, [handle], [bound])
    return handle, written


def _insert_one(connection: BaseDatabaseWrapper, task: NewTask) -> None:
    insert(connection, [task])


def _insert_many(alias: str, wanted: Sequence[Call]) -> list[TaskHandle]:
    """Write these calls, and return their handles."""
    if any(bound.once_key is not None for bound, _, _ in wanted):
        return _insert_once(alias, wanted)
    handles = []

    def noted() -> Iterator[NewTask]:
        for (bound, _, _), task in zip(wanted, to_rows(wanted), strict=True):
            handles.append(_handle(bound, task))
            yield task

    insert_as_made(connections[alias], [bound.defaults for bound, _, _ in wanted], noted())
    return handles


def _insert_once(alias: str, wanted: Sequence[Call]) -> list[TaskHandle]:
    """Write those of these calls whose keys are their own, and return a handle for each call."""
    made = list(zip([bound for bound, _, _ in wanted], to_rows(wanted), strict=True))
    keys = [(bound.once_key, task.task_id) for bound, task in made if bound.once_key is not None]
    taken = once.take(alias, keys)
    handles, rows = [], []
    for bound, task in made:
        handle, key = _handle(bound, task), bound.once_key
        if key is not None and taken[key.digest] != task.task_id:
            handle = replace(handle, id=taken[key.digest], is_new=False)
        else:
            rows.append(task)
        handles.append(handle)
    if rows:
        insert(connections[alias], rows)
    return handles


def _tell(
    alias: str, handles: Sequence[TaskHandle], bound_functions: Sequence[BoundFunction]
) -> None:
    """Have the hints sent after the commit, and tell who listens."""
    notify_on_commit(
        alias,
        (
            (handle.id, handle.queue_name)
            for handle, bound in zip(handles, bound_functions, strict=True)
            if handle.is_new
            and (bound.defaults.run_after is None or _is_near(bound.defaults.run_after))
        ),
    )
    if signals.task_enqueued.has_observers:
        for handle in [one for one in handles if one.is_new]:
            signals.task_enqueued.emit(
                task_id=handle.id, task=handle.task_name, queue=handle.queue_name
            )


def _handle(bound: BoundFunction, task: NewTask) -> TaskHandle:
    return TaskHandle(
        task.task_id, bound.defaults.task_name, bound.defaults.queue_name, bound.alias
    )


def _is_near(run_after: datetime | timedelta) -> bool:
    if isinstance(run_after, datetime):
        run_after = run_after - datetime.now(timezone.utc)
    return run_after <= NEAR


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
    from django_txtasks.lifecycle.cancelling import cancel, of_key

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


def warn_if_apart(alias: str) -> None:
    """Say so when the task is not atomic with what its caller has just written."""
    other = _other_in_transaction(alias) if len(connections.settings) > 1 else None
    if connections[alias].in_atomic_block:
        if other is not None:
            _warn(
                f"A task is enqueued in a transaction of the database {alias!r}, while {other!r} has one open, "
                "too: they commit one after the other, and one of these commits may fail. If the task belongs to "
                f"what is written to {other!r}, use using={other!r}."
            )
    elif other is not None:
        _warn(
            f"A task is enqueued on the database {alias!r} outside its transactions, while {other!r} has "
            f"one open: it runs even if that rolls back. Use using={other!r}, or open atomic() on {alias!r}."
        )
    elif _in_commit_hook():
        _warn(
            "A task is enqueued from an on_commit hook: if the process dies before the hook, the task is lost. "
            "Enqueue inside the transaction instead; workers see it only after the commit anyway."
        )


def _other_in_transaction(alias: str) -> str | None:
    """Return another database that has a transaction open, not counting those that a TestCase has around all."""
    for other in connections.all(initialized_only=True):
        blocks: list[Any] = other.atomic_blocks
        if other.alias != alias and any(not block._from_testcase for block in blocks):
            return other.alias
    return None


def _warn(message: str) -> None:
    """Warn whoever called this package, be it through ``enqueue()`` or not."""
    frame, level = sys._getframe(), 1
    while frame.f_back and frame.f_globals["__name__"].startswith(f"{__package__}."):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, NotTransactionalWarning, stacklevel=level)


def _in_commit_hook() -> bool:
    frame: FrameType | None = sys._getframe(1)
    for _ in range(40):
        if frame is None:
            return False
        if frame.f_code.co_name == "run_and_clear_commit_hooks":
            return True
        frame = frame.f_back
    return False
