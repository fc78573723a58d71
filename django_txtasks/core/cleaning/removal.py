"""Removal of old rows in chunks, oldest first."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from django.db import DatabaseError

from django_txtasks.core.rows import cleaning
from django_txtasks.core.rows.cleaning import Place, Removed
from django_txtasks.database.errors import took_too_long

SLOW_LOOK_SECONDS = 0.5
"""Seconds. A walk that spends more on rows that it keeps, or on its first look, is followed by a rest."""
REST_SECONDS = 600.0
"""Seconds until the next walk from the oldest rows, or RESTS times the duration of this one if that is longer."""
RESTS = 20
DAY_SECONDS = 86400.0
"""Seconds from the begin of a ``DailyRemoval``'s walk to the begin of the next one."""
KEPT_PER_PASS = 10_000
"""Number of rows that stay which a ``DailyRemoval`` reads in a pass."""


class Removal:
    """Walks through old rows, oldest first, and removes all removable ones.

    Each chunk begins where the last one ended, and a pass continues where the last pass stopped. Removed
    rows stay in the index until VACUUM, which a transaction that is open for hours prevents, and some rows
    have to stay. A walk from the start would read all of them each time.

    After a whole walk the next pass begins with the oldest rows again, because rows may be committed late,
    and rows that had to stay may be removable now. After a slow walk, the passes of the next minutes read
    only rows that have become old since.

    Args:
        remove: removes a chunk of rows behind a place, in its own transaction; None = from the oldest rows.
        recent: returns the place behind which rows have become old since the last pass.
        clock: monotonic seconds.
        tell: reports the error because of which the oldest rows are skipped for a while.
        begin_at: returns the place where a whole walk begins; None = at the oldest rows.
        patience: seconds that a whole walk may spend on rows that it keeps without a rest.
    """

    def __init__(
        self,
        remove: Callable[[Place | None], Removed],
        recent: Callable[[], Place],
        clock: Callable[[], float],
        tell: Callable[[DatabaseError], None],
        *,
        begin_at: Callable[[], Place | None] = lambda: None,
        patience: float = SLOW_LOOK_SECONDS,
    ) -> None:
        self._remove, self._recent, self._clock, self._tell = remove, recent, clock, tell
        self._begin_at, self._patience = begin_at, patience
        self._place: Place | None = None
        # of this walk; it is whole if it began with the oldest rows
        self._is_first_look, self._is_whole, self._has_ended = True, True, True
        self._spent = 0.0  # seconds that this walk has spent on rows that it kept
        self._rests_until = float("-inf")

    def begin(self) -> None:
        """Begin a pass. It starts with the oldest rows if the last walk has ended and the rest is over."""
        if self._has_ended and self._clock() >= self._rests_until:
            self._place = self._begin_at()
            self._is_first_look, self._is_whole, self._has_ended = True, True, False

    def chunk(self) -> tuple[Sequence[Any], bool]:
        """Remove one chunk; return the removed rows, and True if there may be more.

        Raises:
            DatabaseError: any failure except a timeout of the look for the oldest rows.
        """
        is_first, self._is_first_look = self._is_first_look, False
        place, began = self._place, self._clock()
        try:
            removed = self._remove(place)
        except DatabaseError as error:
            if not is_first or not took_too_long(error):
                raise
            self._tell(error)
            self._place = None
            self._rest_after(0.0)
            return (), True
        seconds = self._clock() - began
        self._spent += seconds * (1 - len(removed.rows) / max(1, removed.looked))
        self._place = removed.place or place
        if is_first and seconds > SLOW_LOOK_SECONDS:
            self._rest_after(seconds)
        self._has_ended = removed.looked < cleaning.ROWS_PER_LOOK
        if self._has_ended:
            if self._is_whole and self._spent > self._patience:
                self._rest_after(self._spent)
            self._spent = 0.0
        return removed.rows, not self._has_ended

    def _rest_after(self, seconds: float) -> None:
        self._is_whole = False
        self._rests_until = self._clock() + max(REST_SECONDS, RESTS * seconds)
        self._place = self._place or self._recent()


class DailyRemoval:
    """Walks through old rows from the oldest one, once a day and slowly.

    It is for rows among which others stay for long, such as a year. A ``Removal`` beside it removes the rows
    that have become old within the last day. This walk finds the rows that it has missed: after a pause of
    all cleaners, after a shorter time in the settings, or because a row that had to stay may go now.

    Args:
        remove, clock: see ``Removal``.
        tell: reports the error that ends the walk of this day.
    """

    def __init__(
        self,
        remove: Callable[[Place | None], Removed],
        clock: Callable[[], float],
        tell: Callable[[DatabaseError], None],
    ) -> None:
        self._remove, self._clock, self._tell = remove, clock, tell
        self._place: Place | None = None
        self._has_ended, self._next, self._left = True, float("-inf"), 0

    def begin(self) -> None:
        """Begin a pass. It continues the walk of the last pass, or begins the walk of this day."""
        self._left = KEPT_PER_PASS
        if self._clock() >= self._next and self._has_ended:
            self._place, self._has_ended = None, False
            self._next = self._clock() + DAY_SECONDS

    def chunk(self) -> tuple[Sequence[Any], bool]:
        """Remove one chunk; return the removed rows, and True if this pass reads more.

        Raises:
            DatabaseError: any failure except a timeout.
        """
        if self._has_ended or self._left <= 0:
            return (), False
        try:
            removed = self._remove(self._place)
        except DatabaseError as error:
            if not took_too_long(error):
                raise
            self._tell(error)
            self._has_ended = True
            return (), False
        self._place = removed.place or self._place
        self._left -= removed.looked - len(removed.rows)
        self._has_ended = removed.looked < cleaning.ROWS_PER_LOOK
        return removed.rows, not self._has_ended
