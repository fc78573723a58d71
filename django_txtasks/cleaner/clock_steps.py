"""Steps of a database's clock, which a cleaner notices because its own clock counts other seconds."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import NamedTuple

from django_txtasks.rules.schedules import ON_TIME

DRIFT = 0.001
"""Share by which two clocks may differ, because time servers speed clocks up and slow them down."""


def seconds_of_host() -> float:
    """Return seconds by a clock that is never set. On Linux it goes on while the machine is suspended."""
    number = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if number is None else time.clock_gettime(number)


class ClockStep(NamedTuple):
    """A step of a database's clock.

    Attributes:
        begin: time of the last look.
        seconds: how many passed from the last look to this one, by the host's clock.
        end: time of this look.
    """

    begin: datetime
    seconds: float
    end: datetime

    @property
    def right(self) -> datetime:
        """The time that this look would have seen without the step."""
        return self.begin + timedelta(seconds=self.seconds)

    @property
    def forward(self) -> timedelta:
        """By how much the clock went forward; zero if it went back."""
        return max(self.end - self.right, timedelta(0))


class _Look(NamedTuple):
    now: datetime
    sent: float
    received: float


class ClockSteps:
    """Compares a database's clock with the host's from look to look.

    Steps of up to ``ON_TIME`` are none: ticks that are written so late are on time.

    Args:
        clock: seconds of the host.
    """

    def __init__(self, clock: Callable[[], float] = seconds_of_host) -> None:
        self._clock = clock
        self._last: _Look | None = None
        self._forward, self._forward_until = timedelta(0), float("-inf")

    def sent(self) -> float:
        """Return the host's seconds, for ``seen``, before the database is asked for its time."""
        return self._clock()

    def seen(self, now: datetime | None, sent: float) -> ClockStep | None:
        """Compare an answer with the last one; return the step between them.

        Args:
            now: the database's time, of some moment after ``sent``; None = it did not say.
            sent: the host's seconds before it was asked.
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
        """By how much the clock went forward a moment ago."""
        return self._forward if self._clock() < self._forward_until else timedelta(0)


def _step(last: _Look, this: _Look) -> ClockStep | None:
    """Return the step between two looks; each saw its time somewhere between the question and the answer."""
    least, most = this.sent - last.received, this.received - last.sent
    gone = (this.now - last.now).total_seconds()
    allowed = ON_TIME.total_seconds() + DRIFT * most
    if least - allowed <= gone <= most + allowed:
        return None
    return ClockStep(last.now, most if gone > most else least, this.now)
