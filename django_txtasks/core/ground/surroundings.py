"""The process around a worker, as the worker sees it. A process that offers nothing is enough."""

from __future__ import annotations

import sys
from typing import Protocol


class StopRequests(Protocol):
    """Requests to stop: the first ends claims, and running tasks finish; the second, or ``grace``, ends all.

    Attributes:
        forced: True after a second request.
        why: reason in the log for the first request.
    """

    forced: bool
    why: str

    @property
    def asked(self) -> bool:
        """True if nothing more should be claimed."""

    @property
    def deadline(self) -> float:
        """Time by ``time.monotonic()`` at which running tasks are left behind."""

    @property
    def now(self) -> bool:
        """True if running tasks should be left behind."""


class SignsOfLife:
    """Signs of life of a loop, for the system that runs its process.

    Attributes:
        lacks_session: True if the database has given no session for the last turn.
    """

    lacks_session = False

    def turned(self) -> None:
        """Note a round of the loop, whatever the state of database and broker."""

    def wrote(self) -> None:
        """Note a write. A worker has committed a turn with its beat; a cleaner has ended a pass."""

    def ended(self, *, refused: bool, connected: bool = True) -> None:
        """Note the end of a turn.

        Args:
            refused: True if the database has refused the writes of this process.
            connected: True if the loop has a session.
        """


class Replacement:
    """The rule after which a new process replaces this one.

    Attributes:
        how: the cause of the replacement, for the worker's row; empty: nothing is to be noted.
    """

    how = ""

    def room(self, count: int) -> int:
        """Return the number of tasks that this process may claim after ``count``."""
        return sys.maxsize

    def reason(self, count: int, check: float = 0.0) -> str:
        """Return the reason for a replacement; empty = no limit is reached.

        Args:
            count: tasks that this process has claimed.
            check: seconds that the look through its claims took.
        """
        return ""
