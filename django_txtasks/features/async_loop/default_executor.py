"""The default executor of the event loop: for ``asyncio.to_thread``, ``thread_sensitive=False``, DNS look-ups."""

from __future__ import annotations

import contextlib
import functools
import socket
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from django.db import connections

from django_txtasks.database.sessions import is_pooled
from django_txtasks.guards import task_threads
from django_txtasks.guards.forked_task import call_in_this_process
from django_txtasks.signals.logs import current
from django_txtasks.signals.queue import close_session


class RunningCall:
    """A call that a thread of a pool runs.

    Attributes:
        call: the call as it was submitted.
        facts: the facts of the attempt that has made it; None = code of no attempt.
        left_at: time at which it was found to outlive its attempt, by ``time.monotonic()``; None = it was not.
    """

    __slots__ = ("call", "facts", "left_at")

    def __init__(self, call: Callable[[], Any], facts: dict[str, Any] | None) -> None:
        self.call, self.facts = call, facts
        self.left_at: float | None = None


class Pool(ThreadPoolExecutor):
    """Ends the database sessions that a call has opened, because the next call may be another attempt's.

    Attributes:
        running: the calls that run, by the numbers of their threads. Written by these threads.
    """

    def __init__(self, name: str) -> None:
        super().__init__(thread_name_prefix=name)
        self.running: dict[int, RunningCall] = {}

    @property
    def size(self) -> int:
        """Maximum number of threads."""
        return self._max_workers

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """See ``Executor.submit``."""
        return super().submit(self._run, functools.partial(fn, *args, **kwargs), current.get())

    def _run(self, call: Callable[[], Any], facts: dict[str, Any] | None) -> Any:
        ident = threading.get_ident()
        self.running[ident] = RunningCall(call, facts)
        if facts is not None:
            task_threads.serve(facts)
        try:
            return call_in_this_process(call)
        finally:
            del self.running[ident]
            task_threads.serve_none()
            _forget_connections()


class DefaultExecutor(Pool):
    """The pool for calls of tasks. Look-ups of host names, which the loop submits itself, get another pool.

    Otherwise calls that hang would keep every task of the process from opening a network connection.

    Attributes:
        lookups: the pool for look-ups.
    """

    def __init__(self) -> None:
        super().__init__("txtasks-default")
        self.lookups = Pool("txtasks-lookups")

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """See ``Executor.submit``."""
        if _is_lookup(fn):
            return self.lookups.submit(fn, *args, **kwargs)
        return super().submit(fn, *args, **kwargs)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """See ``Executor.shutdown``."""
        for shutdown in (super().shutdown, self.lookups.shutdown):
            shutdown(wait, cancel_futures=cancel_futures)

    @property
    def pools(self) -> tuple[Pool, Pool]:
        """The pools for calls and for look-ups."""
        return self, self.lookups


def _is_lookup(call: Callable[..., Any]) -> bool:
    """Return True for the functions that ``loop.getaddrinfo`` and ``loop.getnameinfo`` submit."""
    if call in (socket.getaddrinfo, socket.getnameinfo):
        return True
    return getattr(call, "__name__", "") == "_getaddrinfo_debug"  # of a loop in debug mode


def _forget_connections() -> None:
    """End this thread's sessions, even of a pool, and drop its connection objects with all that a call has set."""
    for one in connections.all(initialized_only=True):
        if is_pooled(one) and one.connection is not None:
            with contextlib.suppress(Exception):  # the session is lost
                one.connection.close()
        close_session(one)
        del connections[one.alias]
