"""enqueue_task(): validate, write the row in the caller's transaction, notify after its commit."""

from __future__ import annotations

import sys
import uuid
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from functools import partial
from types import FrameType
from typing import Any, ParamSpec, TypeVar

from asgiref.sync import sync_to_async
from django.core.exceptions import SynchronousOnlyOperation
from django.db import DatabaseError, connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper

from django_txtasks import signals, tracing
from django_txtasks.database.errors import add_remedy
from django_txtasks.database.server_kind import refuse_other_product
from django_txtasks.database.transactions import repeated
from django_txtasks.declarations.registry import hint_queue
from django_txtasks.enqueueing import once
from django_txtasks.enqueueing.calls import (
    BoundFunction,
    Call,
    bind,
    of_call,
    read_call,
    to_row,
    to_rows,
)
from django_txtasks.enqueueing.commit_hints import notify_on_commit
from django_txtasks.enqueueing.handed_over import refuse_what_it_cannot_keep
from django_txtasks.enqueueing.handles import Enqueueable, TaskHandle
from django_txtasks.enqueueing.once import OnceKey
from django_txtasks.lifecycle import open_batches
from django_txtasks.lifecycle.enqueueing import (
    Edge,
    NewTask,
    Times,
    insert,
    insert_and_read,
    insert_as_made,
)
from django_txtasks.links import rows as links

P = ParamSpec("P")
T = TypeVar("T")

NEAR = timedelta(seconds=10)
"""Hints are sent for tasks that are due within this time; the worker sets a timer for the remaining time."""


class NotTransactionalWarning(UserWarning):
    """The task is written, but probably not in the transaction that the caller means."""


def enqueue_task(function: Enqueueable[P], /, *args: P.args, **kwargs: P.kwargs) -> TaskHandle:
    """Write a task in the current transaction, or in its own transaction if none is open.

    The task runs after the transaction has committed. If the transaction rolls back, the task never runs.

    Args:
        function: a function declared with ``@task``, or the result of its ``using()``.
        args, kwargs: the function's arguments: None, bool, int, float, str, list, tuple, dict.

    Raises:
        NotATask, InvalidArguments, UnknownQueue, InvalidOption: before any SQL, so the caller's transaction stays
            usable.
    """
    return _enqueue(function, args, kwargs, _insert_one)[0]


def enqueue_and_read(
    function: Enqueueable[P], /, *args: P.args, **kwargs: P.kwargs
) -> tuple[TaskHandle, Times | None]:
    """Enqueue like ``enqueue_task``, and return the row's times, too, for results of Django's Tasks.

    The times are None if an earlier task has the same key of ``once``.
    """
    return _enqueue(function, args, kwargs, insert_and_read)


def enqueue_many(calls: Iterable[Sequence[Any]]) -> list[TaskHandle]:
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
    aliases = sorted({bound.alias for _, bound in bound_functions.values()})
    has_links = any(bound.subjects for _, bound in bound_functions.values())
    try:
        if not tracing.tracers:
            return _enqueue_all(wanted, aliases, has_links=has_links)
        with tracing.enqueueing([_names(bound) for bound, _, _ in wanted]) as traced:
            with_headers = _with_headers(wanted, traced.headers)
            handles = _enqueue_all(with_headers, aliases, has_links=has_links)
            traced.handles = [one for one in handles if one.is_new]
    except (DatabaseError, SynchronousOnlyOperation) as error:
        add_remedy(error)
        raise
    return handles


def _enqueue_all(
    wanted: Sequence[Call], aliases: Sequence[str], *, has_links: bool
) -> list[TaskHandle]:
    parts = {alias: [one for one in wanted if one[0].alias == alias] for alias in aliases}
    if open_batches.is_any():
        parts = {alias: _in_batch(alias, part) for alias, part in parts.items()}
    for alias in parts:
        refuse_other_product(alias)
        warn_if_apart(alias)

    def write() -> dict[str, list[TaskHandle]]:
        with ExitStack() as stack:
            for alias in parts:
                stack.enter_context(transaction.atomic(using=alias))
            handles = {alias: _insert_many(alias, part) for alias, part in parts.items()}
            for alias, part in parts.items() if has_links else ():
                _link_many(alias, part, handles[alias])
            return handles

    only = next(iter(parts)) if len(parts) == 1 else None
    # No repeat with several databases: some may have committed before the error of another.
    written = write() if only is None else repeated(only, write, after_lock_timeouts=False)
    for alias, part in parts.items():
        _tell(alias, written[alias], [bound for bound, _, _ in part])
    in_order = {alias: iter(handles) for alias, handles in written.items()}
    return [next(in_order[bound.alias]) for bound, _, _ in wanted]


async def aenqueue_task(
    function: Enqueueable[P], /, *args: P.args, **kwargs: P.kwargs
) -> TaskHandle:
    """Like ``enqueue_task``, from async code.

    Django has no transactions in async code. To enqueue in the same transaction as other writes, put both into one
    sync function with ``transaction.atomic()``, and call it by ``sync_to_async``.
    """
    return await sync_to_async(enqueue_task, thread_sensitive=True)(function, *args, **kwargs)


async def aenqueue_many(calls: Iterable[Sequence[Any]]) -> list[TaskHandle]:
    """Like ``enqueue_many``, from async code."""
    return await sync_to_async(enqueue_many, thread_sensitive=True)(calls)


