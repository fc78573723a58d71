"""Removal of old rows, batch by batch in the order of their time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from django.db import DatabaseError

from django_txtasks.database.errors import took_too_long
from django_txtasks.lifecycle import cleaning
from django_txtasks.lifecycle.cleaning import Place, Removed

SLOW_LOOK_SECONDS = 0.5
"""Seconds. If a walk spends more on rows that it does not remove, or on its first look, it rests."""
REST_SECONDS = 600.0
"""Seconds until the next walk from the oldest rows then, or RESTS times as long as this one took."""
RESTS = 20


class Removal:
    """Walks through old rows, from the oldest to the youngest, and removes those that may be removed.

    Each batch begins where the last one ended, and a pass goes on where the last pass had to stop. Removed rows
    stay in the index until they are vacuumed, which a transaction that is open for hours forbids, and some rows
    have to stay: a walk that began anew each time would pass all of them each time.

    After a whole walk the next pass begins with the oldest rows again, because rows may be committed late and
    rows that had to stay may be removable by now. If a walk took long, the passes of the next minutes only
    look at what has become old since.

    Args:
        remove: looks at a batch of rows behind a place, in a transaction of its own; None = at the oldest rows.
        recent: returns the place behind which lie the rows that have become old since the last pass.
        clock: monotonic seconds.
        tell: tells of an error for which the oldest rows are left alone for a while.
    """

    def __init__(
        self,
        remove: Callable[[Place | None], Removed],
        recent: Callable[[], Place],
        clock: Callable[[], float],
        tell: Callable[[DatabaseError], None],
    ) -> None:
        self._remove, self._recent, self._clock, self._tell = remove, recent, clock, tell
        self._place: Place | None = None
        self._is_whole, self._has_ended = True, False  # this walk, which began with the oldest rows
        self._spent = 0.0  # seconds of this walk, on rows that were not removed
        self._rests_until = float("-inf")

    def begin(self) -> None:
        """Begin a pass: with the oldest rows, if the last walk has come to its end and the rest is over."""
        if self._has_ended and self._clock() >= self._rests_until:
            self._place, self._is_whole, self._has_ended = None, True, False

    def batch(self) -> tuple[Sequence[Any], bool]:
        """Look at a batch; return the rows that were removed, and say if there may be more.

        Raises:
            DatabaseError: it failed, and not because looking for the oldest rows took too long.
        """
        place, began = self._place, self._clock()
        try:
            removed = self._remove(place)
        except DatabaseError as error:
            if place is not None or not took_too_long(error):
                raise
            self._tell(error)
            self._rest_after(0.0)
            return (), True
        seconds = self._clock() - began
        self._spent += seconds * (1 - len(removed.rows) / max(1, removed.looked))
        self._place = removed.place or place
        if place is None and seconds > SLOW_LOOK_SECONDS:
            self._rest_after(seconds)
        self._has_ended = removed.looked < cleaning.BATCH_ROWS
        if self._has_ended:
            if self._is_whole and self._spent > SLOW_LOOK_SECONDS:
                self._rest_after(self._spent)
            self._spent = 0.0
        return removed.rows, not self._has_ended

    def _rest_after(self, seconds: float) -> None:
        self._is_whole = False
        self._rests_until = self._clock() + max(REST_SECONDS, RESTS * seconds)
        self._place = self._place or self._recent()
