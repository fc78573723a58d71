"""Bookkeeping of slots: what they were handed, what of it waits, and how long it may."""

from __future__ import annotations

import contextlib
import time
import uuid
from collections import deque
from collections.abc import Callable

from django_txtasks.lifecycle.attempts import Attempt, Ended
from django_txtasks.worker.in_hand import InHand, Key
from django_txtasks.worker.limits import NEVER, NO_LIMIT, TimeLimit
from django_txtasks.worker.slot_threads import Batch, Running, SlotThreads

Fence = tuple[uuid.UUID, int, uuid.UUID]
STALL_SECONDS = 0.15
"""Seconds that the tasks of a batch wait for one of them, or for any slot, before they are released."""
LONGEST_WAIT_SECONDS = 0.5
"""Seconds that a batch waits for a slot while others go on: more than is ever claimed ahead on purpose."""


class Slots:
    """Slots as the loop knows them: threads that run tasks, and what they were handed. For the loop alone.

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
        self._batches: set[Batch] = set()
        self._too_old: list[Attempt] = []
        self._count = 0
        self._limited: dict[Fence, Running] = {}
        self.in_hand = InHand()

    @property
    def running(self) -> int:
        """How many attempts were started and not yet collected."""
        return self._count

    @property
    def free(self) -> int:
        """How many slots have nothing to do."""
        return max(0, len(self._threads) - len(self._batches))

    @property
    def names(self) -> set[str]:
        """Which tasks slots were handed; of tasks that were handed over together the first."""
        return {batch.attempts[0].task_name for batch in self._batches}

    def holds(self) -> set[Key]:
        """Return (id, attempt) of what runs, of what its slot has run before it, and of what is kept back."""
        attempts = [one for batch in self._batches for one in batch.attempts]
        return {(one.task_id, one.number) for one in [*attempts, *self.in_hand.kept_back]}

    def start(self, attempts: list[Attempt], good_until: float = NEVER) -> None:
        """Give attempts to a slot, to be run one after the other.

        Args:
            good_until: when their claim is too old to begin, by ``time.monotonic()``.
        """
        left: deque[Running] = deque()
        for attempt in attempts:
            limit = NO_LIMIT if attempt.timeout is None else TimeLimit(attempt.timeout)
            running = Running(attempt, limit)
            left.append(running)
            self.in_hand.attempts[attempt.task_id.int] = attempt
            if limit is not NO_LIMIT:
                self._limited[attempt.fence] = running
        batch = Batch(attempts, left, good_until)
        self._count += len(attempts)
        self._batches.add(batch)
        self._threads.put(batch)

    def release(self, *, stalled: bool) -> list[Attempt]:
        """Return attempts that have not begun, and forget them.

        Args:
            stalled: only those that wait for a task which takes longer than short ones do.
        """
        back, self._too_old = self._too_old, []
        now = time.monotonic()
        for batch in self._waiting():
            if not stalled or now >= self._stalls(batch):
                back += _emptied(batch.left)
        for attempt in back:
            self._forget(attempt)
        return back

    def enforce_limits(self) -> list[Running]:
        """Raise TimedOut where it is time; return those that did not end by it."""
        now = time.monotonic()
        for running in self._limited.values():
            running.limit.enforce(now)
        return [one for one in self._limited.values() if one.limit.overrun(self._patience, now)]

    @property
    def next_look(self) -> float:
        """When to enforce limits or to release again, by ``time.monotonic()``."""
        limits = (one.limit.next(self._patience) for one in self._limited.values())
        stalls = (self._stalls(batch) for batch in self._waiting())
        return min(min(limits, default=NEVER), min(stalls, default=NEVER))

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
        self._batches.difference_update(over)
        for batch in over:
            self._too_old += _emptied(batch.left)
        return ended

    def close(self) -> None:
        """End the threads, which must be idle."""
        self._threads.close()

    def _waiting(self) -> list[Batch]:
        """Return the batches that wait for a slot or for one of their own; an idle slot takes one at once."""
        full = len(self._batches) > len(self._threads)
        return [one for one in self._batches if one.left and (one.begun or full)]

    def _stalls(self, batch: Batch) -> float:
        """Return when a waiting batch has waited for too long; a queue that moves on is no stall."""
        if batch.begun:
            return batch.since + STALL_SECONDS
        moved = max((one.since for one in self._batches if one.begun), default=batch.since)
        return min(max(batch.since, moved) + STALL_SECONDS, batch.since + LONGEST_WAIT_SECONDS)

    def _forget(self, attempt: Attempt) -> None:
        self._count -= 1
        self.in_hand.attempts.pop(attempt.task_id.int, None)
        if attempt.timeout is not None:
            self._limited.pop(attempt.fence, None)


def _emptied(left: deque[Running]) -> list[Attempt]:
    attempts = []
    with contextlib.suppress(IndexError):
        while True:
            attempts.append(left.pop().attempt)
    return attempts
