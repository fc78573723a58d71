"""The threads that run the sync calls of all attempts of one event loop: ORM queries and ``sync_to_async``."""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections import deque
from collections.abc import Callable

from django_txtasks.core.rows.attempts import Attempt
from django_txtasks.core.working.running.slot_threads import close_old_connections
from django_txtasks.features.async_loop.executors import AttemptExecutor
from django_txtasks.features.async_loop.held_threads import Waits
from django_txtasks.features.async_loop.open_cursors import note_cursors
from django_txtasks.guards import task_threads
from django_txtasks.guards.connections import all_connections
from django_txtasks.guards.forked_task import watch_forks
from django_txtasks.signals.queue import close_connections

CLOSE_SECONDS = 1.0
"""Longest time for idle threads to close their connections, and to end, at the end of the process."""


class SharedThreads:
    """A few threads, each started when it is first needed. Attempts get them in the order of their calls.

    Args:
        size: see below.
        note_session: see ``before_attempt``.

    Attributes:
        size: maximum number of threads.
        lock: guards the state of all executors.
        pinned: executors with which a thread stays.
        pinners: functions of the attempts that were ever pinned.
        extras: extra threads: see ``ExtraThreads``.
        has_more: set by each further call that waits while there are extra threads.
        moved_at: time at which one of the threads, extra ones aside, took a call of another attempt.
    """

    def __init__(self, size: int, *, note_session: Callable[[str], None]) -> None:
        task_threads.watch()
        watch_forks()
        self.size, self.note_session = size, note_session
        self.lock = threading.Lock()
        self.pinned: set[AttemptExecutor] = set()
        self.pinners: set[str] = set()
        self.extras: set[threading.Thread] = set()
        self.has_more = threading.Event()
        self.moved_at = self._extra_moved_at = 0.0
        self._starting = threading.Lock()
        self._threads: list[threading.Thread] = []
        self._free: set[threading.Thread] = set()
        self._ready: deque[AttemptExecutor] = deque()  # their next call waits for a thread
        # True for each of them, False = the end
        self._work: queue.SimpleQueue[bool] = queue.SimpleQueue()

    def for_attempt(self, attempt: Attempt) -> AttemptExecutor:
        """Return the executor of an attempt."""
        return AttemptExecutor(self, attempt)

    def enqueue(self, executor: AttemptExecutor) -> None:
        """Have the next free thread call ``executor.serve()``; start a thread if none is free."""
        executor.since = time.monotonic()
        self._ready.append(executor)
        self._work.put(True)
        self.start_missing()
        if self.extras:
            self.has_more.set()

    def start_missing(self) -> None:
        """Start a thread if a call needs one. If the system has no thread left, call this again later."""
        if len(self._threads) >= self.size or len(self._ready) <= len(self._free):
            return
        with self._starting:
            if len(self._threads) < self.size:
                name = f"txtasks-shared-{len(self._threads) + 1}"
                thread = threading.Thread(target=self._run, name=name, daemon=True)
                with contextlib.suppress(RuntimeError):  # no thread is left
                    thread.start()
                    self._threads.append(thread)

    def note_free(self) -> None:
        """Count the calling thread as free. Otherwise a call that follows at once would start another thread."""
        self._free.add(threading.current_thread())

    def are_held_since(self, moved_at: float) -> bool:
        """Return True if none of the threads, extra ones aside, is free, or has taken a call after this time."""
        return self.moved_at == moved_at and self._free <= self.extras

    def forget_extra(self) -> None:
        """Forget the calling extra thread, which ends."""
        self._free.discard(threading.current_thread())
        self.extras.discard(threading.current_thread())

    def take_one(self, takes_all: bool) -> AttemptExecutor | None:
        """Return an attempt with a call for an extra thread: the first whose function has never kept a thread.

        Args:
            takes_all: True = otherwise the first of all.
        """
        ready = self._ready.copy()
        fitting = [one for one in ready if one.function not in self.pinners]
        for one in fitting or (ready if takes_all else ()):
            if not self._take_token():
                return None
            with contextlib.suppress(ValueError):  # another thread was faster
                self._ready.remove(one)
                self._free.discard(threading.current_thread())
                self._extra_moved_at = time.monotonic()
                return one
            self._work.put(True)
        return None

    @property
    def waiting(self) -> int:
        """Number of attempts with a call that waits for a thread."""
        return len(self._waiting())

    def waits(self, now: float) -> Waits:
        """Return the calls that wait for a thread, and the attempts that have the threads."""
        waiting = self._waiting()
        since = waiting[0].since if waiting else now
        threads = {one.ident for one in [*self._threads, *self.extras.copy()]}
        return Waits(
            [one.function for one in waiting],
            task_threads.functions_in(threads),
            self.size + len(self.extras),
            len(self.pinned),
            now - since,
            now - max(since, self.moved_at, self._extra_moved_at),
        )

    def close(self) -> None:
        """End the idle threads. A thread in a call, or of a pinned attempt, ends with the process."""
        for _ in self._threads:
            self._work.put(False)
        self.moved_at = time.monotonic()  # the end of the extra threads
        self.has_more.set()
        end = time.monotonic() + CLOSE_SECONDS
        for thread in list(self._free):
            thread.join(max(0.0, end - time.monotonic()))

    def _waiting(self) -> list[AttemptExecutor]:
        return [one for one in self._ready.copy() if one.is_waiting]

    def _take_token(self) -> bool:
        """Return True if a call waits, which this thread may now take from the others."""
        with contextlib.suppress(queue.Empty):
            if self._work.get_nowait():
                return True
            self._work.put(False)
        return False

    def _run(self) -> None:
        note_all_cursors()
        while (executor := self._next()) is not None:
            executor.serve()
            del executor
        close_connections()

    def _next(self) -> AttemptExecutor | None:
        """Wait for an attempt with a call. Close old connections meanwhile."""
        self.note_free()
        while True:
            with contextlib.suppress(queue.Empty):
                if not self._work.get(timeout=close_old_connections()):
                    return None
                # In this order: if the attempt no longer counted as ready, and the thread still counted as free,
                # the next attempt would wait for this thread instead of getting a new one.
                self._free.discard(threading.current_thread())
                self.moved_at = time.monotonic()
                return self._ready.popleft()


def note_all_cursors() -> None:
    """Note the cursors of all connection objects of the calling thread from now on."""
    for connection in all_connections():
        note_cursors(connection)
