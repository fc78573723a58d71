"""The threads that run tasks: nothing else runs user code, and they write no row but by a task's own."""

from __future__ import annotations

import queue
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass

from django.db import connections

from django_txtasks.lifecycle.attempts import Arrow, Attempt, Ended
from django_txtasks.worker.limits import NEVER, TimeLimit

Fence = tuple[uuid.UUID, int, uuid.UUID]


@dataclass(frozen=True)
class Running:
    """An attempt in a slot, and how long it may take."""

    attempt: Attempt
    limit: TimeLimit


class Slots:
    """So many threads, each running one attempt at a time.

    Args:
        run: runs an attempt to its end and never raises.
        ring: called from a slot when one has ended.
        patience: seconds that an attempt has for its end after TimedOut was raised in it.
    """

    def __init__(
        self,
        count: int,
        *,
        run: Callable[[Attempt, TimeLimit], Ended],
        ring: Callable[[], None],
        patience: float,
    ) -> None:
        self._run, self._ring, self._patience = run, ring, patience
        self._work: queue.SimpleQueue[Running | None] = queue.SimpleQueue()
        self._ended: queue.SimpleQueue[Ended] = queue.SimpleQueue()
        self._running: dict[Fence, Running] = {}
        self._threads = [
            threading.Thread(target=self._slot, name=f"txtasks-slot-{number}", daemon=True)
            for number in range(1, count + 1)
        ]
        for thread in self._threads:
            thread.start()

    @property
    def running(self) -> int:
        """How many attempts were started and not yet collected."""
        return len(self._running)

    @property
    def free(self) -> int:
        """How many attempts can start at once."""
        return len(self._threads) - len(self._running)

    def holds(self) -> set[tuple[uuid.UUID, int]]:
        """(id, attempt) of what is running."""
        return {(task_id, number) for task_id, number, _ in self._running}

    def start(self, attempt: Attempt) -> None:
        """Give an attempt to a free slot."""
        running = Running(attempt, TimeLimit(attempt.timeout))
        self._running[attempt.fence] = running
        self._work.put(running)

    def enforce_limits(self) -> list[Running]:
        """Raise TimedOut where it is time; return those that did not end by it."""
        now = time.monotonic()
        for running in self._running.values():
            running.limit.enforce(now)
        return [one for one in self._running.values() if one.limit.overrun(self._patience, now)]

    @property
    def next_limit(self) -> float:
        """When to enforce limits again, by ``time.monotonic()``."""
        return min(
            (one.limit.next(self._patience) for one in self._running.values()), default=NEVER
        )

    def collect(self) -> list[Ended]:
        """Return what has ended since the last call."""
        ended: list[Ended] = []
        while True:
            try:
                one = self._ended.get_nowait()
            except queue.Empty:
                return ended
            del self._running[one.attempt.fence]
            ended.append(one)

    def close(self) -> None:
        """End the threads, which must be idle."""
        for _ in self._threads:
            self._work.put(None)
        for thread in self._threads:
            thread.join()

    def _slot(self) -> None:
        while (running := self._work.get()) is not None:
            try:
                ended = self._run(running.attempt, running.limit)
            except BaseException as error:  # a slot that died would keep its row claimed for ever
                died = {"type": repr(type(error))}
                ended = Ended(attempt=running.attempt, arrow=Arrow.BURY, error=died)
            self._ended.put(ended)
            self._ring()
        connections.close_all()
