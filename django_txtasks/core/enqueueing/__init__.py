"""enqueue_task(): validate, write the row in the caller's transaction, notify after its commit."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from types import FrameType
from typing import Any, ParamSpec, TypeAlias, TypeVar

from asgiref.sync import sync_to_async
from django.core.exceptions import SynchronousOnlyOperation
from django.db import DatabaseError, connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper

from django_txtasks import signals
from django_txtasks.core.declaring.registry import hint_queue
from django_txtasks.core.enqueueing import parts
from django_txtasks.core.enqueueing.calls import (
    BoundFunction,
    Call,
    bind,
    of_call,
    read_call,
    to_row,
    to_rows,
)
from django_txtasks.core.enqueueing.commit_hints import notify_on_commit
from django_txtasks.core.enqueueing.handles import HANDLE, CoreHandle, Enqueueable
from django_txtasks.core.enqueueing.parts import Moment
from django_txtasks.core.rows.enqueueing import (
    Edge,
    NewTask,
    RowDefaults,
    Times,
    insert_and_read,
    insert_as_made,
)
from django_txtasks.database.errors import add_remedy
from django_txtasks.database.transactions import repeated

P = ParamSpec("P")
T = TypeVar("T")
Write: TypeAlias = Callable[[BaseDatabaseWrapper, Sequence[RowDefaults], Iterable[NewTask]], T]
"""Writes rows. It gets the defaults of all rows before the first row."""

NEAR = timedelta(seconds=10)
"""Hints are sent for tasks that are due within this time; the worker sets a timer for the remaining time."""


class NotTransactionalWarning(UserWarning):
    """The task is written, but probably not in the transaction that the caller means."""


def enqueue_task(function: Enqueueable[P], /, *args: P.args, **kwargs: P.kwargs) -> CoreHandle:
    """Write a task in the current transaction, or in its own transaction if none is open.

    The task runs after the transaction has committed. If the transaction rolls back, the task never runs.

    Args:
        function: a function declared with ``@task``, or the result of its ``using()``.
        args, kwargs: the function's arguments: None, bool, int, float, str, list, tuple, dict.

    Raises:
        NotATask, InvalidArguments, UnknownQueue, InvalidOption: before any SQL, so the caller's transaction stays
            usable.
    """
    return _enqueue(function, args, kwargs, insert_as_made)[0]


def enqueue_and_read(
    function: Enqueueable[P], /, *args: P.args, **kwargs: P.kwargs
) -> tuple[CoreHandle, Times | None]:
    """Enqueue like ``enqueue_task``, and return the row's times, too, for results of Django's Tasks.

    The times are None if an earlier task has the same key of ``once``.
    """
    return _enqueue(function, args, kwargs, _insert_and_read)


def enqueue_many(calls: Iterable[Sequence[Any]]) -> list[CoreHandle]:
    """Write many tasks in few statements: all of them or, after any error, no task.

    Tasks for several databases (``using``) are written in one transaction for each database. These transactions
    commit one after the other: if a COMMIT fails, the tasks of earlier databases are committed already.

    On PostgreSQL, 20 tasks or more are written by COPY, in the same transaction. Django's execute wrappers do not
    see COPY, but its query log does.

    Args:
        calls: tuples ``(function, args)`` or ``(function, args, kwargs)``.

    Returns:
        The handles, in the order of the calls.

    Raises:
        As ``enqueue_task``; rows that are already written are rolled back to a savepoint.
    """
    bound_functions: dict[int, tuple[Any, BoundFunction]] = {}
    # Read all calls before the first statement, because the iterable may itself use the database.
    wanted = [read_call(call, bound_functions) for call in calls]
    try:
        return _enqueue_all(wanted, insert_as_made, savepoint=True)[0]
    except (DatabaseError, SynchronousOnlyOperation) as error:
        add_remedy(error)
        raise


async def aenqueue_task(
    function: Enqueueable[P], /, *args: P.args, **kwargs: P.kwargs
) -> CoreHandle:
    """Like ``enqueue_task``, from async code.

    Django has no transactions in async code. To enqueue in the same transaction as other writes, put both into one
    sync function with ``transaction.atomic()``, and call it by ``sync_to_async``.
    """
    return await sync_to_async(enqueue_task, thread_sensitive=True)(function, *args, **kwargs)


async def aenqueue_many(calls: Iterable[Sequence[Any]]) -> list[CoreHandle]:
    """Like ``enqueue_many``, from async code."""
    return await sync_to_async(enqueue_many, thread_sensitive=True)(calls)


def _enqueue(
    function: Any, args: Sequence[Any], kwargs: Mapping[str, Any], write: Write[T]
) -> tuple[CoreHandle, T | None]:
    """Validate a call, write its row and send its hint after the commit; return the result of ``write``, too.

    If another task takes its place, ``write`` is not called.
    """
    bound = of_call(bind(function), args, kwargs)
    call = (bound, args, kwargs)
    try:
        if bound.parts or parts.is_surrounded():
            (handle,), results = _enqueue_all([call], write, savepoint=False)
            return handle, results.get(bound.alias)
        task = to_row(call)
        parts.check_database(bound.alias)
        warn_if_apart(bound.alias)
        result = write(connections[bound.alias], [bound.defaults], [task])
    except (DatabaseError, SynchronousOnlyOperation) as error:
        add_remedy(error)
        raise
    handle = _handle(bound, task)
    _tell(bound.alias, [handle], [bound])
    return handle, result


def _enqueue_all(
    calls: Sequence[Call], write: Write[T], *, savepoint: bool
) -> tuple[list[CoreHandle], dict[str, T]]:
    """Write calls while each moment that is on surrounds them; see ``_write_all``."""
    begun: list[tuple[Moment, Any]] = []
    handles: list[CoreHandle] = []
    failed: BaseException | None = None
    try:
        for moment in parts.parts().moments:
            if moment.is_on():
                calls, kept = moment.begin(calls)
                begun.append((moment, kept))
        handles, written = _write_all(calls, write, savepoint=savepoint)
    except BaseException as error:
        failed = error
        raise
    finally:
        new = tuple(one for one in handles if one.is_new)
        for moment, kept in reversed(begun):
            moment.end(kept, new, failed)
    return handles, written


def _write_all(
    calls: Sequence[Call], write: Write[T], *, savepoint: bool
) -> tuple[list[CoreHandle], dict[str, T]]:
    """Write calls, in one transaction for each database unless it is one row alone.

    Returns:
        The handles, in the order of the calls, and the result of ``write`` for each database with a new row.
    """
    by_alias = _by_alias(calls)
    for alias in by_alias:
        parts.check_database(alias)
        warn_if_apart(alias)

    needs_atomic = savepoint or any(bound.parts for bound, _, _ in calls)

    def write_each() -> dict[str, tuple[list[CoreHandle], T | None]]:
        with ExitStack() as stack:
            for alias in by_alias if needs_atomic else ():
                stack.enter_context(transaction.atomic(using=alias, savepoint=savepoint))
            return {alias: _write(alias, some, write) for alias, some in by_alias.items()}

    only = next(iter(by_alias)) if len(by_alias) == 1 else None
    # No repeat with several databases: some may have committed before the error of another.
    done = write_each() if only is None else repeated(only, write_each, after_lock_timeouts=False)
    for alias, some in by_alias.items():
        _tell(alias, done[alias][0], [bound for bound, _, _ in some])
    in_order = {alias: iter(handles) for alias, (handles, _) in done.items()}
    results = {alias: result for alias, (_, result) in done.items() if result is not None}
    return [next(in_order[bound.alias]) for bound, _, _ in calls], results


def _by_alias(calls: Sequence[Call]) -> dict[str, list[Call]]:
    """Return the calls of each database, the databases in the order of their aliases."""
    found: dict[str, list[Call]] = {}
    for call in calls:
        found.setdefault(call[0].alias, []).append(call)
    return dict(sorted(found.items())) if len(found) > 1 else found


def _write(alias: str, calls: Sequence[Call], write: Write[T]) -> tuple[list[CoreHandle], T | None]:
    """Write the rows of calls of one database, and what their parts add to them."""
    of_functions = dict.fromkeys([one[0].parts for one in calls])
    taking_part = dict.fromkeys(part for some in of_functions for part in some)
    connection = connections[alias]
    if not taking_part:  # rows are written while the next ones are made
        handles: list[CoreHandle] = []
        return handles, write(
            connection, [one[0].defaults for one in calls], _noted(calls, handles)
        )
    made = list(zip([bound for bound, _, _ in calls], to_rows(calls), strict=True))
    owners = {
        task: owner for part in taking_part for task, owner in part.owners(alias, made).items()
    }
    new = [one for one in made if one[1].task_id not in owners]
    result = None
    if new:
        result = write(connection, [bound.defaults for bound, _ in new], [task for _, task in new])
        for part in taking_part:
            part.written(alias, new)
    handles = [_handle(bound, task) for bound, task in made]
    return [
        replace(one, id=owners[one.id], is_new=False) if one.id in owners else one
        for one in handles
    ], result


def _noted(calls: Sequence[Call], handles: list[CoreHandle]) -> Iterator[NewTask]:
    """Yield the rows of calls, and append their handles."""
    for (bound, _, _), task in zip(calls, to_rows(calls), strict=True):
        handles.append(_handle(bound, task))
        yield task


def _insert_and_read(
    connection: BaseDatabaseWrapper, _: Sequence[RowDefaults], tasks: Iterable[NewTask]
) -> Times:
    (task,) = tasks
    return insert_and_read(connection, task)


def _tell(
    alias: str, handles: Sequence[CoreHandle], bound_functions: Sequence[BoundFunction]
) -> None:
    """Send hints after the commit, and the signal ``task_enqueued`` if it has receivers."""
    notify_on_commit(
        alias,
        [
            (handle.id, hint_queue(handle.task_name, handle.queue_name))
            for handle, bound in zip(handles, bound_functions, strict=True)
            if handle.is_new
            and (bound.defaults.run_after is None or is_near(bound.defaults.run_after))
        ],
    )
    if signals.task_enqueued.has_observers:
        for handle in [one for one in handles if one.is_new]:
            signals.task_enqueued.emit(
                task_id=handle.id, task=handle.task_name, queue=handle.queue_name
            )


def _handle(bound: BoundFunction, task: NewTask) -> CoreHandle:
    return HANDLE.whole(
        task.task_id, bound.defaults.task_name, bound.defaults.queue_name, bound.alias
    )


def is_near(run_after: datetime | timedelta | Edge) -> bool:
    """Return True if a task of this time is due so soon that a hint is worth sending."""
    if isinstance(run_after, Edge):
        run_after = run_after.after(datetime.now(timezone.utc))
    if isinstance(run_after, datetime):
        run_after = run_after - datetime.now(timezone.utc)
    return run_after <= NEAR


def warn_if_apart(alias: str) -> None:
    """Warn if the task is probably not in the same transaction as the caller's other writes."""
    other = _other_in_transaction(alias) if len(connections.settings) > 1 else None
    if connections[alias].in_atomic_block:
        if other is not None:
            warn_caller(
                f"A task is enqueued in a transaction of the database {alias!r}, while {other!r} has one open, "
                "too: they commit one after the other, and one of these commits may fail. If the task belongs to "
                f"what is written to {other!r}, use using={other!r}."
            )
    elif other is not None:
        warn_caller(
            f"A task is enqueued on the database {alias!r} outside its transactions, while {other!r} has "
            f"one open: it runs even if that rolls back. Use using={other!r}, or open atomic() on {alias!r}."
        )
    elif _in_commit_hook():
        warn_caller(
            "A task is enqueued from an on_commit hook: if the process dies before the hook, the task is lost. "
            "Enqueue inside the transaction instead; workers see it only after the commit anyway."
        )


def _other_in_transaction(alias: str) -> str | None:
    """Return another database with an open transaction, ignoring the transaction around a TestCase."""
    for other in connections.all(initialized_only=True):
        blocks: list[Any] = other.atomic_blocks
        if other.alias != alias and any(not block._from_testcase for block in blocks):
            return other.alias
    return None


def warn_caller(message: str, category: type[UserWarning] = NotTransactionalWarning) -> None:
    """Warn at the line outside this package that made the call, through ``enqueue()`` or directly."""
    frame, level = sys._getframe(), 1
    while frame.f_back and frame.f_globals["__name__"].startswith("django_txtasks."):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level)


def _in_commit_hook() -> bool:
    frame: FrameType | None = sys._getframe(1)
    for _ in range(40):
        if frame is None:
            return False
        if frame.f_code.co_name == "run_and_clear_commit_hooks":
            return True
        frame = frame.f_back
    return False
