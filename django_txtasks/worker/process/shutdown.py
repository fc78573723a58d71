"""Requests to stop. Safe to call from a signal handler: it assigns and wakes."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable

ONE_SIGNAL_SECONDS = 1.0
"""Seconds within which signals count as one: Ctrl-C and service managers signal whole groups."""


class Shutdown:
    """First request: claim nothing more and finish what runs. Second, or ``grace`` later: now.

    Args:
        grace: seconds that running tasks may take.
        wake: wakes the loop.

    Attributes:
        forced: it was requested twice.
        why: what the log says of the first request.
    """

    def __init__(self, grace: float, wake: Callable[[], None]) -> None:
        self._grace, self._wake = grace, wake
        self._since: float | None = None
        self.forced = False
        self.why = "it was told to"

    def request(self, number: int = 0, frame: object = None, *, why: str = "") -> None:
        """Ask once more; takes what a signal handler is called with."""
        now = time.monotonic()
        if self._since is None:
            self.why = why or (signal.Signals(number).name if number else self.why)
            self._since = now
        elif now >= self._since + ONE_SIGNAL_SECONDS:
            self.forced = True
        self._wake()

    def force(self) -> None:
        """Stop now."""
        self._since = self._since or time.monotonic()
        self.forced = True
        self._wake()

    @property
    def asked(self) -> bool:
        """Whether to claim nothing more."""
        return self._since is not None

    @property
    def deadline(self) -> float:
        """When to stop now, by ``time.monotonic()``."""
        return float("inf") if self._since is None else self._since + self._grace

    @property
    def now(self) -> bool:
        """Whether to leave running tasks behind."""
        return self.forced or time.monotonic() >= self.deadline