def _enqueue(
    function: Any,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    write: Callable[[BaseDatabaseWrapper, NewTask], T],
) -> tuple[TaskHandle, T | None]:
    """Validate a call, write its row and send its hint after the commit; return the result of ``write``, too.

    If an earlier task has the same key of ``once``, ``write`` is not called.
    """
    bound = of_call(bind(function), args, kwargs)
    try:
        if not tracing.tracers:
            return _enqueue_bound(bound, args, kwargs, write)
        with tracing.enqueueing([_names(bound)]) as traced:
            ((bound, *_),) = _with_headers([(bound, args, kwargs)], traced.headers)
            handle, written = _enqueue_bound(bound, args, kwargs, write)
            traced.handles = [handle] if handle.is_new else []
    except (DatabaseError, SynchronousOnlyOperation) as error:
        add_remedy(error)
        raise
    return handle, written


def _enqueue_bound(
    bound: BoundFunction,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    write: Callable[[BaseDatabaseWrapper, NewTask], T],
) -> tuple[TaskHandle, T | None]:
    if open_batches.is_any():
        ((bound, *_),) = _in_batch(bound.alias, [(bound, args, kwargs)])
    task = to_row((bound, args, kwargs))
    refuse_other_product(bound.alias)
    warn_if_apart(bound.alias)
    if bound.subjects:
        write = partial(_write_with_links, write, bound)
    if bound.once_key is not None:
        return _enqueue_once(bound, bound.once_key, task, write)
    written = write(connections[bound.alias], task)
    handle = _handle(bound, task)
    _tell(bound.alias, [handle], [bound])
    return handle, written


def _in_batch(alias: str, wanted: Sequence[Call]) -> list[Call]:
    """Return these calls as members of the open batch, or unchanged if no batch is open.

    Raises:
        InvalidOption: the open batch is in another database, or a queue is handed over.
    """
    batch = open_batches.batch_at(alias)
    if batch is None:
        return list(wanted)
    changed = _changed(wanted, batch=batch.hex)
    for bound, *_ in changed:
        refuse_what_it_cannot_keep(bound)
    return changed


def _changed(wanted: Sequence[Call], **changes: Any) -> list[Call]:
    """Return these calls with changes in their row defaults."""
    known: dict[int, BoundFunction] = {}
    changed = []
    for bound, args, kwargs in wanted:
        if id(bound) not in known:
            known[id(bound)] = bound._replace(defaults=bound.defaults._replace(**changes))
        changed.append((known[id(bound)], args, kwargs))
    return changed


def _with_headers(wanted: Sequence[Call], headers: str | None) -> Sequence[Call]:
    """Return these calls with the headers of tracers, beside those that a call has already."""
    if headers is None:
        return wanted
    own = {bound.defaults.headers for bound, *_ in wanted} - {None}
    if not own:
        return _changed(wanted, headers=headers)
    return [
        one
        for call in wanted
        for one in _changed([call], headers=_joined(call[0].defaults.headers, headers))
    ]


def _joined(own: str | None, headers: str) -> str:
    return headers if own is None else f"{own[:-1]},{headers[1:]}"


def _names(bound: BoundFunction) -> tuple[str, str]:
    return bound.defaults.task_name, bound.defaults.queue_name


def _enqueue_once(
    bound: BoundFunction,
    key: OnceKey,
    task: NewTask,
    write: Callable[[BaseDatabaseWrapper, NewTask], T],
) -> tuple[TaskHandle, T | None]:
    handle = _handle(bound, task)

    def write_or_find() -> tuple[uuid.UUID, T | None]:
        with transaction.atomic(using=bound.alias, savepoint=False):
            winner = once.take(bound.alias, [(key, task.task_id)])[key.digest]
            is_new = winner == task.task_id
            return winner, write(connections[bound.alias], task) if is_new else None

    winner, written = repeated(bound.alias, write_or_find, after_lock_timeouts=False)
    if winner != task.task_id:
        return replace(handle, id=winner, is_new=False), None
    _tell(bound.alias, [handle], [bound])
    return handle, written


def _write_with_links(
    write: Callable[[BaseDatabaseWrapper, NewTask], T],
    bound: BoundFunction,
    connection: BaseDatabaseWrapper,
    task: NewTask,
) -> T:
    with transaction.atomic(using=bound.alias, savepoint=False):
        written = write(connection, task)
        links.add(bound.alias, [(task.task_id, subject) for subject in bound.subjects])
    return written


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


def _link_many(alias: str, wanted: Sequence[Call], handles: Sequence[TaskHandle]) -> None:
    """Write the links of these calls. A call whose key of ``once`` was taken gets no link."""
    found = [
        (handle.id, subject)
        for (bound, _, _), handle in zip(wanted, handles, strict=True)
        if bound.subjects and handle.is_new
        for subject in bound.subjects
    ]
    links.add(alias, found)


def _insert_once(alias: str, wanted: Sequence[Call]) -> list[TaskHandle]:
    """Write the calls whose key of ``once`` is new, and return a handle for each call."""
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


def _handle(bound: BoundFunction, task: NewTask) -> TaskHandle:
    return TaskHandle(
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
