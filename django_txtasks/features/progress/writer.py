"""Writes the progress of a worker's tasks into the worker's row: once a second, if it has changed."""

from __future__ import annotations

import time

from django_txtasks.core.working.registration import Registration
from django_txtasks.core.working.running.limits import NEVER
from django_txtasks.features.progress.notes import ProgressNotes
from django_txtasks.features.progress.rows import write_progress

WRITE_SECONDS = 1.0
WRITE_MANY_SECONDS = 5.0
"""Seconds between two writes of the progress of more than 100 tasks."""


class ProgressWriter:
    """Writes in a statement of its own, between turns. All times are by ``time.monotonic()``."""

    def __init__(self, alias: str, registration: Registration, notes: ProgressNotes) -> None:
        self._alias, self._registration, self._notes = alias, registration, notes
        self._not_before = 0.0

    @property
    def next(self) -> float:
        """Time of the next write."""
        return self._not_before if self._notes.has_changed else NEVER

    def look(self) -> bool:
        """Write, if the worker has a row. Return False: this look finds no work.

        Raises:
            DatabaseError, InterfaceError: the next write comes a second later.
        """
        pause = WRITE_MANY_SECONDS if self._notes.are_many else WRITE_SECONDS
        self._not_before = time.monotonic() + pause
        worker = self._registration.id
        if worker is None:
            return False
        notes = self._notes.take()
        try:
            write_progress(self._alias, worker, notes)
        except BaseException:
            self._notes.has_changed = True
            raise
        return False
