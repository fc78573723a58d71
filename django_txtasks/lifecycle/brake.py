"""A brake on dead notices: a few one by one, then digests, for as long as the storm lasts."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable
from datetime import timedelta

DEATHS_PER_MINUTE = 10
"""Deaths in a minute that are told one by one."""
MINUTE_SECONDS = 60.0
LONGEST_PAUSE_SECONDS = 3600.0
"""Seconds between two digests at most: they double from a minute on while tasks go on dying."""
MARGIN_SECONDS = 5.0
"""Seconds from the end of that time to its digest, which reports all that died in it."""


class Brake:
    """A limit for notices: how many deaths are reported one by one, and when their digest comes.

    Of one database in one process: a counter that all share would be a row that all burials wait for. A digest
    reads what is dead when it runs, so it forgets nobody, whichever process buried them.
    Threads: workers' loops, slots and cleaners ask; the lock is held for a few lines.

    Args:
        clock: monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._lock = clock, threading.Lock()
        self._count, self._minute_ends = 0, float("-inf")
        self._pause, self._digest_at = MINUTE_SECONDS, float("-inf")

    def ask(self, deaths: int) -> tuple[int, float | None]:
        """Return how many of these may get a notice each, and in how many seconds a digest names the rest.

        None = no rest is left, or a digest that is enqueued already will name it.
        """
        with self._lock:
            now = self._clock()
            if now < self._digest_at:
                return 0, None
            if now < self._digest_at + self._pause:
                return 0, min(2 * self._pause, LONGEST_PAUSE_SECONDS)
            if now >= self._minute_ends:
                self._count, self._minute_ends = 0, now + MINUTE_SECONDS
            singles = min(deaths, DEATHS_PER_MINUTE - self._count)
            self._count += singles
            return singles, MINUTE_SECONDS if singles < deaths else None

    def digest_enqueued(self, pause: float) -> None:
        """Say that the transaction with the digest was committed."""
        with self._lock:
            self._pause, self._digest_at = pause, self._clock() + pause


brakes: defaultdict[str, Brake] = defaultdict(Brake)
"""By database; empty in a new process."""


def digest_delay(pause: float) -> timedelta:
    """Return how long after now the digest of such a time runs."""
    return timedelta(seconds=pause + MARGIN_SECONDS)
