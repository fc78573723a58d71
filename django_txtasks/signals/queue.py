"""A queue of signals before their log handlers and receivers, which may be slow, hang or raise.

Loops put signals into it and continue; one thread delivers them in order.
"""

from __future__ import annotations

import contextlib
import logging
import queue
import threading
import time
from collections.abc import Callable
from typing import Any, Protocol

from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper

MAX_SIGNALS = 10_000
"""Highest number of waiting signals; twice as many at WARNING and above."""
MAX_LARGE_SIGNALS = 1_000
"""Highest number of waiting signals with all their data. Later signals lose the traceback, which takes about 10
kB, and the context of their attempt, which keeps all objects that the task has put there.
"""
HUNG_SECONDS = 3.0
"""Longest time that ``flush`` waits for one signal: its log handler hangs, as at a full pipe."""


class QueuedSignal(Protocol):
    """One call of ``LogSignal.emit``."""

    @property
    def level(self) -> int:
        """Level of its log line."""

    def deliver(self) -> None:
        """Write the log line and call the receivers."""

    def made_small(self) -> QueuedSignal:
        """Return the signal without exception and context."""


class SignalQueue:
    """Signals that wait for the delivering thread.

    ``put`` may be called from any thread and never waits. If the queue is full, the signal is counted and
    dropped.

    Args:
        dropped: called in the thread with the number of signals dropped since its last call.
        by_one_thread: True = the thread waits for more signals. False = it ends when the queue is empty, and the
            next signal starts another: for a process that forks, and must have no thread then.

    Attributes:
        is_stuck: True if ``close`` left the thread behind; it may hold the lock of a log handler.
    """

    def __init__(self, dropped: Callable[[int], None], *, by_one_thread: bool = True) -> None:
        self._tell_dropped, self._waits = dropped, by_one_thread
        self._waiting: queue.SimpleQueue[QueuedSignal | threading.Event] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._delivering = threading.RLock()
        self._dropped = self._delivered = 0
        self._thread: threading.Thread | None = None
        self.is_stuck = False

    def put(self, signal: QueuedSignal) -> None:
        """Queue a signal for delivery."""
        waiting = self._waiting.qsize()
        if waiting >= MAX_LARGE_SIGNALS:
            signal = signal.made_small()
            if waiting >= (MAX_SIGNALS if signal.level < logging.WARNING else 2 * MAX_SIGNALS):
                with self._lock:
                    self._dropped += 1
                return
        self._put(signal)

    def flush(self, seconds: float) -> bool:
        """Wait until all earlier signals were delivered.

        Returns:
            False if that took longer than ``seconds``, or one signal longer than ``HUNG_SECONDS``.
        """
        if threading.current_thread() is self._thread:
            return False
        delivered, end, before = threading.Event(), time.monotonic() + seconds, -1
        self._put(delivered)
        while before != self._delivered and (left := end - time.monotonic()) > 0:
            before = self._delivered
            if delivered.wait(min(left, HUNG_SECONDS)):
                return True
        return delivered.is_set()

    def close(self, seconds: float) -> None:
        """Flush and end the thread; leave it behind if that takes longer than ``seconds``."""
        self._waits = False
        self.is_stuck = not self.flush(seconds)

    def pause(self, seconds: float) -> None:
        """Wait until the present delivery has ended, for at most ``seconds``; the next one waits for ``go_on``.

        A fork must not copy the lock of a log handler's stream while the delivering thread holds it.
        """
        self._delivering.acquire(timeout=seconds)

    def go_on(self) -> None:
        """Deliver again, after ``pause`` in the same thread."""
        with contextlib.suppress(RuntimeError):  # the delivery took longer than ``pause`` waited
            self._delivering.release()

    def _put(self, signal: QueuedSignal | threading.Event) -> None:
        self._waiting.put(signal)
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, name="txtasks-signals", daemon=True
                )
                self._thread.start()

    def _run(self) -> None:
        while self._goes_on():
            signal = self._waiting.get()
            if isinstance(signal, threading.Event):
                self._count_dropped()
                close_connections()
                signal.set()
                continue
            # SystemExit, too: receivers end nothing.
            with self._delivering, contextlib.suppress(BaseException):
                signal.deliver()
            self._delivered += 1
            if self._waiting.qsize() < MAX_SIGNALS // 2:
                self._count_dropped()
            if self._waiting.empty():
                close_connections()

    def _goes_on(self) -> bool:
        """Return True to wait for more signals. After False, the next ``put`` starts another thread."""
        if self._waits or not self._waiting.empty():
            return True
        with self._lock:
            if self._waiting.empty():
                self._thread = None
            return self._thread is not None

    def _count_dropped(self) -> None:
        if self._dropped:
            with self._lock:
                count, self._dropped = self._dropped, 0
            with contextlib.suppress(BaseException):
                self._tell_dropped(count)


def close_connections() -> None:
    """Close this thread's database sessions, whatever their state. Never raises.

    If a receiver left an atomic block open, the connection object could never connect again; the thread
    forgets it.
    """
    for one in connections.all(initialized_only=True):
        close_session(one)
        if one.in_atomic_block:
            del connections[one.alias]


def close_session(wrapper: BaseDatabaseWrapper) -> BaseException | None:
    """Close one session of this thread, or return it to its pool; return the error of its backend, if any.

    A backend with an event loop may raise CancelledError, which is not an Exception. The connection is
    dropped in any case.
    """
    raw: Any = wrapper.connection
    try:
        wrapper.close()
    except BaseException as error:
        with contextlib.suppress(Exception):
            raw.close()  # Django has forgotten the connection, which may still be open
        wrapper.connection = None
        return error
    return None
