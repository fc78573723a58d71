"""Delivers hints from the database to a worker's inbox, while the worker listens."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Hint:
    """Ids that every worker was told, so that nobody has to give them back.

    Attributes:
        more: others wait that no hint names.
        settle: they have been looked up.
        release: they were not, and others may have been told in vain, too.
    """

    ids: Sequence[uuid.UUID]
    more: bool
    settle: Callable[[], None]
    release: Callable[[], None]


class Delivery:
    """What a worker was told while it did not listen is made good by one scan when it listens again.

    Args:
        deliver: takes each Hint, on any thread.

    Attributes:
        is_on: the worker listens.
    """

    def __init__(self, deliver: Callable[[Hint], None]) -> None:
        self._deliver = deliver
        self._has_missed = False
        self.is_on = True

    def listen(self, on: bool) -> None:
        """Deliver from now on, or drop. Called by the worker's loop; it returns at once."""
        if on == self.is_on:
            return
        self.is_on = on
        if on and self._has_missed:
            self.tell_of_more()

    def put(self, ids: Sequence[uuid.UUID], *, more: bool = False) -> None:
        """Deliver a hint of these ids."""
        if not self.is_on:
            self._has_missed = True
        if self.is_on:  # read again: if it listens since a moment, it may have looked for what was missed before
            self._deliver(Hint(ids, more, settle=_nothing, release=self._missed))

    def tell_of_more(self) -> None:
        """Deliver a hint that names nothing: the worker scans."""
        self._has_missed = False
        self.put((), more=True)

    def _missed(self) -> None:
        self._has_missed = True


def _nothing() -> None:
    """Do nothing: nobody waits for the answer."""
