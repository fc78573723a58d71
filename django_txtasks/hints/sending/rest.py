"""The rest of a sender after each hint, so that the hints of tasks that come meanwhile are sent together."""

from __future__ import annotations

import time

REST = 40
"""Length of a rest in mean durations of sending, so that a rest is longer on a busy machine.

If more than one task comes in such a rest, the rest is longer in proportion: a process that commits at this rate
uses all of a processor, or of its share, so the time for sending is missing elsewhere. A process that commits few
tasks hardly rests: see ``BUSY_PER_SECOND``.
"""
LONGEST_REST_SECONDS = 0.2
BUSY_PER_SECOND = 250.0
"""Tasks a second from which a process may be using all of a processor. Below this rate, hints hardly wait."""
LONGEST_GAP_SECONDS = 0.02
"""Maximum seconds that one gap counts, so that a process that commits all the time is known soon after a pause."""
USUAL_SECONDS = 0.0001
"""Initial mean duration of sending, because the first hint of a session takes much longer than others."""
NEWEST_SHARE = 0.1
"""Share of the newest value in the moving averages of sending durations and of gaps."""


class Rest:
    """The time of the next hint. The first hint is sent at once."""

    def __init__(self) -> None:
        self._mean_seconds = USUAL_SECONDS
        self._mean_gap = LONGEST_GAP_SECONDS
        self._last_begin = 0.0
        self._end = 0.0

    def is_over(self) -> bool:
        """Return True if the next hint may be sent now."""
        return time.monotonic() >= self._end

    def seconds_left(self) -> float:
        """Return the seconds until the next hint may be sent; at least 0."""
        return max(0.0, self._end - time.monotonic())

    def begin(self, sending_began: float, ids: int, *, counts: bool = True) -> None:
        """Rest from now on.

        Args:
            sending_began: start of the sending, by ``time.monotonic()``.
            ids: number of ids that were sent.
            counts: False = the duration does not count, because the answer was not waited for.
        """
        now = time.monotonic()
        if counts:
            self._took(now - sending_began)
        rest = REST * self._mean_seconds
        since_last = max(1e-6, sending_began - self._last_begin)
        self._came(ids, since_last)
        # If answers are slow, rests would grow, because more tasks come in each rest, although there is no other
        # work.
        share = min(1.0, 1.0 / (self._mean_gap * BUSY_PER_SECOND)) ** 4
        longest = LONGEST_REST_SECONDS * share
        self._end = now + min(longest, rest * max(1.0, ids * rest / since_last))
        self._last_begin = sending_began

    def _came(self, ids: int, seconds: float) -> None:
        """Update the average of the gaps between tasks."""
        gap = min(seconds / max(1, ids), LONGEST_GAP_SECONDS)
        self._mean_gap += (1 - (1 - NEWEST_SHARE) ** ids) * (gap - self._mean_gap)

    def _took(self, seconds: float) -> None:
        """Update the average duration. A single slow case, such as a frozen server, does not count for long."""
        seconds = min(seconds, LONGEST_REST_SECONDS / REST)
        self._mean_seconds += NEWEST_SHARE * (seconds - self._mean_seconds)
