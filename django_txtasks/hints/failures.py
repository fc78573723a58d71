"""Failures of one session for hints: the pause after each, and which of them is worth a warning."""

from __future__ import annotations

import logging
import time
from datetime import timedelta

from django_txtasks import signals
from django_txtasks.core.ground.retry import backoff
from django_txtasks.database.errors import text_of

FIRST_PAUSE, LONGEST_PAUSE = timedelta(seconds=1), timedelta(seconds=30)
STABLE_AFTER_SECONDS = 3.0
"""Seconds after which a session counts as good, so that its end is a new failure."""


class Failures:
    """Failures since the session last worked for a while. The first one is a warning.

    Args:
        who: name in the log.
    """

    def __init__(self, who: str, alias: str) -> None:
        self._who, self._alias = who, alias
        self._count = 0
        self._ready_at = float("inf")

    def failed(self, error: Exception) -> float:
        """Note a failure. Return the seconds to wait before the next try.

        It is 0 after a good session, because a cut connection is often back at once.
        """
        was_good = time.monotonic() - self._ready_at > STABLE_AFTER_SECONDS
        self._ready_at = float("inf")
        self._count = 1 if was_good else self._count + 1
        pause = 0.0
        if not was_good:
            pause = backoff(self._count, base=FIRST_PAUSE, ceiling=LONGEST_PAUSE).total_seconds()
        signals.hints_failed.emit(
            level=logging.WARNING if self._count == 1 else logging.DEBUG,
            who=self._who,
            database=self._alias,
            error=text_of(error),
            delay=pause,
        )
        return pause

    def is_ready(self) -> None:
        """Note that the session works."""
        if self._ready_at == float("inf"):
            self._ready_at = time.monotonic()
            if self._count:
                signals.hints_resumed.emit(who=self._who, database=self._alias)
