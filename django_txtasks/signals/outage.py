"""How a loop tells of a database that fails: a warning for each new reason, an error each minute, and the end."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from django_txtasks import signals

ERROR_EVERY_SECONDS = 60.0
"""Seconds that an outage has to last until it is an error, and between two of these, even if tries succeed."""
OVER_AFTER_SECONDS = 10.0
"""Seconds without a failure after which it is over: what failed is tried again each 5 s, between other things."""
MAX_WARNINGS = 10
"""Reasons of one outage that are told: a database may put something else into each text."""


class Outage:
    """Failures of one database in a row, as one loop meets them.

    Args:
        who: returns what the log calls the loop.
        emit: emits an event, with its facts.
    """

    def __init__(
        self, alias: str, who: Callable[[], str], emit: Callable[..., None] = signals.Event.emit
    ) -> None:
        self._alias, self._who, self._emit = alias, who, emit
        self._began: float | None = None
        self._told_at = self._failed_at = 0.0
        self._reasons: set[str] = set()
        self._count = 0

    def failed(self, error: str, delay: float) -> None:
        """Note a failure; ``delay`` = seconds until the loop tries again."""
        now, level = time.monotonic(), logging.DEBUG
        if self._began is None:
            self._began = self._told_at = now
        if now - self._told_at >= ERROR_EVERY_SECONDS:
            self._told_at, level = now, logging.ERROR
        elif error not in self._reasons and len(self._reasons) < MAX_WARNINGS:
            level = logging.WARNING
            self._reasons.add(error)
        self._count += 1
        self._failed_at = now
        self._emit(
            signals.database_failed,
            level=level,
            who=self._who(),
            database=self._alias,
            error=error,
            count=self._count,
            seconds=now - self._began,
            delay=delay,
        )

    def succeeded(self) -> None:
        """Note that something was done. Some time after the last failure it is over; a single one silently."""
        if self._began is None or time.monotonic() - self._failed_at < OVER_AFTER_SECONDS:
            return
        if self._count > 1:
            seconds = self._failed_at - self._began
            self._emit(
                signals.database_recovered,
                who=self._who(),
                database=self._alias,
                count=self._count,
                seconds=seconds,
            )
        self._began, self._reasons, self._count = None, set(), 0
