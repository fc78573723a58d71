"""A queue of events in front of log handlers and receivers of signals, which may be slow, hang or raise.

Loops put events into it and go on; one thread delivers them in their order.
"""

from __future__ import annotations

import contextlib
import logging
import queue
import threading
from collections.abc import Callable
from typing import Any, Protocol

from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper

MAX_EVENTS = 10_000
"""Events that may wait; of those at WARNING and above twice as many."""
MAX_LARGE_EVENTS = 1_000
"""Events that may wait with all that they have. Further ones come without traceback, which takes about 10 kB, and
without the context of their attempt, which keeps whatever the task has put there."""


class QueuedEvent(Protocol):
    """One call of ``Event.emit``."""

    @property
    def level(self) -> int:
        """Level of its log line."""

    def deliver(self) -> None:
        """Write the log line and call the receivers."""

    def made_small(self) -> QueuedEvent:
        """Return the same without the exception and the context."""


class EventQueue:
    """Events that wait for the thread that delivers them.

    ``put`` is called from any thread and never waits. When the queue is full the event is counted and dropped.

    Args:
        dropped: called in the thread with the number of events that were dropped since it was called last.
        by_one_thread: the thread waits for further events; else it ends when there are none, and the next one
            starts another: for a process that forks, which must have no thread then.

    Attributes:
        is_stuck: the thread was left behind by ``close``; it may hold the lock of a log handler.
    """

    def __init__(self, dropped: Callable[[int], None], *, by_one_thread: bool = True) -> None:
        self._tell_dropped, self._waits = dropped, by_one_thread
        self._waiting: queue.SimpleQueue[QueuedEvent | threading.Event] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._dropped = 0
        self._thread: threading.Thread | None = None
        self.is_stuck = False

    def put(self, event: QueuedEvent) -> None:
        """Have it delivered later."""
        waiting = self._waiting.qsize()
        if waiting >= MAX_LARGE_EVENTS:
            event = event.made_small()
            if waiting >= (MAX_EVENTS if event.level < logging.WARNING else 2 * MAX_EVENTS):
                with self._lock:
                    self._dropped += 1
                return
        self._put(event)

    def flush(self, seconds: float) -> bool:
        """Wait until what was put in before has been delivered; False = it took longer than ``seconds``."""
        if threading.current_thread() is self._thread:
            return False
        delivered = threading.Event()
        self._put(delivered)
        return delivered.wait(seconds)

    def close(self, seconds: float) -> None:
        """Flush, and end the thread; one that takes longer than ``seconds`` is left behind."""
        self._waits = False
        self.is_stuck = not self.flush(seconds)

    def _put(self, event: QueuedEvent | threading.Event) -> None:
        self._waiting.put(event)
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, name="txtasks-events", daemon=True
                )
                self._thread.start()

    def _run(self) -> None:
        while self._goes_on():
            event = self._waiting.get()
            if isinstance(event, threading.Event):
                self._count_dropped()
                close_connections()
                event.set()
                continue
            with contextlib.suppress(BaseException):  # such as SystemExit: a receiver ends nothing
                event.deliver()
            if self._waiting.qsize() < MAX_EVENTS // 2:
                self._count_dropped()
            if self._waiting.empty():
                close_connections()

    def _goes_on(self) -> bool:
        """Say whether to wait for an event; whoever puts one in after that starts another thread."""
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
    """Give back the database sessions of this thread, in whatever state these are. Never raises.

    An object in which a receiver has left a block open could never connect again: the thread forgets it.
    """
    for one in connections.all(initialized_only=True):
        close_session(one)
        if one.in_atomic_block:
            del connections[one.alias]


def close_session(wrapper: BaseDatabaseWrapper) -> BaseException | None:
    """End one session of this thread, or give it back to its pool, and return what its backend raises.

    A backend that has an event loop may raise CancelledError, which is no Exception. The connection is given up in
    any case.
    """
    raw: Any = wrapper.connection
    try:
        wrapper.close()
    except BaseException as error:
        with contextlib.suppress(Exception):
            raw.close()  # Django's close() has forgotten the connection, which may still be open
        wrapper.connection = None
        return error
    return None
