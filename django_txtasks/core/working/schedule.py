"""The turn schedule of a worker: the time of the next turn by ``time.monotonic()``, and what that turn looks
for.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from django_txtasks.core.ground.config import CoreConfig
from django_txtasks.core.ground.retry import jitter
from django_txtasks.core.rows.attempts import Arrow, Ended
from django_txtasks.core.rows.engines.portable import KEY_SECONDS
from django_txtasks.core.rows.turn import Capacity, Keys, ScanResult, TurnResult
from django_txtasks.core.working.running.limits import NEVER
from django_txtasks.core.working.timers import Timers
from django_txtasks.fast.back_off import BackOff, Kind
from django_txtasks.fast.sweep import TURN_SECONDS

BUSY_ROW_SECONDS = 0.05
"""Seconds until the next try of an outcome whose row another session had locked."""
WIDE_LOOK_UP_IDS = 500
"""Ids to look up in a turn after some ids had no row, so that real tasks do not wait behind many false ids."""
_AGAIN = (Arrow.RETRY, Arrow.RELEASE, Arrow.SNOOZE)
NEAR_SECONDS = 60.0
"""Seconds ahead for which a timer, not a scan, starts a task."""


@dataclass(frozen=True)
class Plan:
    """The plan of a turn, in addition to its beat and the outcomes that it records.

    Attributes:
        hinted: ids to look up.
        scans: True = scan for due tasks, too.
        is_apart: True = claim nothing but rows apart: see ``core.working.apart``.
        is_alone: True = claim one last chance, which runs alone: see ``core.working.last_chances``.
    """

    capacity: Capacity
    hinted: Sequence[uuid.UUID] = ()
    scans: bool = False
    is_apart: bool = False
    is_alone: bool = False


class NextScan:
    """The time of a worker's next scan, from what the last one has found.

    Attributes:
        at: its time; 0 = now.
        has_backlog: True if the last scan may have left due tasks.
        nothing_due: True if the last scan with free capacity found nothing.
    """

    def __init__(self, config: CoreConfig) -> None:
        self._poll = config.poll_interval.total_seconds()
        self.at, self.has_backlog, self.nothing_due = 0.0, False, False
        self.failed()

    def failed(self) -> None:
        """Take a part off the next pause, so that workers that an outage has synchronised scan at other times."""
        self._earlier = jitter(0, 0.5)

    def look_again(self) -> None:
        """Scan in the next turn."""
        self.nothing_due, self.at = False, 0.0

    def ended(self, result: TurnResult, scan: ScanResult, now: float) -> None:
        """Choose the time after a scan that has committed."""
        self.nothing_due = not (result.claimed or result.has_more or scan.is_partial)
        poll = self._poll * (1 - self._earlier)
        # The other half of the time is for other turns.
        pause = min(TURN_SECONDS, poll) if scan.is_unfinished else poll
        self.at = 0.0 if result.has_more else now + pause
        if scan.is_held_up:
            self.at = now + min(KEY_SECONDS, pause)
        self.has_backlog = result.has_more
        self._earlier = 0.0


class TurnSchedule:
    """The near future of a worker. ``served_apart``: the last turn claimed rows apart."""

    def __init__(self, config: CoreConfig) -> None:
        self.config = config
        self._scan = NextScan(config)
        self.timers = Timers(
            retry=config.hint_retry_interval.total_seconds(),
            giveup=config.hint_give_up_after.total_seconds(),
        )
        self._back_off = BackOff(config.lease)
        self._timed: set[uuid.UUID] = set()
        self._width = 0
        self.served_apart = False
        # All workers get such hints, after the commit. So if a hinted row is absent, another worker has done the
        # task.
        self._hints_follow_commits = config.has_database_hints
        self._next_beat = 0.0

    @property
    def has_backlog(self) -> bool:
        """True if the last scan may have left due tasks."""
        return self._scan.has_backlog

    @property
    def nothing_due(self) -> bool:
        """True if the last scan with free capacity found nothing."""
        return self._scan.nothing_due

    def next_turn(
        self,
        capacity: Capacity,
        *,
        hinted: bool,
        unrecorded: bool,
        more: bool = False,
        may_scan: bool = True,
        apart_at: float = NEVER,
    ) -> float:
        """Return the time of the next turn; 0 = now. For the arguments see ``plan``."""
        times, width = [self._next_beat], capacity.width
        if unrecorded:
            times.append(0.0)
        if width:
            look_up = 0.0 if hinted else self.timers.next()
            times.append(max(look_up, self._back_off.not_before_of(Kind.LOOK_UP)))
        if width and may_scan:
            scan = 0.0 if more else self._scan.at
            times.append(max(scan, self._back_off.not_before_of(Kind.SCAN)))
        if capacity.dedicated and width:
            times.append(max(apart_at, self._back_off.not_before_of(Kind.APART)))
        return max(min(times), self._back_off.not_before)

    def plan(
        self,
        capacity: Capacity,
        hinted: list[uuid.UUID],
        now: float,
        *,
        more: bool = False,
        may_scan: bool = True,
        apart_at: float = NEVER,
    ) -> Plan:
        """Return what to look for now.

        Args:
            more: True if an overflow hint says that more tasks wait than ``hinted`` names.
            may_scan: False = enough tasks are prefetched; it is better to claim many later than a few now.
            apart_at: see ``RowsApart.next``.
        """
        self._timed, self._back_off.tried = set(), set()
        if self._back_off.only_beats or not capacity.width:
            return Plan(Capacity(0))
        scan = (more or now >= self._scan.at) and may_scan
        look_up = bool(hinted) or self.timers.next() <= now
        apart_from = max(apart_at, self._back_off.not_before_of(Kind.APART))
        may_serve = bool(capacity.dedicated) and apart_from <= now
        # Rows apart and others alternate, so that neither starves.
        self.served_apart = may_serve and not (self.served_apart and (scan or look_up))
        if self.served_apart:
            self._back_off.tried.add(Kind.APART)
            room = Capacity(capacity.dedicated, limit=capacity.limit)
            return Plan(room, is_apart=True)
        if self._back_off.one_by_one:
            scan, look_up = self._back_off.one_of(scan, look_up, now)
        elif scan and (more or self._scan.has_backlog):
            look_up = False  # the scan finds the hinted tasks in their order; if it has room, they are next
        if scan:
            self._back_off.tried.add(Kind.SCAN)
        ids: list[uuid.UUID] = []
        if look_up:
            self._back_off.tried.add(Kind.LOOK_UP)
            width = max(capacity.width, self._width)
            timed = self.timers.pop_due(now, width)
            self._timed = set(timed)
            ids = timed + hinted[:width]
        return Plan(capacity, ids, scan)

    def plan_alone(self, capacity: Capacity, ids: Sequence[uuid.UUID]) -> Plan:
        """Return the plan of a turn that claims one of these rows, or a row apart if no row is given."""
        self._timed, self._back_off.tried = set(), {Kind.LOOK_UP}
        room = Capacity(0) if self._back_off.only_beats else capacity
        return Plan(room, ids, is_apart=not ids, is_alone=True)

    def written(
        self, result: TurnResult, now: float, *, busy: bool, hints_follow_commits: bool = False
    ) -> None:
        """Choose what the next turns look for, after a turn has committed."""
        self._back_off.written(has_tried=result.keys is not Keys.LEFT_FOR_NEXT_TURN)
        self._back_off.not_before = now + BUSY_ROW_SECONDS if busy else 0.0
        self._next_beat = now + self.config.heartbeat_interval.total_seconds()
        if result.looked_up:
            self.timers.found(set(result.looked_up) - set(result.absent))
            near = {
                task_id: wait
                for task_id, wait in result.later.items()
                if 0 < wait < NEAR_SECONDS or task_id in self._timed
            }
            self.timers.due_in(near, now)
            absent = () if self._hints_follow_commits or hints_follow_commits else result.absent
            self.timers.absent(absent, now)
            self._width = WIDE_LOOK_UP_IDS if absent else 0
        if result.has_more:
            self.timers.pop_due(now)  # in a backlog, the scan finds them in their order
        if result.scan is not None:
            self._scan.ended(result, result.scan, now)

    def failed(self, error: Exception, now: float) -> float:
        """Note that a turn was rolled back; return the seconds until the next try."""
        self.timers.due_in(dict.fromkeys(self._timed, 0.0), now)
        self._scan.failed()
        self._next_beat = 0.0
        return self._back_off.failed(error, now)

    def beat_at_once(self) -> None:
        """Skip the wait for the next beat, and any pause."""
        self._next_beat = self._back_off.not_before = 0.0

    def look_again(self) -> None:
        """Scan in the next turn, because a task may have become due."""
        self._scan.look_again()

    def expect_again(self, ended: Iterable[Ended], now: float) -> None:
        """Set timers for released tasks and near retries, so that they do not wait for a scan."""
        near = {
            one.attempt.task_id: one.delay.total_seconds()
            for one in ended
            if one.arrow in _AGAIN and one.delay.total_seconds() < NEAR_SECONDS
        }
        self.timers.due_in(near, now)
