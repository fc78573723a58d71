"""The loop's record of its slots: their attempts, which of them wait, and how long they may take."""

from __future__ import annotations

import contextlib
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from collections.abc import Set as AbstractSet
from itertools import islice

from django_txtasks.lifecycle.attempts import Attempt, Ended
from django_txtasks.worker.running.in_hand import InHand, Key
from django_txtasks.worker.running.limits import NEVER, NO_LIMIT, TimeLimit
from django_txtasks.worker.running.slot_threads import Running, SlotRun, SlotThreads

STALL_SECONDS = 0.15
"""Seconds that attempts wait for another attempt of their slot run, or for a free slot, before they are
released.
"""
LONGEST_WAIT_SECONDS = 0.5
"""Longest wait in seconds of a slot run for a slot while others continue: longer than the work that is claimed
ahead.
"""


class Slots:
    """The slots as the loop sees them: the threads that run tasks, with their attempts. Only the loop uses it.

    The cost of each pass of the loop grows with the number of threads and of ended attempts, not with the number
    of attempts that wait for a slot.

    Args:
        run, wake: see ``SlotThreads``.
        patience: seconds that an attempt has to end after TimedOut was raised in it.
        took: called with the name of each task and the seconds that it took.
    """

    def __init__(
        self,
        count: int,
        *,
        run: Callable[[Attempt, TimeLimit], Ended],
        wake: Callable[[], None],
        patience: float,
        took: Callable[[str, float], None],
    ) -> None:
        self._threads = SlotThreads(count, run, wake)
        self._patience, self._took = patience, took
        self._runs: set[SlotRun] = set()
        self._begun: set[SlotRun] = set()  # begun slot runs, at most one for each thread
        self._queue: deque[SlotRun] = deque()  # the others, in the order in which slots take them
        self._too_old: list[Attempt] = []
        self._count = 0
        self._timeouts: Counter[float] = Counter()  # timeouts in seconds of all attempts here
        self.in_hand = InHand()

    @property
    def running(self) -> int:
        """Number of attempts that were started and not yet collected."""
        return self._count

    @property
    def free(self) -> int:
        """Number of idle slots."""
        return max(0, len(self._threads) - len(self._runs))

    def wake_after(self, count: int) -> None:
        """Wake the loop when this number of slots has become free since its last look; at once if they have."""
        self._threads.wake_after(count)

    @property
    def waiting(self) -> int:
        """Number of slot runs that wait for a slot, without released ones."""
        self._note_begun()
        return max(0, len(self._begun) + len(self._queue) - len(self._threads))

    def begun_between(self, earliest: float, latest: float) -> int:
        """Return the number of slot runs that began their last attempt, or were handed over, within this span.

        All times are by ``time.monotonic()``.
        """
        return sum([earliest <= one.since <= latest for one in self._runs])

    def are_handed(self, names: AbstractSet[str]) -> bool:
        """Return True if the first task of a slot run that has begun, or soon will, has one of these names."""
        handed = [*self._begun, *islice(self._queue, len(self._threads))]
        return any(run.attempts[0].task_name in names for run in handed)

    def holds(self) -> set[Key]:
        """Return (id, attempt) of all attempts of the present slot runs, and of kept-back claims."""
        attempts = [one for run in self._runs for one in run.attempts]
        return {(one.task_id, one.number) for one in [*attempts, *self.in_hand.kept_back]}

    def running_since(self, moment: float) -> list[Attempt]:
        """Return the running attempts that began before this time, by ``time.monotonic()``."""
        self._note_begun()
        began = [one.running for one in self._begun if one.since <= moment]
        return [one.attempt for one in began if one is not None]

    def start(self, attempts: list[Attempt], good_until: float = NEVER) -> None:
        """Give attempts to one slot, which runs them one after the other.

        Args:
            good_until: time by ``time.monotonic()`` after which no attempt begins, because the claims are too old.
        """
        left: deque[Running] = deque()
        for attempt in attempts:
            limit = NO_LIMIT if attempt.timeout is None else TimeLimit(attempt.timeout)
            left.append(Running(attempt, limit))
            self.in_hand.attempts[attempt.task_id.int] = attempt
            if attempt.timeout is not None:
                self._timeouts[attempt.timeout] += 1
        run = SlotRun(attempts, left, good_until)
        self._count += len(attempts)
        self._runs.add(run)
        self._queue.append(run)
        self._threads.put(run)

    def release(self, *, stalled: bool) -> list[Attempt]:
        """Return, and forget, attempts that have not begun.

        Args:
            stalled: True = only attempts that wait for a task that takes longer than a short one.
        """
        back, self._too_old = self._too_old, []
        self._note_begun()
        for run in list(self._stalled(time.monotonic()) if stalled else self._runs):
            back += _emptied(run.left)
        if back:
            self._queue = deque(one for one in self._queue if one.left or one.begun)
        for attempt in back:
            self._forget(attempt)
        return back

    def enforce_limits(self) -> list[Running]:
        """Raise TimedOut in attempts whose time is over. Return the attempts that did not end by it."""
        now = time.monotonic()
        limited = self._limited()
        for running in limited:
            running.limit.enforce(now)
        return [one for one in limited if one.limit.overrun(self._patience, now)]

    @property
    def next_look(self) -> float:
        """Time of the next call of ``enforce_limits`` or ``release``, by ``time.monotonic()``."""
        looks = [one.limit.next(self._patience) for one in self._limited()]
        if self._timeouts:  # of an attempt that begins while the loop waits
            looks.append(time.monotonic() + min(self._timeouts))
        looks += [run.since + STALL_SECONDS for run in self._begun if run.left]
        if (first := next(self._waiting(), None)) is not None:
            looks.append(self._stalls(first))
        return min(looks, default=NEVER)

    def collect(self) -> list[Ended]:
        """Return the outcomes since the last call."""
        ended: list[Ended] = []
        threads = self._threads
        over = [threads.over.popleft() for _ in range(len(threads.over))]
        while threads.ended:
            one, seconds = threads.ended.popleft()
            self._forget(one.attempt)
            self._took(one.attempt.task_name, seconds)
            ended.append(one)
        self._runs.difference_update(over)
        self._begun.difference_update(over)
        for run in over:
            if run.left:
                self._too_old += _emptied(run.left)
        return ended

    def close(self) -> None:
        """End the threads, which must be idle."""
        self._threads.close()

    def _note_begun(self) -> None:
        """Move the slot runs that slots have taken. A slot skips a run whose attempts were all released."""
        while self._queue and (self._queue[0].begun or not self._queue[0].left):
            run = self._queue.popleft()
            if run.begun and run in self._runs:
                self._begun.add(run)

    def _limited(self) -> list[Running]:
        """Return the running attempts that have a time limit."""
        self._note_begun()
        now_running = [run.running for run in self._begun]
        return [one for one in now_running if one is not None and one.limit is not NO_LIMIT]

    def _waiting(self) -> Iterator[SlotRun]:
        """Yield the slot runs that wait for a slot, in order. If a slot is idle, none waits."""
        if len(self._runs) > len(self._threads):
            yield from (one for one in self._queue if one.left and not one.begun)

    def _stalled(self, now: float) -> Iterator[SlotRun]:
        """Yield the slot runs whose attempts have waited too long, for an attempt of their own run or for a
        slot.
        """
        yield from (one for one in self._begun if one.left and now >= one.since + STALL_SECONDS)
        for one in self._waiting():
            if now < self._stalls(one):  # the runs behind it came later
                break
            yield one

    def _stalls(self, run: SlotRun) -> float:
        """Return the time from which a slot run has waited too long for a slot; the wait starts anew when the
        queue moves.
        """
        moved = max((one.since for one in self._begun), default=run.since)
        return min(max(run.since, moved) + STALL_SECONDS, run.since + LONGEST_WAIT_SECONDS)

    def _forget(self, attempt: Attempt) -> None:
        self._count -= 1
        self.in_hand.attempts.pop(attempt.task_id.int, None)
        if attempt.timeout is not None:
            self._timeouts[attempt.timeout] -= 1
            if not self._timeouts[attempt.timeout]:
                del self._timeouts[attempt.timeout]


def _emptied(left: deque[Running]) -> list[Attempt]:
    attempts = []
    with contextlib.suppress(IndexError):
        while True:
            attempts.append(left.pop().attempt)
    return attempts
