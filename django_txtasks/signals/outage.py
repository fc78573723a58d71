"""Signals of a failing database: a warning for each new reason, an error each minute, and the end."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from django_txtasks import signals

ERROR_EVERY_SECONDS = 60.0
"""Length of an outage before it is an error, and seconds between two errors, even if some tries succeed."""
OVER_AFTER_SECONDS = 10.0
"""Seconds without a failure after which an outage is over. Failed work is repeated every 5 s."""
MAX_WARNINGS = 10
"""Highest number of reasons logged per outage, because a database may vary its messages."""


class Outage:
    """Failures of one database in a row, as one loop meets them.

    Args:
        who: returns the loop's name for the log.
        emit: emits a signal with its facts.
    """

    def __init__(
        self, alias: str, who: Callable[[], str], emit: Callable[..., None] = signals.LogSignal.emit
    ) -> None:
        self._alias, self._who, self._emit = alias, who, emit
        self._began: float | None = None
        self._told_at = self._failed_at = 0.0
        self._reasons: set[str] = set()
        self._count = 0

    def failed(self, error: str, delay: float) -> None:
        """Note a failure; ``delay`` is the seconds until the loop tries again."""
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
        """Note a success. Some time after the last failure the outage ends, silently if there was only one."""
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
