"""A cleaner's own row, which shows that a cleaner runs."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from functools import partial

from django.db import DatabaseError

from django_txtasks.core.ground.config import CoreConfig
from django_txtasks.core.ground.surroundings import SignsOfLife
from django_txtasks.core.rows import cleaners, workers
from django_txtasks.database.errors import text_of
from django_txtasks.database.transactions import own_transaction, repeated


class Record:
    """Writes the row: beats three times per lease, the end of the last pass, and the error since.

    A row that cannot be written (before ``migrate``, or without the privilege) does not keep the cleaner
    from working.

    Args:
        clock: monotonic seconds.
        unwritten: called with the reason why the row cannot be written, once per reason.
        liveness: learns of each whole pass, also of another cleaner's.
    """

    def __init__(
        self,
        config: CoreConfig,
        alias: str,
        clock: Callable[[], float],
        unwritten: Callable[[str], None],
        liveness: SignsOfLife,
    ) -> None:
        self._config, self._alias, self._clock, self._unwritten = config, alias, clock, unwritten
        self._liveness, self._why = liveness, ""
        self._id: uuid.UUID | None = None
        self._error = ""
        self._next_beat = float("-inf")

    def beat(self) -> None:
        """Write a beat if it is due, together with an error that could not be written before."""
        if self._clock() >= self._next_beat:
            self._write(self._say_error if self._error else cleaners.beat)

    def passed(self) -> None:
        """Record the end of a whole pass."""
        self._note_pass(cleaners.passed)
        self._error = ""

    def since_pass_of_another(self) -> float | None:
        """Return the seconds since another cleaner's pass, and record it, if this cleaner need not make one now.

        None: a pass is due, or the rows cannot be used.
        """
        if self._id is None or self._why:
            return None
        found = cleaners.newer_pass(self._alias, self._id, self._config.clean_interval)
        if found is None:
            return None
        ended_at, seconds = found
        self._note_pass(partial(cleaners.saw_pass, ended_at=ended_at))
        return seconds

    def failed(self, error: str) -> None:
        """Keep the error for the next beat, because the database itself may be failing now."""
        self._error = error.partition("\n")[0]
        self._next_beat = float("-inf")

    def leave(self) -> None:
        """Remove the row."""
        if self._id is not None:
            cleaners.unregister(self._alias, self._id)

    def _note_pass(self, change: Callable[[str, uuid.UUID], bool]) -> None:
        self._write(change)
        self._liveness.wrote()

    def _say_error(self, alias: str, cleaner: uuid.UUID) -> bool:
        return cleaners.failed(alias, cleaner, self._error)

    def _write(self, change: Callable[[str, uuid.UUID], bool]) -> None:
        """Change the row, if the table can be written.

        Raises:
            DatabaseError: the database accepts no writes at all.
        """
        try:
            repeated(self._alias, partial(self._change, change))
            why = ""
        except DatabaseError as error:
            if not workers.can_write(self._alias, error):
                raise
            why = text_of(error)
        if why not in ("", self._why):
            self._unwritten(why)
        self._why = why
        self._next_beat = self._clock() + self._config.lease.total_seconds() / 3

    def _change(self, change: Callable[[str, uuid.UUID], bool]) -> None:
        """Change the row; insert it again if it was removed."""
        with own_transaction(self._alias, limit=self._config.lease / 2):
            if self._id is None or not change(self._alias, self._id):
                self._id = cleaners.register(
                    self._alias, interval=self._config.clean_interval, lease=self._config.lease
                )
                change(self._alias, self._id)
