"""Pauses after failed turns, separately for each kind of turn."""

from __future__ import annotations

import enum
from datetime import timedelta

from django_txtasks.core.ground.retry import backoff
from django_txtasks.database.errors import is_repeatable

MAX_IMMEDIATE_REPEATS = 10
"""Failed turns in a row that are repeated at once if the database asks for a repeat. More failures get a pause."""


class Kind(enum.Enum):
    """The parts of a turn that can fail separately, besides its beat and its outcomes."""

    LOOK_UP = enum.auto()
    SCAN = enum.auto()
    APART = enum.auto()


class BackOff:
    """The times at which turns may be tried again, by ``time.monotonic()``.

    The turn after a failed turn only beats and records. The other parts of the failed turn are then tried one by
    one, because each can fail for its own reason: a scan because of the rows that it meets, both because the
    tables belong to another code release. The pause of each kind grows with each failure of that kind. Meanwhile
    the worker beats and records outcomes.

    Attributes:
        not_before: earliest time of the next turn.
        tried: kinds in the present turn.
    """

    def __init__(self, lease: timedelta) -> None:
        self._ceiling = min(timedelta(seconds=5), lease / 5)
        self.not_before = 0.0
        self.tried: set[Kind] = set()
        self._failures = 0
        self._failures_of: dict[Kind, int] = {}
        self._not_before_of = dict.fromkeys(Kind, 0.0)
        self._looked_up_last = False

    @property
    def only_beats(self) -> bool:
        """True if the previous turn failed, so that the next turn only beats and records."""
        return self._failures > 0

    @property
    def one_by_one(self) -> bool:
        """True if a kind has failed and has not succeeded since."""
        return bool(self._failures_of)

    def not_before_of(self, kind: Kind) -> float:
        """Return the time at which this kind of turn may be tried again."""
        return self._not_before_of[kind]

    def one_of(self, scan: bool, look_up: bool, now: float) -> tuple[bool, bool]:
        """Choose between the kinds that may be tried by now; if both may, alternate."""
        scan = scan and now >= self._not_before_of[Kind.SCAN]
        look_up = look_up and now >= self._not_before_of[Kind.LOOK_UP]
        if scan and look_up:
            scan = self._looked_up_last
            look_up = not scan
        self._looked_up_last = look_up
        return scan, look_up

    def written(self, *, has_tried: bool = True) -> None:
        """Note that the turn has committed.

        Args:
            has_tried: False if the turn left its work to the next turn.
        """
        self._failures = 0
        for kind in self.tried if self._failures_of and has_tried else ():
            self._failures_of.pop(kind, None)

    def failed(self, error: Exception, now: float) -> float:
        """Note that the turn was rolled back; return the seconds until its work is tried again.

        The first retry comes at once: a cut connection is usually back in a moment, and a suspected worker has to
        beat. All pauses are much shorter than the lease, so that a cleaner that returns sooner does not find this
        worker silent.
        """
        self._failures += 1
        delay = self._pause(self._failures, error)
        self.not_before = now + delay
        for kind in self.tried:
            self._failures_of[kind] = failures = self._failures_of.get(kind, 0) + 1
            pause = self._pause(failures, error)
            self._not_before_of[kind] = now + pause
            delay = max(delay, pause)
        return delay

    def _pause(self, failures: int, error: Exception) -> float:
        if failures == 1 or (failures < MAX_IMMEDIATE_REPEATS and is_repeatable(error)):
            return 0.0
        ceiling = self._ceiling
        return backoff(failures - 1, base=ceiling / 20, ceiling=ceiling).total_seconds()
