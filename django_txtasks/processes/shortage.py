"""Database sessions that the processes of one command do not get, as they tell their supervisor.

The limit may be that of the server, of the role, or of a pooler, which lets its clients wait without an error.
"""

from __future__ import annotations

from collections.abc import Mapping
from weakref import WeakKeyDictionary

from django_txtasks.processes.child import Child

NO_SESSION = b"n"
"""The byte by which a child says that its loop, or a thread of it, gets no session, or waits long for one."""
ANSWERS = b"a"
"""The byte by which a child says that the database has taken a write of its loop lately."""
NEWS_SECONDS = 5.0
"""Seconds for which a byte counts. A child repeats it every second while it is true."""


def news(*, is_short: bool, answers: bool = False) -> bytes:
    """Return what a child tells its supervisor every second: see the two bytes."""
    return (NO_SESSION if is_short else b"") + (ANSWERS if answers else b"")


class Shortage:
    """The children of one database that get no session. All times are by ``time.monotonic()``."""

    def __init__(self, alias: str) -> None:
        self._alias = alias
        self._short_at: WeakKeyDictionary[Child, float] = WeakKeyDictionary()
        self._answered = float("-inf")

    def hear(self, news: Mapping[Child, bytes], now: float) -> None:
        """Note what each child has told since the last call. A child of several databases may mean another one."""
        for child, told in news.items():
            if told and list(child.assignment.aliases) == [self._alias]:
                if NO_SESSION in told:
                    self._short_at[child] = now
                if ANSWERS in told:
                    self._answered = now

    def has(self, child: Child, now: float) -> bool:
        """Return True if the child gets no session."""
        return child.running and now < self._short_at.get(child, float("-inf")) + NEWS_SECONDS

    def answers(self, now: float) -> bool:
        """Return True if the database answers a child."""
        return now < self._answered + NEWS_SECONDS
