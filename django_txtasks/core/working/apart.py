"""Rows that scans leave out. A feature claims them, in turns that claim nothing else."""

from __future__ import annotations

import uuid
from collections.abc import Sequence, Set
from typing import Any

from django_txtasks.core.rows.turn import Capacity, Subscription, TurnResult
from django_txtasks.core.working.running.limits import NEVER


class RowsApart:
    """The rows of one worker that scans leave out, in groups with names. Without a feature, no row is left out.

    Other turns and these alternate. The transaction of such a turn sees what others have committed meanwhile:
    READ COMMITTED.
    """

    @property
    def next(self) -> float:
        """Time at which a turn may find such a row, by ``time.monotonic()``; 0 = now."""
        return NEVER

    def is_idle(self, now: float) -> bool:
        """Return True if no such row is due within a poll interval."""
        return True

    def are_served(self, group: str) -> bool:
        """Return True if workers run the tasks of this group."""
        return False

    def request(self, room: int, now: float, reserved: Set[str] = frozenset()) -> Any:
        """Return what the next turn is to claim: at most ``room`` rows, and none of the ``reserved`` groups."""

    def request_of(self, groups: Sequence[str]) -> Any:
        """Return what a turn is to claim that claims one row of these groups."""

    def look_again(self) -> None:
        """Look for groups with the next turn, because a task may have been enqueued."""

    def failed(self, now: float) -> None:
        """Prepare the next turns: the last one took too long because of a group."""

    def prepare(self, alias: str, request: Any) -> None:
        """Write what a request needs, before the transaction of its turn."""

    def claim(
        self, subscription: Subscription, worker: uuid.UUID, capacity: Capacity, request: Any
    ) -> TurnResult:
        """Claim what a request asks for, in the open transaction of a turn."""
        raise NotImplementedError("there is no request without a feature")
