"""Changes of a database's clock, found by comparison with the host's clock."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import NamedTuple

from django_txtasks.features.schedules.rules import ON_TIME

DRIFT = 0.001
"""Share by which two clocks may differ, because time servers speed clocks up and slow them down."""


def seconds_of_host() -> float:
    """Return seconds by a clock that is never set. On Linux it also counts while the machine is suspended."""
    number = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if number is None else time.clock_gettime(number)


class ClockChange(NamedTuple):
    """A change of a database's clock.

    Attributes:
        begin: the database's time at the previous reading.
        seconds: seconds between the two readings, by the host's clock.
        end: the database's time at this reading.
    """

    begin: datetime
    seconds: float
    end: datetime

    @property
    def right(self) -> datetime:
        """The database's time at this reading, if the clock had not been changed."""
        return self.begin + timedelta(seconds=self.seconds)

    @property
    def forward(self) -> timedelta:
        """The time by which the clock was set forward; zero if it was set back."""
        return max(self.end - self.right, timedelta(0))


class _Reading(NamedTuple):
    now: datetime
    sent: float
    received: float


class ClockChanges:
    """Compares a database's clock with the host's at each reading.

    Changes of up to ``ON_TIME`` are ignored, because such late ticks count as on time.

    Args:
        clock: seconds of the host.
    """

    def __init__(self, clock: Callable[[], float] = seconds_of_host) -> None:
        self._clock = clock
        self._last: _Reading | None = None
        self._forward, self._forward_until = timedelta(0), float("-inf")

    def sent(self) -> float:
        """Return the host's seconds. Call it before the database's time is read, and pass it to ``seen``."""
        return self._clock()

    def seen(self, now: datetime | None, sent: float) -> ClockChange | None:
        """Compare the database's time with the previous one; return the change between them, or None.

        Args:
            now: the database's time, read after ``sent``; None = unknown.
            sent: the host's seconds before the query.
        """
        if now is None:
            return None
        last, self._last = self._last, _Reading(now, sent, self._clock())
        if last is None:
            return None
        change = _change(last, self._last)
        if change is not None:
            self._forward = change.forward
            self._forward_until = self._last.received + ON_TIME.total_seconds()
        return change

    @property
    def forward(self) -> timedelta:
        """The time by which the clock was set forward a moment ago; else zero."""
        return self._forward if self._clock() < self._forward_until else timedelta(0)


def _change(last: _Reading, this: _Reading) -> ClockChange | None:
    """Return the change between two readings. Each time was read somewhere between sending and receiving."""
    least, most = this.sent - last.received, this.received - last.sent
    gone = (this.now - last.now).total_seconds()
    allowed = ON_TIME.total_seconds() + DRIFT * most
    if least - allowed <= gone <= most + allowed:
        return None
    return ClockChange(last.now, most if gone > most else least, this.now)
