"""Pauses after turns that failed, for each kind of turn by itself."""

from __future__ import annotations

import enum
from datetime import timedelta

from django_txtasks.database.errors import is_repeatable
from django_txtasks.rules.retry import backoff

MAX_IMMEDIATE_REPEATS = 10
"""Failed turns in a row that are repeated at once if the database asks for that; then something is wrong."""


class Kind(enum.Enum):
    """The parts of a turn that may fail by themselves, beside its beat and what it records."""

    LOOK_UP = enum.auto()
    SCAN = enum.auto()
    LANES = enum.auto()


class BackOff:
    """The times at which turns may be tried again, by ``time.monotonic()``.

    After a failure the next turn only beats and records. What else the one that failed had done is tried again
    one by one, since either may fail because of what it meets: a scan because of the rows that are there, both
    because the tables are not those of this release. Each kind waits the longer the more often it has failed,
    while beats go on, and what ended is recorded.

    Attributes:
        not_before: no turn comes earlier.
        tried: what the present turn does.
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
        """Whether the turn before has failed: the next one only beats and records."""
        return self._failures > 0

    @property
    def one_by_one(self) -> bool:
        """Whether a kind has failed and not succeeded since."""
        return bool(self._failures_of)

    def not_before_of(self, kind: Kind) -> float:
        """Return when this kind of turn may be tried again."""
        return self._not_before_of[kind]

    def one_of(self, scan: bool, look_up: bool, now: float) -> tuple[bool, bool]:
        """Choose one kind, by turns, of those that may be tried again by now."""
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
            has_tried: it did what it was to do, and did not leave it to the next one.
        """
        self._failures = 0
        for kind in self.tried if self._failures_of and has_tried else ():
            self._failures_of.pop(kind, None)

    def failed(self, error: Exception, now: float) -> float:
        """Note that the turn was rolled back; return the seconds until what it did is tried again.

        The first one comes at once: a link that was cut is there again in a moment, and a worker that
        is suspected has to beat. All pauses stay well within the lease: a cleaner that is back sooner
        must not find it silent.
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
