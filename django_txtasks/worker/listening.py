"""The decision to listen for hints: a full worker leaves them to those with free slots."""

from __future__ import annotations

from django_txtasks.worker.hint_inbox import HintInbox
from django_txtasks.worker.running.limits import NEVER

LISTEN_WHEN_FULL_SECONDS = 0.05
"""Seconds that a full worker in which nothing ends goes on listening; then others get the hints."""


class Listening:
    """Times are those of ``time.monotonic()``."""

    def __init__(self, inbox: HintInbox) -> None:
        self._inbox = inbox
        self._full_since: float | None = None

    def moved(self) -> None:
        """Note that a task has ended: the hinted tasks begin in a moment."""
        self._full_since = None

    def update(self, now: float, *, has_room: bool) -> float:
        """Listen, or leave hints to others; return when to decide again."""
        if has_room:
            self._full_since = None
            self._inbox.listen(True)
            return NEVER
        self._full_since = self._full_since or now
        end = self._full_since + LISTEN_WHEN_FULL_SECONDS
        if now < end:
            return end
        self._inbox.listen(False)
        self._inbox.release()
        return NEVER
