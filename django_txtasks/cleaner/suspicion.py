"""A suspicion against one worker: by which first signal, and since when the second one has been there, too."""

from __future__ import annotations

import enum
from dataclasses import dataclass

LOOKS = (0.01, 0.02, 0.05, 0.1)
"""Seconds between looks at a suspect; the last one is repeated until its lease is over."""
GRACE_SECONDS = 0.5
"""Seconds that a worker has to beat after the second signal: both of its links may just have been cut."""
GRACE_AT_HOME_SECONDS = 0.1
"""Seconds, instead, if its process was seen to have ended."""
GAP_SECONDS = 2.0
"""Seconds, or two beats: after a longer time between two looks the second signal is waited for anew."""


class FirstSignal(enum.Enum):
    """What says first that a worker is gone, as it stands in the log."""

    PROCESS = "its process has ended"
    WILL = "its connection to RabbitMQ and its database session are gone"
    SILENCE = "it does not beat, and its database sessions are gone"


@dataclass
class Suspicion:
    """A suspect at one beat. Times are those of the detector's clock.

    Attributes:
        signal: the first one.
        grace: seconds from the second signal to the verdict.
        since: of the first look.
        looked_at: of the last one.
        gone: since when the second signal has been there, too.
        waits: it is proven, and its worker has its lease all the same, because of what it holds.
    """

    beat: int
    signal: FirstSignal
    grace: float
    since: float
    looked_at: float
    looks: int = 0
    gone: float | None = None
    waits: bool = False

    def pause(self, now: float) -> float:
        """Return the seconds until the next look that it needs; silence needs none but the usual ones.

        A silence that is proven may have to wait, as others are silent, too.
        """
        if self.waits:
            return float("inf")
        if self.signal is FirstSignal.SILENCE and (self.gone is None or self.is_proven(now)):
            return float("inf")
        if self.gone is not None:
            return max(0.001, self.gone + self.grace - now)
        return LOOKS[min(self.looks, len(LOOKS) - 1)]

    def look(self, now: float, *, has_second_signal: bool) -> None:
        """Note whether the second signal is there now."""
        self.looked_at = now
        self.looks += 1
        if not has_second_signal:
            self.gone, self.waits = None, False
        elif self.gone is None:
            self.gone = now

    def is_proven(self, now: float) -> bool:
        """Say whether the second signal has been there for long enough."""
        return self.gone is not None and now - self.gone >= self.grace
