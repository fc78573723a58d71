"""The caller's part in a long call: it can stop the call, keep the place that the call has reached, and go on."""

from __future__ import annotations

from django_txtasks.operations.moved import Moved
from django_txtasks.operations.rows import Place


class Watcher:
    """Watches a call. A subclass may raise in ``may_go_on`` and ``looked``: then the slices before stay done.

    Attributes:
        place: the place from which the call goes on; None = from the start.
        moved: the counts up to that place.
    """

    place: Place | None = None
    moved = Moved()

    def looked(self, rows: int) -> None:
        """Note the number of rows that have been read. It is called between transactions, after each statement."""

    def may_go_on(self) -> None:
        """Note that the next slice is about to begin."""

    def done(self, place: Place, moved: Moved) -> None:
        """Note the end of a slice, in its transaction."""
