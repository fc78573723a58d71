"""Removal of old rows, batch by batch in the order of their time."""

from __future__ import annotations

from collections.abc import Callable

from django.db import DatabaseError

from django_txtasks.lifecycle import cleaning
from django_txtasks.lifecycle.cleaning import Removed

SLOW_LOOK_SECONDS = 0.5
"""Seconds. If looking for the oldest rows takes longer, too many removed rows are still in the index."""
REST_SECONDS = 600.0
"""Seconds until the next look then."""


class Removal:
    """Removes what is old, and goes on behind it.

    Removed rows stay in the index until they are vacuumed, which a transaction that is open for hours forbids:
    whoever began with the oldest each time would walk past all of them each time. So each batch begins where
    the last one ended. Each pass begins with the oldest again, since rows may be committed late; but if that
    was dear, only after a rest.

    Args:
        remove: removes a batch of what is not older than a time, in a transaction of its own; None = of all.
        recent: returns a time behind which lie the rows that have become old since the last pass.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        remove: Callable[[str | None], Removed],
        recent: Callable[[], str],
        clock: Callable[[], float],
    ) -> None:
        self._remove, self._recent, self._clock = remove, recent, clock
        self._since: str | None = None
        self._rests_until = float("-inf")

    def begin(self) -> None:
        """Begin a pass: with the oldest rows, unless they are to be left alone."""
        if self._clock() >= self._rests_until:
            self._since = None

    def batch(self) -> tuple[int, bool]:
        """Remove a batch; return how many rows, and whether there may be more.

        Raises:
            DatabaseError: it failed, and not for the oldest rows alone.
        """
        since, began = self._since, self._clock()
        try:
            removed = self._remove(since)
        except DatabaseError:
            if since is not None:
                raise
            self._leave_oldest_alone()
            return 0, True
        self._since = removed.until or since
        if since is None and self._clock() - began > SLOW_LOOK_SECONDS:
            self._leave_oldest_alone()
        return len(removed.rows), len(removed.rows) + len(removed.stuck) == cleaning.BATCH_ROWS

    def _leave_oldest_alone(self) -> None:
        self._rests_until = self._clock() + REST_SECONDS
        self._since = self._since or self._recent()
