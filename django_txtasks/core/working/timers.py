"""Timers for single tasks: near retries, and hinted tasks whose row is not visible yet."""

from __future__ import annotations

import heapq
import uuid
from collections.abc import Iterable, Mapping

MAX_IDS = 1000
"""Maximum number of timers; a scan finds due tasks beyond them."""


class Timers:
    """Ids to look up at certain times, by ``time.monotonic()``.

    Args:
        retry: seconds until an absent id is looked up again.
        giveup: seconds until an absent id is forgotten.
    """

    def __init__(self, *, retry: float, giveup: float) -> None:
        self._retry, self._giveup = retry, giveup
        self._at: dict[uuid.UUID, float] = {}
        self._heap: list[tuple[float, uuid.UUID]] = []  # may hold times that have changed since
        self._until: dict[uuid.UUID, float] = {}

    def due_in(self, waits: Mapping[uuid.UUID, float], now: float) -> None:
        """Look up each of these ids after its number of seconds."""
        for task_id, wait in waits.items():
            self._set(task_id, now + wait)

    def absent(self, ids: Iterable[uuid.UUID], now: float) -> None:
        """Set timers for ids that have no row yet; forget the ids that have been absent for too long."""
        for task_id in ids:
            until = self._until.get(task_id, now + self._giveup)
            if now + self._retry <= until and self._set(task_id, now + self._retry):
                self._until[task_id] = until
            else:
                self._until.pop(task_id, None)

    def pop_due(self, now: float, most: int = MAX_IDS) -> list[uuid.UUID]:
        """Remove and return the ids that are due, the earliest first."""
        due: list[uuid.UUID] = []
        while len(due) < most and self.next() <= now:
            task_id = heapq.heappop(self._heap)[1]
            del self._at[task_id]
            due.append(task_id)
        return due

    def found(self, ids: Iterable[uuid.UUID]) -> None:
        """Forget the waits for ids that now have a row."""
        for task_id in ids:
            self._until.pop(task_id, None)

    def next(self) -> float:
        """Return the earliest time; infinity if there is no timer."""
        while self._heap and self._at.get(self._heap[0][1]) != self._heap[0][0]:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else float("inf")

    def _set(self, task_id: uuid.UUID, at: float) -> bool:
        """Set a timer. Return False if there are too many."""
        if len(self._at) >= MAX_IDS:
            return False
        self._at[task_id] = at
        heapq.heappush(self._heap, (at, task_id))
        return True
