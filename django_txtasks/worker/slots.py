"""The threads that run tasks: nothing else runs user code, and they write no row but by a task's own."""

from __future__ import annotations

import contextlib
import queue
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from django.db import connections

from django_txtasks.lifecycle.attempts import Arrow, Attempt, Ended
from django_txtasks.worker.connections import close_old
from django_txtasks.worker.in_hand import InHand, Key
from django_txtasks.worker.limits import NEVER, NO_LIMIT, TimeLimit

Fence = tuple[uuid.UUID, int, uuid.UUID]
STALL_SECONDS = 0.15
"""Seconds that the tasks of a batch wait for one of them, or for any slot, before they are released."""
LONGEST_WAIT_SECONDS = 0.5
"""Seconds that a batch waits for a slot while others go on: more than is ever claimed ahead on purpose."""


class Running(NamedTuple):
    """An attempt in a slot, and how long it may take."""

    attempt: Attempt
    limit: TimeLimit


@dataclass(eq=False)
class Batch:
    """Attempts that one slot runs one after the other.

    Attributes:
        attempts: all of them.
        left: those that have not begun; a slot takes them from one end, the loop from the other.
        good_until: when their claim is too old to begin, by ``time.monotonic()``.
        begun: a slot has taken it.
        since: when its last attempt began, or the batch was handed over, by the same clock.
    """

    attempts: list[Attempt]
    left: deque[Running]
    good_until: float
    begun: bool = False
    since: float = field(default_factory=time.monotonic)


class Slots:
    """So many threads, each running one attempt at a time.

    Args:
        run: runs an attempt to its end and never raises.
        wake: called from a slot when it is free again.
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
        self._run, self._wake, self._patience, self._took = run, wake, patience, took
        self._work: queue.SimpleQueue[Batch | None] = queue.SimpleQueue()
        self._ended: deque[tuple[Ended, float]] = deque()
        self._over: deque[Batch] = deque()
        self._batches: set[Batch] = set()
        self._too_old: list[Attempt] = []
        self._count = 0
        self._limited: dict[Fence, Running] = {}
        self.in_hand = InHand()
        self._threads = [
            threading.Thread(target=self._slot, name=f"txtasks-slot-{number}", daemon=True)
            for number in range(1, count + 1)
        ]
        for thread in self._threads:
            thread.start()

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
        """(id, attempt) of what is running, of what its slot has run before it, and of what is kept back."""
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
        self._work.put(batch)

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
        over = [self._over.popleft() for _ in range(len(self._over))]
        while self._ended:
            one, seconds = self._ended.popleft()
            self._forget(one.attempt)
            self._took(one.attempt.task_name, seconds)
            ended.append(one)
        self._batches.difference_update(over)
        for batch in over:
            self._too_old += _emptied(batch.left)
        return ended

    def close(self) -> None:
        """End the threads, which must be idle."""
        for _ in self._threads:
            self._work.put(None)
        for thread in self._threads:
            thread.join()

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

    def _slot(self) -> None:
        while (batch := self._next()) is not None:
            self._run_batch(batch)
        connections.close_all()

    def _next(self) -> Batch | None:
        """Wait for work; connections whose age is over end meanwhile."""
        while True:
            with contextlib.suppress(queue.Empty):
                return self._work.get(timeout=close_old())

    def _run_batch(self, batch: Batch) -> None:
        batch.since, batch.begun = time.monotonic(), True
        with contextlib.suppress(IndexError):  # none is left, or they were released
            while (now := time.monotonic()) < batch.good_until:
                running = batch.left.popleft()
                batch.since = now
                ended = self._run_one(running)
                self._ended.append((ended, time.monotonic() - now))
        self._over.append(batch)
        self._wake()

    def _run_one(self, running: Running) -> Ended:
        try:
            return self._run(running.attempt, running.limit)
        except BaseException as error:  # a slot that died would keep its row claimed for ever
            died = {"type": repr(type(error))}
            return Ended(attempt=running.attempt, arrow=Arrow.BURY, error=died)


def _emptied(left: deque[Running]) -> list[Attempt]:
    attempts = []
    with contextlib.suppress(IndexError):
        while True:
            attempts.append(left.pop().attempt)
    return attempts
