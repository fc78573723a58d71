"""Writes the figures of a worker, as rows of their own: every 15 s, if any attempt has ended."""

from __future__ import annotations

import time
import uuid
from datetime import timedelta
from typing import NamedTuple

from django.db import DatabaseError, InterfaceError, OperationalError, connections

from django_txtasks import signals
from django_txtasks.counts.appending import WRITE_SECONDS, append_once
from django_txtasks.counts.tally import Tally
from django_txtasks.database.errors import is_repeatable, text_of
from django_txtasks.database.transactions import own_transaction
from django_txtasks.worker.registration import Registration
from django_txtasks.worker.running.limits import NEVER

_STEPS = 1000


class _Batch(NamedTuple):
    """Figures that are to be written once: under this id of the worker and this number."""

    worker: uuid.UUID
    seq: int
    tally: Tally


class FigureWriter:
    """Writes in a transaction of its own, between turns. A failure changes nothing for the worker's turns.

    The first write comes after a part of the interval that depends on the worker's id, so that workers which start
    together write apart.

    Args:
        tally: the counts of this worker; None = figures are off.
    """

    def __init__(
        self, alias: str, registration: Registration, tally: Tally | None, limit: timedelta
    ) -> None:
        self._alias, self._registration = alias, registration
        self._tally, self._limit = tally, limit
        self._batch: _Batch | None = None  # not known to be written
        self._seq = 0
        self._at = 0.0
        self._has_failed = False

    @property
    def next(self) -> float:
        """Time of the next write, by ``time.monotonic()``."""
        return self._at if self._tally or self._batch else NEVER

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
            if self._tally and self._registration.id is not None:
                self._seq += 1
                self._batch = _Batch(self._registration.id, self._seq, self._tally.take())
                self._write_batch()
            self._has_failed = False
        except (DatabaseError, InterfaceError) as error:
            if isinstance(error, (OperationalError, InterfaceError)) and not is_repeatable(error):
                connections[self._alias].close()  # after a failover it may be read-only
            if not self._has_failed:
                signals.figures_not_written.emit(
                    worker=self._registration.id, delay=WRITE_SECONDS, error=text_of(error)
                )
            self._has_failed = True

    def _write_batch(self) -> None:
        if self._batch is not None:
            with own_transaction(self._alias, limit=self._limit):
                append_once(self._alias, *self._batch)
            self._batch = None
