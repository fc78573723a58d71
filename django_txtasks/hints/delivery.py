"""Delivers hints from the database to a worker's inbox, while the worker listens."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Hint:
    """Ids that every worker was told, so that no worker has to give them back.

    Attributes:
        more: True if other tasks wait that no hint names.
        settle: called when the ids have been looked up.
        decline: called when they were not. Other workers may have been told in vain, too.
    """

    ids: Sequence[uuid.UUID]
    more: bool
    settle: Callable[[], None]
    decline: Callable[[], None]


class Delivery:
    """After a time without listening, one scan replaces the hints that a worker has missed.

    Args:
        deliver: takes each Hint, in any thread.

    Attributes:
        is_on: True while the worker listens.
    """

    def __init__(self, deliver: Callable[[Hint], None]) -> None:
        self._deliver = deliver
        self._has_missed = False
        self.is_on = True

    def listen(self, on: bool) -> None:
        """Deliver from now on, or drop. The worker's loop calls it; it returns at once."""
        if on == self.is_on:
            return
        self.is_on = on
        if on and self._has_missed:
            self.tell_of_more()

    def put(self, ids: Sequence[uuid.UUID], *, more: bool = False) -> None:
        """Deliver a hint of these ids."""
        if not self.is_on:
            self._has_missed = True
        # Read again: if the worker began to listen just now, it may have looked for missed hints before.
        if self.is_on:
            self._deliver(Hint(ids, more, settle=_nothing, decline=self._missed))

    def tell_of_more(self) -> None:
        """Deliver a hint without ids, so that the worker scans."""
        self._has_missed = False
        self.put((), more=True)

    def _missed(self) -> None:
        self._has_missed = True


def _nothing() -> None:
    """Do nothing, because nothing waits for the answer."""
