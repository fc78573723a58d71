"""The threads that run tasks. Only they run user code. They write no rows, except the finish of an atomic task."""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, TypeAlias

from django_txtasks import signals
from django_txtasks.core.ground.seams import AROUND
from django_txtasks.core.rows.attempts import Attempt, Ended
from django_txtasks.core.working.running.limits import TimeLimit
from django_txtasks.core.working.running.verdicts import buried
from django_txtasks.database.errors import text_of
from django_txtasks.signals import tracebacks
from django_txtasks.signals.queue import close_connections

CLOSE_AGAIN_SECONDS = 60.0
"""Seconds until an idle thread tries again to close a session that could not be closed."""


class Call(Protocol):
    """One call that gets several attempts. Each ends on its own, before or after the others.

    Attributes:
        limit: the time limit of the call.
        left: the tasks that the loop has not collected, in the form of the call.
    """

    limit: TimeLimit
    left: Any

    @property
    def attempts_left(self) -> list[Attempt]:
        """The attempts of these tasks."""

    def collect(self) -> list[tuple[Ended, float]]:
        """Return the outcomes since the last call, each with the seconds of its attempt."""

    def run(self) -> None:
        """Call the function. Never raises."""


CallOf: TypeAlias = Callable[[Sequence[Attempt], TimeLimit], Call]


class Running(NamedTuple):
    """An attempt in a slot, with its time limit."""

    attempt: Attempt
    limit: TimeLimit

    def error(self) -> BaseException:
        """Return the error for the row if no exception ends the attempt."""
        return self.limit.error()


@dataclass(eq=False)
class SlotRun:
    """Attempts that one slot runs one after the other.

    Attributes:
        attempts: all attempts.
        left: attempts that have not begun. The slot takes them from one end, the loop from the other.
        good_until: time by ``time.monotonic()`` after which no attempt begins, because the claims are too old.
        begun: True if a slot has taken it. Written by that slot, read by the loop.
        since: start of its last attempt, or, before that, the hand-over, by the same clock. Written by that
            slot.
        running: the present or last attempt. Written by that slot, read by the loop.
        thread: number of the thread that runs the attempts; 0 = none has begun, or all have ended. Written alike.
        is_call: True = one call of the function gets all attempts.
        call: that call, once it has begun. Written by that slot.
    """

    attempts: list[Attempt]
    left: deque[Running]
    good_until: float
    begun: bool = False
    since: float = field(default_factory=time.monotonic)
    running: Running | None = None
    thread: int = 0
    is_call: bool = False
    call: Call | None = None

    @property
    def present(self) -> Sequence[Running]:
        """The present or last attempt; of a call, the attempts that have not been collected.

        If all were collected, it is the first one: the function may go on, and its time limit still counts.
        """
        if self.call is not None:
            attempts = self.call.attempts_left or self.attempts[:1]
            return [Running(one, self.call.limit) for one in attempts]
        return () if self.running is None else (self.running,)


def close_old_connections() -> float | None:
    """Close connections that have reached their maximum age: see ``close_old``.

    Never raises, because the slot would end with its thread. A backend with an event loop may raise
    ``CancelledError``, which is no Exception.
    """
    try:
        seconds: float | None = AROUND.whole.close_old()
        return seconds
    except BaseException as error:
        signals.session_close_failed.emit(error=text_of(error))
        return CLOSE_AGAIN_SECONDS


class SlotThreads:
    """A number of threads; each runs one attempt at a time.

    Args:
        run: runs an attempt to its end and never raises.
        call_of: returns the call of several attempts with a time limit; None = there are no such calls.
        wake: wakes the loop. Slots call it when they are free again.

    Attributes:
        ended: outcomes with the seconds that each attempt took. Written by slots, emptied by the loop.
        over: slot runs of which nothing is left to run. Written by slots, emptied by the loop.
    """

    def __init__(
        self,
        count: int,
        run: Callable[[Attempt, TimeLimit], Ended],
        wake: Callable[[], None],
        call_of: CallOf | None = None,
    ) -> None:
        AROUND.whole.watch()
        self._run, self._wake, self._call_of = run, wake, call_of
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
        """Wake the loop when this number of slots has become free since its last look; at once if they have."""
        self._wake_after = max(1, count)  # written by the loop, read by slots
        if len(self.over) >= self._wake_after:
            self._wake()

    def put(self, run: SlotRun) -> None:
        """Hand a slot run to the next free slot."""
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
        """Wait for work. Close old connections meanwhile."""
        while True:
            with contextlib.suppress(queue.Empty):
                return self._work.get(timeout=close_old_connections())

    def _take_run(self, run: SlotRun) -> None:
        run.thread = threading.get_ident()
        run.since, run.begun = time.monotonic(), True
        if run.is_call:
            self._call(run)
        with contextlib.suppress(IndexError):  # no attempt is left, or the loop has released them
            while (now := time.monotonic()) < run.good_until:
                running = run.left.popleft()
                run.since, run.running = now, running
                ended = self._run_one(running)
                self.ended.append((ended, time.monotonic() - now))
        run.thread = 0
        self.over.append(run)
        if len(self.over) >= self._wake_after:
            self._wake()

    def _call(self, run: SlotRun) -> None:
        """Take all attempts that may begin, and call their function once."""
        taken: list[Running] = []
        with contextlib.suppress(IndexError):
            while time.monotonic() < run.good_until:
                taken.append(run.left.popleft())
        if taken and self._call_of is not None:
            run.since = time.monotonic()
            run.call = self._call_of([one.attempt for one in taken], taken[0].limit)
            run.call.run()

    def _run_one(self, running: Running) -> Ended:
        try:
            return self._run(running.attempt, running.limit)
        except BaseException as error:
            # Otherwise the thread would end, and the row stay claimed for ever.
            ended = buried(running.attempt, error)
            tracebacks.forget_locals(error)
            return ended
