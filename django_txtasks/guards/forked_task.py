"""Task functions that fork: the child ends where the function ends, and touches nothing of its parent.

``multiprocessing`` forks, too: on Linux this is its default up to Python 3.13.
"""

from __future__ import annotations

import contextlib
import functools
import os
import sys
import threading
import traceback
from collections.abc import Callable, Coroutine
from typing import Any, NoReturn

from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper

from django_txtasks.core.ground.forks import register_at_fork
from django_txtasks.core.working.running.limits import forking

FLUSH_SECONDS = 1.0
"""Longest time for the last writes of a child. If another thread of the parent was writing to stderr at the fork,
the child's copy of stderr stays locked for ever.
"""
_of_parent: list[Any] = []
"""Sessions and pools of the parent, in a child. To drop one could end it in the parent as well."""


class _Forks:
    """Number of forks between the process that watches them and this process."""

    count = 0


def forks_of_process() -> int:
    """Return a number that differs in a child. This takes less time than to ask for the process id."""
    return _Forks.count


@functools.cache
def watch_forks() -> None:
    """Note forks of this process from now on, and make each child open sessions of its own.

    The hook that is registered last is the first before a fork, and the last after it in the parent. So the
    hooks of ``logging`` run while the list ``forking`` has an entry. The hooks that keep this list are C
    functions: no other thread gets a turn between the call of ``os.fork`` and the entry, or between the last hook
    in Python and the removal.
    """
    register_at_fork(
        before=functools.partial(forking.append, None),
        after_in_parent=forking.pop,
        after_in_child=_leave_sessions_to_parent,
    )


def _leave_sessions_to_parent() -> None:
    """Remove the sessions of the forking thread from its connection objects, without ending them.

    If two processes use one socket, each reads answers meant for the other, and a close by one ends the session of
    both. The next statement opens a session, outside of the parent's transaction. SQLite is excluded, because its
    library keeps the parent's locks in the memory that the child has copied.
    """
    forking.clear()
    _Forks.count += 1
    for one in connections.all(initialized_only=True):
        if one.vendor == "sqlite":
            continue
        # Of PostgreSQL; their threads do not exist in the child.
        pools = getattr(one, "_connection_pools", {})
        _of_parent.extend([one.connection, dict(pools)])
        pools.clear()
        _make_unconnected(one)


def _make_unconnected(connection: BaseDatabaseWrapper) -> None:
    """Restore an object to its state before its first statement; keep the attributes that were set on it."""
    connection.connection = None
    connection.in_atomic_block = connection.closed_in_transaction = False
    connection.savepoint_ids, connection.atomic_blocks, connection.run_on_commit = [], [], []


def call_in_this_process(call: Callable[[], Any]) -> Any:
    """Return what the call returns, in this process. If ``os.fork`` has made this process during the call, end it.

    The child has copies of the database sockets, in the parent's transaction. So it must neither commit there nor
    take the parent's next task.
    """
    pid = os.getpid()
    try:
        return call()
    finally:
        _end_child_of(pid, sys.exc_info()[1])


async def await_in_this_process(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """Await a coroutine as ``call_in_this_process`` calls. The child has only the thread of the event loop."""
    pid = os.getpid()
    try:
        return await coroutine
    finally:
        _end_child_of(pid, sys.exc_info()[1])


def _end_child_of(pid: int, error: BaseException | None) -> None:
    if os.getpid() != pid:
        end_child(error)


def end_child(error: BaseException | None = None) -> NoReturn:
    """End this process as an interpreter would, but without the ``atexit`` functions of its parent."""
    code = 0
    if isinstance(error, SystemExit):
        code = error.code if isinstance(error.code, int) else int(error.code is not None)
    elif error is not None:
        code = 1
    try:
        writing = threading.Thread(target=_write_last, args=[error], daemon=True)
        writing.start()
        writing.join(FLUSH_SECONDS)
    finally:  # also where the system gives no thread
        os._exit(code & 0xFF)


def _write_last(error: BaseException | None) -> None:
    """Write to stderr what an interpreter would at its end, and flush stdout and stderr."""
    if isinstance(error, SystemExit):
        if isinstance(error.code, str):
            print(error.code, file=sys.stderr)
    elif error is not None:
        traceback.print_exception(error)
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError, OSError, ValueError):  # the stream does not exist
            stream.flush()
