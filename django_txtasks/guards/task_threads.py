"""Database sessions of threads that tasks start. Django leaves them open when such a thread ends.

A thread's connection objects refer to each other, so their sessions would stay until Python's garbage collector
runs. The session of a living thread is never touched, because the thread's pool may serve another attempt.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Iterable, Set
from typing import Any
from weakref import WeakKeyDictionary, WeakSet, WeakValueDictionary

from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.signals import connection_created

from django_txtasks import signals
from django_txtasks.core.rows.attempts import Ended
from django_txtasks.core.rows.running import AttemptRun
from django_txtasks.core.working.parts import Part, WorkerContext
from django_txtasks.core.working.running.slot_pool import SlotPool
from django_txtasks.signals.logs import current

_ATTRIBUTE = "_txtasks_attempt"
_running: WeakValueDictionary[tuple[Any, Any], _OfAttempt] = WeakValueDictionary()
"""Attempts that have started threads, by task id and attempt number.

Only the threads keep these objects, because a context that outlives its attempt may start another thread later.
"""
_told: set[str] = set()
_OURS = "txtasks-"
"""Prefix of the names of this package's threads. They serve the process, whichever attempt starts them: the first
attempt that enqueues a task starts the sender of hints.
"""


_serving: dict[int, tuple[str, dict[str, Any]]] = {}
"""Threads of this package that work for an attempt now: their names and the facts of the attempt, by number."""


class _OfAttempt:
    """Sessions of the threads that one attempt has started, while the attempt runs."""

    def __init__(self, facts: dict[str, Any]) -> None:
        self._facts = facts
        self._threads: WeakKeyDictionary[BaseDatabaseWrapper, threading.Thread] = (
            WeakKeyDictionary()
        )
        self._has_ended = False

    def opened(self, connection: BaseDatabaseWrapper) -> None:
        """Note a session of the calling thread."""
        if not self._has_ended:
            self._threads[connection] = threading.current_thread()

    def is_of(self, task_id: Any, number: int) -> bool:
        """Return True if this is the attempt."""
        return (self._facts["task_id"], self._facts["attempt"]) == (task_id, number)

    def end(self) -> None:
        """Log sessions whose threads outlive the attempt, once for each task function of a process."""
        self._has_ended = True
        threads = list(self._threads.items())
        self._threads.clear()
        left = {thread for one, thread in threads if thread.is_alive() and one.connection}
        name = self._facts["task"]
        if left and name not in _told:
            _told.add(name)
            signals.sessions_left.emit(**self._facts, count=len(left))


class _Closer:
    """Closes the connections of a thread when Python drops the thread's local values, at its end.

    It holds no connection, because the thread may live as long as its process. In a forked child it closes no
    session of the parent: the connections of the forking thread have no session there (see ``forked_task``), and
    Django lets no other thread close the connections of the other threads.
    """

    def __init__(self) -> None:
        self.connections: WeakSet[BaseDatabaseWrapper] = WeakSet()

    def __del__(self) -> None:
        with contextlib.suppress(Exception):  # modules may be gone when Python ends
            for one in list(self.connections):
                with contextlib.suppress(Exception):
                    one.close()


class _OfThread(threading.local):
    def __init__(self) -> None:
        self.closer = _Closer()


_of_thread = _OfThread()


@functools.cache
def watch() -> None:
    """Note from now on which attempt starts a thread in this process, and the sessions of such threads.

    Python tells a thread its starter only at its start.
    """
    start = threading.Thread.start

    @functools.wraps(start)
    def noting(self: threading.Thread) -> None:
        attempt = None if self.name.startswith(_OURS) else _attempt_of_caller()
        if attempt is not None:
            setattr(self, _ATTRIBUTE, attempt)
        start(self)

    threading.Thread.start = noting  # type: ignore[method-assign]
    connection_created.connect(_opened, dispatch_uid="django_txtasks.guards.task_threads")


class LeftThreads(Part):
    """Reports the sessions of threads that outlive their attempts."""

    def started(self, slots: SlotPool) -> None:
        """Watch threads from now on."""
        watch()

    def end(self, run: AttemptRun, ended: Ended | None) -> None:
        """Report the sessions of the threads of an attempt."""
        if _running:
            key = run.attempt.task_id, run.attempt.number
            if (attempt := _running.pop(key, None)) is not None:
                attempt.end()


def parts(context: WorkerContext) -> Iterable[Part]:
    """Return the part for one worker."""
    return [LeftThreads()]


def serve(facts: dict[str, Any]) -> None:
    """Note that the calling thread works for an attempt, until ``serve_none``."""
    thread = threading.current_thread()
    _serving[thread.ident or 0] = thread.name, facts


def serve_none() -> None:
    """Note that the calling thread works for no attempt any more."""
    _serving.pop(threading.get_ident(), None)


def threads_of(task_id: Any, number: int) -> list[tuple[str, int]]:
    """Return name and number of the living threads that an attempt has started, or that work for it now."""
    found = [
        (thread.name, thread.ident or 0)
        for thread in threading.enumerate()
        if (one := getattr(thread, _ATTRIBUTE, None)) is not None and one.is_of(task_id, number)
    ]
    for ident, (name, facts) in _serving.copy().items():
        if (facts["task_id"], facts["attempt"]) == (task_id, number):
            found.append((name, ident))
    return found


def functions_in(threads: Set[int | None]) -> list[str]:
    """Return the task function of each of these threads of this package that works for an attempt now."""
    return [facts["task"] for ident, (_, facts) in _serving.copy().items() if ident in threads]


def _attempt_of_caller() -> _OfAttempt | None:
    inherited: _OfAttempt | None = getattr(threading.current_thread(), _ATTRIBUTE, None)
    facts = current.get()
    if inherited is not None or facts is None:
        return inherited
    return _running.setdefault((facts["task_id"], facts["attempt"]), _OfAttempt(facts))


def _opened(connection: BaseDatabaseWrapper, **_: Any) -> None:
    attempt: _OfAttempt | None = getattr(threading.current_thread(), _ATTRIBUTE, None)
    if attempt is not None and not connection.allow_thread_sharing:
        _of_thread.closer.connections.add(connection)
        attempt.opened(connection)
