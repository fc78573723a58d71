"""Requests to stop. A signal handler may call it, because it only assigns and wakes."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable

ONE_SIGNAL_SECONDS = 1.0
"""Seconds within which several signals count as one, because Ctrl-C and service managers signal whole groups."""


class Shutdown:
    """Requests to stop: the first ends claims, and running tasks finish; the second, or ``grace``, ends all.

    Args:
        grace: seconds that running tasks may take.
        wake: wakes the loop.

    Attributes:
        forced: True after a second request.
        why: reason in the log for the first request.
    """

    def __init__(self, grace: float, wake: Callable[[], None]) -> None:
        self._grace, self._wake = grace, wake
        self._since: float | None = None
        self._retires = False
        self.forced = False
        self.why = "it was told to"

    def request(self, number: int = 0, frame: object = None, *, why: str = "") -> None:
        """Add a request. Takes the arguments of a signal handler."""
        now = time.monotonic()
        if self._since is None:
            self.why = why or (signal.Signals(number).name if number else self.why)
            self._since = now
        elif now >= self._since + ONE_SIGNAL_SECONDS:
            self.forced = True
        self._wake()

    def retire(self, why: str) -> None:
        """End claims, and let running tasks take all the time that they need: ``grace`` does not begin."""
        self.why, self._retires = why, True
        self._wake()

    def force(self) -> None:
        """Stop now."""
        self._since = self._since or time.monotonic()
        self.forced = True
        self._wake()

    @property
    def asked(self) -> bool:
        """True if nothing more should be claimed."""
        return self._retires or self._since is not None

    @property
    def is_urgent(self) -> bool:
        """True if ``grace`` has begun."""
        return self._since is not None

    @property
    def deadline(self) -> float:
        """Time by ``time.monotonic()`` at which running tasks are left behind."""
        return float("inf") if self._since is None else self._since + self._grace

    @property
    def now(self) -> bool:
        """True if running tasks should be left behind."""
        return self.forced or time.monotonic() >= self.deadline
