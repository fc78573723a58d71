"""A worker's check that a cleaner is at work: without a cleaner, the death of the worker is not noticed."""

from __future__ import annotations

import contextlib
import time
import uuid
from datetime import timedelta

from django.db import DatabaseError, InterfaceError

from django_txtasks import signals
from django_txtasks.core.ground.wording import in_english
from django_txtasks.core.rows import cleaners


class CleanerCheck:
    """Checks once, a lease after the start, because cleaners may start together with workers."""

    def __init__(self, alias: str, lease: timedelta) -> None:
        self._alias, self._due = alias, time.monotonic() + lease.total_seconds()

    def look(self, worker: uuid.UUID | None) -> None:
        """Check, if it is time and no check was made yet."""
        if time.monotonic() >= self._due:
            self._due = float("inf")
            # The claimed tasks start in any case.
            with contextlib.suppress(DatabaseError, InterfaceError), in_english():
                if trouble := cleaners.trouble(cleaners.seen(self._alias)):
                    signals.nobody_cleans.emit(worker=worker, trouble=trouble)
