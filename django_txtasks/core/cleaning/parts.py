"""Steps that features add to a cleaner's pass, and work that they add beside the passes.

A feature names its module in ``assembly``. The module has a function ``steps``, which gets a ``StepContext`` and
returns pairs of a ``Place`` and a step, or objects of the class ``Beside``. Steps of one place follow the order of
features.
"""

from __future__ import annotations

import enum
import math
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from django_txtasks.core.cleaning.passes import Step
from django_txtasks.core.ground.seams import OF_CLEANER
from django_txtasks.database.side_tables import Sweep
from django_txtasks.database.transactions import own_transaction

if TYPE_CHECKING:
    from django_txtasks.core.cleaning.renotifier import Notify
    from django_txtasks.core.ground.config import CoreConfig

LOOKS_WITHOUT_CHANGE = 20
"""Looks of one sweep in one pass that find nothing to change: 10,000 tasks."""


class Place(enum.IntEnum):
    """The place of a step in a pass. A step that fails stops no other step, except at the end of the session."""

    URGENT = 1
    """Tasks wait for the step."""
    SOON = 2
    """Hints and reports."""
    LATE = 3
    """Removal of rows that nothing needs."""
    LAST = 4
    """Steps that may take long."""


@dataclass(frozen=True)
class StepContext:
    """The cleaner, as its steps see it.

    Attributes:
        notify: sends hints for (id, queue) pairs; None = hints are off.
        emit: emits a signal with its facts.
        clock: monotonic seconds.
    """

    config: CoreConfig
    alias: str
    notify: Notify | None
    emit: Callable[..., None]
    clock: Callable[[], float]

    def transaction(self) -> Any:
        """Return a transaction for one bounded piece of work."""
        return own_transaction(self.alias, limit=self.config.lease / 2, in_order=True)

    def interval_from_now(self) -> float:
        """Return the time, by ``clock``, at which a step that has begun now should end."""
        return self.clock() + self.config.clean_interval.total_seconds()


class Sweeping:
    """Sweeps through the rows of a table. Each pass continues behind the last row of the pass before."""

    def __init__(self, context: StepContext, sweep: Sweep) -> None:
        self._context, self._sweep = context, sweep
        self._place: Any = None

    def looks(self, end: float) -> Iterator[Counter[str]]:
        """Sweep until ``end``, until all rows were read, or until enough looks have found nothing to change."""
        context, looks = self._context, LOOKS_WITHOUT_CHANGE
        while looks and context.clock() <= end:
            with context.transaction():
                changed, self._place = self._sweep(context.alias, self._place)
            looks = 0 if self._place is None else looks - (not changed)
            yield Counter()


class Beside:
    """Work of a feature beside the passes, in each turn of a cleaner.

    Attributes:
        counted: the names of its counts.
        error: why the last work could do nothing; empty = it succeeded.
    """

    counted: tuple[str, ...] = ()
    error = ""

    def begin(self) -> None:
        """Begin a turn, before its first statement.

        Raises:
            DatabaseError: the turn must begin again.
        """

    def pause(self) -> float:
        """Return the seconds until the next work."""
        return math.inf

    def work(self, end: float) -> Counter[str]:
        """Do the due work until ``end``, by the clock of the cleaner; return the counts.

        Raises:
            DatabaseError: the database accepts no writes at all.
        """
        return Counter()


def parts_of(context: StepContext) -> tuple[list[tuple[Place, Step]], list[Beside]]:
    """Import the modules; return their steps of a pass, and their work beside the passes."""
    found = [one for module in OF_CLEANER.modules for one in module.steps(context)]
    beside = [one for one in found if isinstance(one, Beside)]
    return [one for one in found if not isinstance(one, Beside)], beside
