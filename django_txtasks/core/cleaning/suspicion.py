"""A suspicion against one worker: its first sign, and the time since which the second one has been there."""

from __future__ import annotations

import enum
from dataclasses import dataclass

LOOKS = (0.01, 0.02, 0.05, 0.1)
"""Seconds between looks at a suspect; the last value repeats until its lease is over."""
GRACE_SECONDS = 0.5
"""Seconds in which a worker may still beat after the second sign, because both links may just have been cut."""
GRACE_AT_HOME_SECONDS = 0.1
"""The same if the worker's process has ended."""
GAP_SECONDS = 2.0
"""Seconds. After a longer gap between looks (or two beats, if longer) the second sign must be seen anew."""


class FirstSign(enum.Enum):
    """The first sign that a worker is gone, as the log says it."""

    PROCESS = "its process has ended"
    WILL = "its connection to RabbitMQ and its database session are gone"
    SILENCE = "it does not beat, and its database sessions are gone"


@dataclass
class Suspicion:
    """A suspect at one beat. Times are from the detector's clock.

    Attributes:
        sign: the first sign.
        grace: seconds from the second sign to the decision.
        since: time of the first look.
        looked_at: time of the last look.
        gone: time since which the second sign has been there; None = it is not.
        waits: True if the suspicion is proven but the worker keeps its lease because of its claims.
    """

    beat: int
    sign: FirstSign
    grace: float
    since: float
    looked_at: float
    looks: int = 0
    gone: float | None = None
    waits: bool = False

    def pause(self, now: float) -> float:
        """Return the seconds until the next look. Silence needs only the usual looks.

        A proven silence may also have to wait, because other workers are silent, too.
        """
        if self.waits:
            return float("inf")
        if self.sign is FirstSign.SILENCE and (self.gone is None or self.is_proven(now)):
            return float("inf")
        if self.gone is not None:
            return max(0.001, self.gone + self.grace - now)
        return LOOKS[min(self.looks, len(LOOKS) - 1)]

    def look(self, now: float, *, has_second_sign: bool) -> None:
        """Note if the second sign is there now."""
        self.looked_at = now
        self.looks += 1
        if not has_second_sign:
            self.gone, self.waits = None, False
        elif self.gone is None:
            self.gone = now

    def is_proven(self, now: float) -> bool:
        """Return True if the second sign has been there for the whole grace."""
        return self.gone is not None and now - self.gone >= self.grace
