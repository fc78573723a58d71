"""The near future: tasks that are due in a moment, and hints whose row is not there yet."""

from __future__ import annotations

import heapq
import uuid
from collections.abc import Iterable, Mapping

MAX_IDS = 1000
"""Ids that may wait here; the scan finds what is due beyond them."""


class Timers:
    """Ids to look up at a time. Times are those of ``time.monotonic()``.

    Args:
        retry: seconds after which the row of an absent id is looked up again.
        giveup: seconds after which an absent id is forgotten.
    """

    def __init__(self, *, retry: float, giveup: float) -> None:
        self._retry, self._giveup = retry, giveup
        self._at: dict[uuid.UUID, float] = {}
        self._heap: list[tuple[float, uuid.UUID]] = []  # may hold times that were changed since
        self._until: dict[uuid.UUID, float] = {}

    def due_in(self, waits: Mapping[uuid.UUID, float], now: float) -> None:
        """Look these up when so many seconds have passed."""
        for task_id, wait in waits.items():
            self._set(task_id, now + wait)

    def absent(self, ids: Iterable[uuid.UUID], now: float) -> None:
        """Set timers for ids that have no row yet, until it has taken too long."""
        for task_id in ids:
            until = self._until.get(task_id, now + self._giveup)
            if now + self._retry <= until and self._set(task_id, now + self._retry):
                self._until[task_id] = until
            else:
                self._until.pop(task_id, None)

    def pop_due(self, now: float, most: int = MAX_IDS) -> list[uuid.UUID]:
        """Return ids whose time has come, the earliest first."""
        due: list[uuid.UUID] = []
        while len(due) < most and self.next() <= now:
            task_id = heapq.heappop(self._heap)[1]
            del self._at[task_id]
            due.append(task_id)
        return due

    def found(self, ids: Iterable[uuid.UUID]) -> None:
        """Remove ids that have a row."""
        for task_id in ids:
            self._until.pop(task_id, None)

    def next(self) -> float:
        """Return the earliest time; infinity if nothing waits."""
        while self._heap and self._at.get(self._heap[0][1]) != self._heap[0][0]:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else float("inf")

    def _set(self, task_id: uuid.UUID, at: float) -> bool:
        """False = too many wait already."""
        if len(self._at) >= MAX_IDS:
            return False
        self._at[task_id] = at
        heapq.heappush(self._heap, (at, task_id))
        return True
