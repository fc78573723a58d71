"""Steps of a database's clock, found by comparison with the host's clock."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import NamedTuple

from django_txtasks.rules.schedules import ON_TIME

DRIFT = 0.001
"""Share by which two clocks may differ, because time servers speed clocks up and slow them down."""


def seconds_of_host() -> float:
    """Return seconds by a clock that is never set. On Linux it also counts while the machine is suspended."""
    number = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if number is None else time.clock_gettime(number)


class ClockStep(NamedTuple):
    """A step of a database's clock.

    Attributes:
        begin: the database's time at the previous look.
        seconds: seconds between the two looks, by the host's clock.
        end: the database's time at this look.
    """

    begin: datetime
    seconds: float
    end: datetime

    @property
    def right(self) -> datetime:
        """The database's time at this look, if there had been no step."""
        return self.begin + timedelta(seconds=self.seconds)

    @property
    def forward(self) -> timedelta:
        """The size of a step forward; zero for a step back."""
        return max(self.end - self.right, timedelta(0))


class _Look(NamedTuple):
    now: datetime
    sent: float
    received: float


class ClockSteps:
    """Compares a database's clock with the host's at each look.

    Steps of up to ``ON_TIME`` are ignored, because such late ticks count as on time.

    Args:
        clock: seconds of the host.
    """

    def __init__(self, clock: Callable[[], float] = seconds_of_host) -> None:
        self._clock = clock
        self._last: _Look | None = None
        self._forward, self._forward_until = timedelta(0), float("-inf")

    def sent(self) -> float:
        """Return the host's seconds. Call it before the database's time is read, and pass it to ``seen``."""
        return self._clock()

    def seen(self, now: datetime | None, sent: float) -> ClockStep | None:
        """Compare the database's time with the previous one; return the step between them, or None.

        Args:
            now: the database's time, read after ``sent``; None = unknown.
            sent: the host's seconds before the query.
        """
        if now is None:
            return None
        last, self._last = self._last, _Look(now, sent, self._clock())
        if last is None:
            return None
        step = _step(last, self._last)
        if step is not None:
            self._forward = step.forward
            self._forward_until = self._last.received + ON_TIME.total_seconds()
        return step

    @property
    def forward(self) -> timedelta:
        """The size of a step forward that happened a moment ago; else zero."""
        return self._forward if self._clock() < self._forward_until else timedelta(0)


def _step(last: _Look, this: _Look) -> ClockStep | None:
    """Return the step between two looks. Each time was read somewhere between sending and receiving."""
    least, most = this.sent - last.received, this.received - last.sent
    gone = (this.now - last.now).total_seconds()
    allowed = ON_TIME.total_seconds() + DRIFT * most
    if least - allowed <= gone <= most + allowed:
        return None
    return ClockStep(last.now, most if gone > most else least, this.now)
