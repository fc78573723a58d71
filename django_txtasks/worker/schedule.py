"""When a worker's next turn is due, and what it looks for. Times are those of ``time.monotonic()``."""

from __future__ import annotations

import enum
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta

from django_txtasks.conf import Config
from django_txtasks.lifecycle.attempts import Arrow, Ended
from django_txtasks.lifecycle.database_errors import is_repeatable
from django_txtasks.lifecycle.turn import Capacity, TurnResult
from django_txtasks.retry import backoff, jitter
from django_txtasks.worker.sweep import TURN_SECONDS
from django_txtasks.worker.timers import Timers

BUSY_ROW_SECONDS = 0.05
"""Seconds until an outcome whose row somebody else had locked is tried again."""
WIDE_LOOK_UP_IDS = 500
"""Ids looked up in a turn after some had no row: real tasks must not wait behind a flood of others."""
_AGAIN = (Arrow.RETRY, Arrow.RELEASE)
MAX_IMMEDIATE_REPEATS = 10
"""Failed turns in a row that are repeated at once if the database asks for that; then something is wrong."""
NEAR_SECONDS = 60.0
"""Seconds ahead that a task is waited for by a timer instead of a scan."""


class Kind(enum.Enum):
    """What a turn does, beside its beat and what it records."""

    LOOK_UP = enum.auto()
    SCAN = enum.auto()


@dataclass(frozen=True)
class Plan:
    """What a turn is to do, beside its beat and what it records.

    Attributes:
        hinted: look these ids up.
        scans: look for what is due, too.
    """

    capacity: Capacity
    hinted: Sequence[uuid.UUID] = ()
    scans: bool = False


