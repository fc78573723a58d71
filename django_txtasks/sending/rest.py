"""How long who has sent a hint rests before the next one, so that what comes meanwhile is sent together."""

from __future__ import annotations

import time

REST = 40
"""How many times as long as sending takes on average it rests: on a machine that is busy that is longer, too.

Where more than one task comes in such a rest it is longer in proportion: a process that commits so often fills a
processor, or its share of one, and what sending takes of it is missing elsewhere. A process that commits few tasks
hardly rests: see ``BUSY_PER_SECOND``.
"""
LONGEST_REST_SECONDS = 0.2
BUSY_PER_SECOND = 250.0
"""Tasks a second from which a process counts as one that may fill a processor; of fewer, hints hardly wait."""
LONGEST_GAP_SECONDS = 0.02
"""The most that one gap counts: who commits all the time is known as such soon after a pause."""
USUAL_SECONDS = 0.0001
"""With which that average begins: the first hint of a session takes much longer than all others."""
NEWEST_SHARE = 0.1
"""Share of the last time that sending took in that average, and of the last task in that of the gaps."""


class Rest:
    """When the next hint may be sent. The first one is sent at once."""

    def __init__(self) -> None:
        self._mean_seconds = USUAL_SECONDS
        self._mean_gap = LONGEST_GAP_SECONDS
        self._last_begin = 0.0
        self._end = 0.0

    def is_over(self) -> bool:
        """Say whether the next hint may be sent now."""
        return time.monotonic() >= self._end

    def seconds_left(self) -> float:
        """Return how long to wait for that; not below 0."""
        return max(0.0, self._end - time.monotonic())

    def begin(self, sending_began: float, ids: int, *, counts: bool = True) -> None:
        """Rest from now on.

        Args:
            sending_began: when, by ``time.monotonic()``.
            ids: how many were sent.
            counts: that took as long as it takes; False = it was not waited for.
        """
        now = time.monotonic()
        if counts:
            self._took(now - sending_began)
        rest = REST * self._mean_seconds
        since_last = max(1e-6, sending_began - self._last_begin)
        self._came(ids, since_last)
        # where answers are slow, rests would grow, as more tasks come in each, though nothing else has to be done
        share = min(1.0, 1.0 / (self._mean_gap * BUSY_PER_SECOND)) ** 4
        longest = LONGEST_REST_SECONDS * share
        self._end = now + min(longest, rest * max(1.0, ids * rest / since_last))
        self._last_begin = sending_began

    def _came(self, ids: int, seconds: float) -> None:
        """Update the average of the gaps between tasks."""
        gap = min(seconds / max(1, ids), LONGEST_GAP_SECONDS)
        self._mean_gap += (1 - (1 - NEWEST_SHARE) ** ids) * (gap - self._mean_gap)

    def _took(self, seconds: float) -> None:
        """Update the average. What comes once, such as a server that was frozen, does not count for long."""
        seconds = min(seconds, LONGEST_REST_SECONDS / REST)
        self._mean_seconds += NEWEST_SHARE * (seconds - self._mean_seconds)
