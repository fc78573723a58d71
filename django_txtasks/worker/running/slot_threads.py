"""The threads that run tasks: nothing else runs user code, and they write no row but by a task's own."""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from django_txtasks import signals
from django_txtasks.database.errors import text_of
from django_txtasks.lifecycle.attempts import Arrow, Attempt, Ended
from django_txtasks.signals import tracebacks
from django_txtasks.signals.queue import close_connections
from django_txtasks.worker.running import task_threads
from django_txtasks.worker.running.connections import close_old
from django_txtasks.worker.running.forked_task import watch_forks
from django_txtasks.worker.running.limits import TimeLimit
from django_txtasks.worker.running.runner import describe

CLOSE_AGAIN_SECONDS = 60.0
"""Seconds until an idle thread looks again at a session that could not be closed."""


class Running(NamedTuple):
    """An attempt in a slot, and how long it may take."""

    attempt: Attempt
    limit: TimeLimit


@dataclass(eq=False)
class SlotRun:
    """Attempts that one slot runs one after the other.

    Attributes:
        attempts: all of them.
        left: those that have not begun; a slot takes them from one end, the loop from the other.
        good_until: when their claim is too old to begin, by ``time.monotonic()``.
        begun: a slot has taken it. Written by that slot, read by the loop.
        since: when its last attempt began, or the run was handed over, by the same clock. Written by that slot.
        running: the attempt that runs, or has run last. Written by that slot, read by the loop.
    """

    attempts: list[Attempt]
    left: deque[Running]
    good_until: float
    begun: bool = False
    since: float = field(default_factory=time.monotonic)
    running: Running | None = None


def _close_old() -> float | None:
    """Close connections whose age is over: see ``close_old``. Never raises, as the slot would end with its thread.

    A backend that runs a loop of its own may raise ``CancelledError``, which is no Exception.
    """
    try:
        return close_old()
    except BaseException as error:
        signals.session_close_failed.emit(error=text_of(error))
        return CLOSE_AGAIN_SECONDS


class SlotThreads:
    """So many threads, each running one attempt at a time.

    Args:
        run: runs an attempt to its end and never raises.
        wake: called from a slot when it is free again.

    Attributes:
        ended: what has ended, and how many seconds it took. Written by slots, emptied by the loop.
        over: runs of which nothing is left to run here. Written by slots, emptied by the loop.
    """

    def __init__(
        self,
        count: int,
        run: Callable[[Attempt, TimeLimit], Ended],
        wake: Callable[[], None],
    ) -> None:
        task_threads.watch()
        watch_forks()
        self._run, self._wake = run, wake
        self._wake_after = 1
        self._work: queue.SimpleQueue[SlotRun | None] = queue.SimpleQueue()
        self.ended: deque[tuple[Ended, float]] = deque()
        self.over: deque[SlotRun] = deque()
        self._threads = [
            threading.Thread(target=self._slot, name=f"txtasks-slot-{number}", daemon=True)
            for number in range(1, count + 1)
        ]
        for thread in self._threads:
            thread.start()

    def __len__(self) -> int:
        return len(self._threads)

    def wake_after(self, count: int) -> None:
        """Have the loop woken once so many slots are free again that it has not seen: immediately if they are."""
        self._wake_after = max(1, count)  # written by the loop, read by slots
        if len(self.over) >= self._wake_after:
            self._wake()

    def put(self, run: SlotRun) -> None:
        """Hand it to the next slot that is free."""
        self._work.put(run)

    def close(self) -> None:
        """End the threads, which must be idle."""
        for _ in self._threads:
            self._work.put(None)
        for thread in self._threads:
            thread.join()

    def _slot(self) -> None:
        while (run := self._next()) is not None:
            self._take_run(run)
        close_connections()

    def _next(self) -> SlotRun | None:
        """Wait for work; connections whose age is over end meanwhile."""
        while True:
            with contextlib.suppress(queue.Empty):
                return self._work.get(timeout=_close_old())

    def _take_run(self, run: SlotRun) -> None:
        run.since, run.begun = time.monotonic(), True
        with contextlib.suppress(IndexError):  # none is left, or they were released
            while (now := time.monotonic()) < run.good_until:
                running = run.left.popleft()
                run.since, run.running = now, running
                ended = self._run_one(running)
                self.ended.append((ended, time.monotonic() - now))
        self.over.append(run)
        if len(self.over) >= self._wake_after:
            self._wake()

    def _run_one(self, running: Running) -> Ended:
        try:
            return self._run(running.attempt, running.limit)
        except BaseException as error:  # a slot that died would keep its row claimed for ever
            died = describe(error)
            tracebacks.forget_locals(error)
            return Ended(attempt=running.attempt, arrow=Arrow.BURY, error=died, exception=error)