class Schedule:
    """What a worker knows of its near future.

    After a failure the next turn only beats and records. What else the one that failed had done is tried again
    one by one, since either may fail because of what it meets: a scan because of the rows that are there, both
    because the tables are not those of this release. Each kind waits the longer the more often it has failed,
    while beats go on, and what ended is recorded.

    Attributes:
        nothing_due: the last scan that had room found nothing.
    """

    def __init__(self, config: Config) -> None:
        self.config = config
        self.nothing_due = False
        self.timers = Timers(
            retry=config.hint_retry_interval.total_seconds(),
            giveup=config.hint_give_up_after.total_seconds(),
        )
        self._timed: set[uuid.UUID] = set()
        self._width = 0
        self._backlog = False
        self._failures = 0
        self._failures_of: dict[Kind, int] = {}
        self._not_before_of = dict.fromkeys(Kind, 0.0)
        self._tried: set[Kind] = set()
        self._looked_up_last = False
        self._earlier = jitter(0, 0.5)  # of an interval: those who began together part
        self._next_beat = self._next_scan = self._not_before = 0.0

    def next_turn(
        self,
        capacity: Capacity,
        *,
        hinted: bool,
        unrecorded: bool,
        more: bool = False,
        may_scan: bool = True,
    ) -> float:
        """Return when the next turn is due; 0 = now. Arguments as of ``plan``."""
        times = [self._next_beat]
        if unrecorded:
            times.append(0.0)
        if capacity.width:
            look_up = 0.0 if hinted else self.timers.next()
            times.append(max(look_up, self._not_before_of[Kind.LOOK_UP]))
        if capacity.width and may_scan:
            scan = 0.0 if more else self._next_scan
            times.append(max(scan, self._not_before_of[Kind.SCAN]))
        return max(min(times), self._not_before)

    def plan(
        self,
        capacity: Capacity,
        hinted: list[uuid.UUID],
        now: float,
        *,
        more: bool = False,
        may_scan: bool = True,
    ) -> Plan:
        """Return what to look for now.

        Args:
            more: others wait beside those that are ``hinted``.
            may_scan: False = so many wait for a slot that it is better to claim many again later.
        """
        self._timed, self._tried = set(), set()
        if self._failures or not capacity.width:
            return Plan(Capacity(0))
        scan = (more or now >= self._next_scan) and may_scan
        look_up = bool(hinted) or self.timers.next() <= now
        if self._failures_of:
            scan, look_up = self._one_of(scan, look_up, now)
        elif scan and (more or self._backlog):
            look_up = False  # the scan finds them in their turn; if it has room, they are next
        if scan:
            self._tried.add(Kind.SCAN)
        ids: list[uuid.UUID] = []
        if look_up:
            self._tried.add(Kind.LOOK_UP)
            width = max(capacity.width, self._width)
            timed = self.timers.pop_due(now, width)
            self._timed = set(timed)
            ids = timed + hinted[:width]
        return Plan(capacity, ids, scan)

    def _one_of(self, scan: bool, look_up: bool, now: float) -> tuple[bool, bool]:
        """Choose one kind, by turns, of those that may be tried again by now."""
        scan = scan and now >= self._not_before_of[Kind.SCAN]
        look_up = look_up and now >= self._not_before_of[Kind.LOOK_UP]
        if scan and look_up:
            scan = self._looked_up_last
            look_up = not scan
        self._looked_up_last = look_up
        return scan, look_up

    def written(self, result: TurnResult, now: float, *, busy: bool) -> None:
        """A turn has committed: decide what the next ones look for."""
        self._failures = 0
        for kind in self._tried if self._failures_of else ():
            self._failures_of.pop(kind, None)
        self._not_before = now + BUSY_ROW_SECONDS if busy else 0.0
        self._next_beat = now + self.config.heartbeat_interval.total_seconds()
        if result.looked_up:
            self.timers.found(set(result.looked_up) - set(result.absent))
            near = {
                task_id: wait
                for task_id, wait in result.later.items()
                if 0 < wait < NEAR_SECONDS or task_id in self._timed
            }
            self.timers.due_in(near, now)
            self.timers.absent(result.absent, now)
            self._width = WIDE_LOOK_UP_IDS if result.absent else 0
        if result.has_more:
            self.timers.pop_due(now)  # a backlog: the scan finds them in their turn
        if result.has_scanned:
            self.nothing_due = not (result.claimed or result.has_more or result.is_partial)
            poll = self.config.poll_interval.total_seconds() * (1 - self._earlier)
            # half of the time is for others
            pause = min(TURN_SECONDS, poll) if result.is_unfinished else poll
            self._next_scan = 0.0 if result.has_more else now + pause
            self._backlog = result.has_more
            self._earlier = 0.0

    def failed(self, error: Exception, now: float) -> float:
        """A turn was rolled back: return after how many seconds what it did is tried again.

        The first one comes at once: a link that was cut is there again in a moment, and a worker that
        is suspected has to beat. All pauses stay well within the lease: a cleaner that is back sooner
        must not find it silent.
        """
        self.timers.due_in(dict.fromkeys(self._timed, 0.0), now)
        self._failures += 1
        self._earlier = jitter(0, 0.5)
        delay = self._pause(self._failures, error)
        self._not_before = now + delay
        for kind in self._tried:
            self._failures_of[kind] = failures = self._failures_of.get(kind, 0) + 1
            pause = self._pause(failures, error)
            self._not_before_of[kind] = now + pause
            delay = max(delay, pause)
        self._next_beat = 0.0
        return delay

    def _pause(self, failures: int, error: Exception) -> float:
        if failures == 1 or (failures < MAX_IMMEDIATE_REPEATS and is_repeatable(error)):
            return 0.0
        ceiling = min(timedelta(seconds=5), self.config.lease / 5)
        return backoff(failures - 1, base=ceiling / 20, ceiling=ceiling).total_seconds()

    def beat_at_once(self) -> None:
        """Do not wait for the next beat, nor for the end of a pause."""
        self._next_beat = self._not_before = 0.0

    def look_again(self) -> None:
        """Something may be due that was not."""
        self.nothing_due, self._next_scan = False, 0.0

    def expect_again(self, ended: Iterable[Ended], now: float) -> None:
        """A retry that is near is not left to the scan, nor what was given back."""
        near = {
            one.attempt.task_id: one.delay.total_seconds()
            for one in ended
            if one.arrow in _AGAIN and one.delay.total_seconds() < NEAR_SECONDS
        }
        self.timers.due_in(near, now)
