"""The interface between a drain and the system that gets the rows."""

from __future__ import annotations

import uuid
from collections.abc import Sequence, Set
from dataclasses import dataclass, field
from typing import Protocol

from django_txtasks.exceptions import Away
from django_txtasks.features.hand_over.rows import Row

OVERTAKEN = "RabbitMQ has confirmed later messages, and not this one"
"""Reason of a row that is due again later, because it must not keep the others waiting."""


class NotReturned(Away):
    """A call of the target has not returned in time. Its later effects are unknown."""


class Postponed(Exception):
    """The other system has not taken a row, and is asked again. Nothing raises it: rows name it as their error."""


@dataclass
class Answers:
    """The answers to the rows of one call of ``Target.send``.

    A row that is in none of the first three stays as it is: its answer is unknown, and the next pass sends it
    again.

    Attributes:
        taken: the other system has the row for certain. The row becomes history.
        postponed: it has not taken the row, with the reason. The row stays pending, and is due later.
        refused: it can never take the row, with the reason. The row is dead at once.
        broken: one of the rows has broken the call, with the reason, so the answers to the others are unknown. The
            drain then sends the unanswered rows one by one, and postpones a row that breaks a call alone.
        away: the other system cannot be reached, with the reason; the drain waits. Empty: it can.
    """

    taken: set[uuid.UUID] = field(default_factory=set)
    postponed: dict[uuid.UUID, str] = field(default_factory=dict)
    refused: dict[uuid.UUID, str] = field(default_factory=dict)
    broken: str = ""
    away: str = ""

    def add(self, other: Answers) -> None:
        """Add the answers of another call."""
        self.taken |= other.taken
        self.postponed |= other.postponed
        self.refused |= other.refused
        self.broken, self.away = other.broken, other.away

    def about(self, ids: Set[uuid.UUID]) -> Answers:
        """Leave out answers to other rows, such as the rows of an earlier call; return itself."""
        self.taken &= ids
        for told in (self.postponed, self.refused):
            for other in told.keys() - ids:
                del told[other]
        return self

    @property
    def known(self) -> set[uuid.UUID]:
        """The ids of the rows with an answer."""
        return self.taken | self.postponed.keys() | self.refused.keys()


class Target(Protocol):
    """A system that gets the rows of one queue. One thread calls it.

    If a call does not return, ``CalledTarget`` gives the object up, and another object takes its place.
    ``TXTASKS["hand_over"]`` may name an object with a method ``txtasks_target(queue, ordered=...)``, which returns
    one.
    """

    def look_after(self) -> None:
        """Connect if necessary, and answer to the other system. A drain calls it before each pass, and at least
        once a second while nothing is due. It holds no lock then.

        Raises:
            Away: the other system cannot be reached.
        """

    def send(self, rows: Sequence[Row], until: float) -> Answers:
        """Send these rows in their order, and wait for the answers.

        The rows are locked meanwhile. Any error other than ``Away`` and ``Refused`` counts as ``broken``.

        Args:
            rows: at least one; in an ordered queue one, because a later row must not arrive before it.
            until: the time, by ``time.monotonic()``, at which it must return with the answers that it has.

        Raises:
            Away: the other system cannot be reached, and no answer is known.
            Refused: it can never take the only row.
        """

    def close(self) -> None:
        """End its connections. It may be used again afterwards."""
