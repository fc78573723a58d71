"""A brake on dead notices: a few single notices, then digests as long as many tasks die."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable
from datetime import timedelta

DEATHS_PER_MINUTE = 10
"""Number of deaths in a minute that get a notice each."""
MINUTE_SECONDS = 60.0
LONGEST_PAUSE_SECONDS = 3600.0
"""Longest time in seconds between two digests. It starts at a minute and doubles while tasks go on dying."""
MARGIN_SECONDS = 5.0
"""Seconds from the end of such a time to its digest, which reports all tasks that died in it."""


class Brake:
    """A limit for notices: how many deaths are reported one by one, and when the digest of the others comes.

    It counts for one database in one process, because a shared counter would be a row for which all burials wait.
    A digest reads the dead tasks when it runs, so it misses none, whichever process buried them.
    Threads: workers' loops, slots and cleaners call it; the lock is held for a few lines.

    Args:
        clock: monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._lock = clock, threading.Lock()
        self._count, self._minute_ends = 0, float("-inf")
        self._pause, self._digest_at = MINUTE_SECONDS, float("-inf")

    def ask(self, deaths: int) -> tuple[int, float | None]:
        """Return how many of these deaths get a notice each, and the seconds until a digest reports the others.

        None = there are no others, or a digest that is enqueued already will report them.
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
        """Note that the transaction with the digest was committed."""
        with self._lock:
            self._pause, self._digest_at = pause, self._clock() + pause


brakes: defaultdict[str, Brake] = defaultdict(Brake)
"""By alias; empty in a new process."""


def digest_delay(pause: float) -> timedelta:
    """Return the time from now until the digest runs."""
    return timedelta(seconds=pause + MARGIN_SECONDS)
