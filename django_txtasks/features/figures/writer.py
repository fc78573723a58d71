"""Writes the figures of a worker, as rows of their own: every 15 s if any attempt has ended, else every 60 s."""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import NamedTuple

from django.db import DatabaseError, InterfaceError, OperationalError, connections

from django_txtasks import signals
from django_txtasks.core.rows.attempts import Ended
from django_txtasks.core.working.parts import Part
from django_txtasks.core.working.registration import Registration
from django_txtasks.database import cost
from django_txtasks.database.errors import is_repeatable, text_of
from django_txtasks.database.transactions import own_transaction
from django_txtasks.features.figures.appending import WRITE_IDLE_SECONDS, WRITE_SECONDS, append_once
from django_txtasks.features.figures.of_arrows import count_ends, count_times
from django_txtasks.features.figures.tally import Tally

_STEPS = 1000


class _Batch(NamedTuple):
    """Figures that are to be written once: under this id of the worker and this number."""

    worker: uuid.UUID
    seq: int
    tally: Tally


class FigureWriter(Part):
    """Writes in a transaction of its own, between turns. A failure changes nothing for the worker's turns.

    The first write comes after a part of the interval that depends on the worker's id, so that workers which start
    together write apart.

    Args:
        limit: the longest time for a write.

    Attributes:
        tally: the counts that are not written yet.
    """

    def __init__(self, alias: str, registration: Registration, limit: timedelta) -> None:
        self._alias, self._registration, self._limit = alias, registration, limit
        self.tally, self.looks = Tally(), (self,)
        self._batch: _Batch | None = None  # not known to be written
        self._seq = 0
        self._at = 0.0
        self._has_failed = False

    def collected(self, ended: Sequence[tuple[Ended, float]]) -> None:
        """Count the times of ended attempts."""
        count_times(self.tally, ended)

    def recorded(self, ended: Sequence[Ended]) -> None:
        """Count the recorded ends."""
        count_ends(self.tally, ended)

    def ended_lately(self) -> Mapping[str, str]:
        """Return the functions that are counted and not written, each with its queue."""
        return {name.task: name.queue for name, _ in self.tally.items()}

    def leaving(self) -> None:
        """Write the rest."""
        self.write()

    @property
    def next(self) -> float:
        """Time of the next write, by ``time.monotonic()``."""
        return self._at if self.tally or self._batch else self._at + WRITE_IDLE_SECONDS

    def look(self) -> bool:
        """Write, if the worker has a row. Return False: this look finds no work. Never raises for the database."""
        worker, is_first = self._registration.id, not self._at
        self._at = time.monotonic() + WRITE_SECONDS
        if worker is not None and is_first:
            self._at -= WRITE_SECONDS * (worker.int % _STEPS) / _STEPS
        elif worker is not None:
            self.write()
        return False

    def write(self) -> None:
        """Write all figures now. If that fails, the next call repeats it under the same number."""
        try:
            self._write_batch()
            if self._registration.id is not None:
                self._write_tally(self._registration.id)
            self._has_failed = False
        except (DatabaseError, InterfaceError) as error:
            if isinstance(error, (OperationalError, InterfaceError)) and not is_repeatable(error):
                connections[self._alias].close()  # after a failover it may be read-only
            if not self._has_failed:
                signals.figures_not_written.emit(
                    worker=self._registration.id, delay=WRITE_SECONDS, error=text_of(error)
                )
            self._has_failed = True

    def _write_tally(self, worker: uuid.UUID) -> None:
        tally = self.tally.take()
        tally.add_cost(cost.take(self._alias))
        if tally:
            self._seq += 1
            self._batch = _Batch(worker, self._seq, tally)
            self._write_batch()

    def _write_batch(self) -> None:
        if self._batch is not None:
            with own_transaction(self._alias, limit=self._limit):
                append_once(self._alias, *self._batch)
            self._batch = None
