"""Bookkeeping of slots: what they were handed, what of it waits, and how long it may."""

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
"""Seconds that the tasks of a run wait for one of them, or for any slot, before they are released."""
LONGEST_WAIT_SECONDS = 0.5
"""Seconds that a run waits for a slot while others go on: more than is ever claimed ahead on purpose."""


class Slots:
    """Slots as the loop knows them: threads that run tasks, and what they were handed. For the loop alone.

    What a pass of the loop costs here grows with the number of threads and of tasks that have ended, not with the
    number of tasks that wait for a slot.

    Args:
        run, wake: see ``SlotThreads``.
        patience: seconds that an attempt has for its end after TimedOut was raised in it.
        took: told how long a task of a name took.
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
        self._begun: set[SlotRun] = set()  # of them, as many as threads
        self._queue: deque[SlotRun] = deque()  # the others, in the order in which slots take them
        self._too_old: list[Attempt] = []
        self._count = 0
        self._timeouts: Counter[float] = Counter()  # seconds, of all attempts in hand
        self.in_hand = InHand()

    @property
    def running(self) -> int:
        """How many attempts were started and not yet collected."""
        return self._count

    @property
    def free(self) -> int:
        """How many slots have nothing to do."""
        return max(0, len(self._threads) - len(self._runs))

    def wake_after(self, count: int) -> None:
        """Have the loop woken once so many slots are free that it has not seen: immediately if they are."""
        self._threads.wake_after(count)

    @property
    def waiting(self) -> int:
        """How many runs wait for a slot, not counting those that were released."""
        self._note_begun()
        return max(0, len(self._begun) + len(self._queue) - len(self._threads))

    def begun_between(self, earliest: float, latest: float) -> int:
        """Return how many runs were handed over, or have begun their last attempt, in this time.

        By ``time.monotonic()``.
        """
        return sum([earliest <= one.since <= latest for one in self._runs])

    def are_handed(self, names: AbstractSet[str]) -> bool:
        """Say whether a slot has, or is about to take, one of these tasks; of a run the first one counts."""
        handed = [*self._begun, *islice(self._queue, len(self._threads))]
        return any(run.attempts[0].task_name in names for run in handed)

    def holds(self) -> set[Key]:
        """Return (id, attempt) of what runs, of what its slot has run before it, and of what is kept back."""
        attempts = [one for run in self._runs for one in run.attempts]
        return {(one.task_id, one.number) for one in [*attempts, *self.in_hand.kept_back]}

    def running_since(self, moment: float) -> list[Attempt]:
        """Return what began before this moment, by ``time.monotonic()``, and has not ended."""
        self._note_begun()
        began = [one.running for one in self._begun if one.since <= moment]
        return [one.attempt for one in began if one is not None]

    def start(self, attempts: list[Attempt], good_until: float = NEVER) -> None:
        """Give attempts to a slot, to be run one after the other.

        Args:
            good_until: when their claim is too old to begin, by ``time.monotonic()``.
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
        """Return attempts that have not begun, and forget them.

        Args:
            stalled: only those that wait for a task which takes longer than short ones do.
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
        """Raise TimedOut where it is time; return those that did not end by it."""
        now = time.monotonic()
        limited = self._limited()
        for running in limited:
            running.limit.enforce(now)
        return [one for one in limited if one.limit.overrun(self._patience, now)]

    @property
    def next_look(self) -> float:
        """When to enforce limits or to release again, by ``time.monotonic()``."""
        looks = [one.limit.next(self._patience) for one in self._limited()]
        if self._timeouts:  # of one that begins while the loop waits
            looks.append(time.monotonic() + min(self._timeouts))
        looks += [run.since + STALL_SECONDS for run in self._begun if run.left]
        if (first := next(self._waiting(), None)) is not None:
            looks.append(self._stalls(first))
        return min(looks, default=NEVER)

    def collect(self) -> list[Ended]:
        """Return what has ended since the last call."""
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
        """Move the runs that slots have taken; what was released is skipped by the slot that takes it."""
        while self._queue and (self._queue[0].begun or not self._queue[0].left):
            run = self._queue.popleft()
            if run.begun and run in self._runs:
                self._begun.add(run)

    def _limited(self) -> list[Running]:
        """Return what runs with a time limit."""
        self._note_begun()
        now_running = [run.running for run in self._begun]
        return [one for one in now_running if one is not None and one.limit is not NO_LIMIT]

    def _waiting(self) -> Iterator[SlotRun]:
        """Yield the runs that wait for a slot, the first one first; an idle slot takes one at once."""
        if len(self._runs) > len(self._threads):
            yield from (one for one in self._queue if one.left and not one.begun)

    def _stalled(self, now: float) -> Iterator[SlotRun]:
        """Yield the runs of which tasks have waited too long, for one of their own or for a slot."""
        yield from (one for one in self._begun if one.left and now >= one.since + STALL_SECONDS)
        for one in self._waiting():
            if now < self._stalls(one):  # those behind it came later
                break
            yield one

    def _stalls(self, run: SlotRun) -> float:
        """Return when a run has waited too long for a slot; a queue that moves on is no stall."""
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
