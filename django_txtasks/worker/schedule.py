"""When a worker's next turn is due, and what it looks for. Times are those of ``time.monotonic()``."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from datetime import timedelta

from django_txtasks.conf import Config
from django_txtasks.lifecycle.attempts import Arrow, Ended
from django_txtasks.lifecycle.claims import Room
from django_txtasks.lifecycle.dialect import is_repeatable
from django_txtasks.retry import backoff, jitter
from django_txtasks.worker.ledger import Turn
from django_txtasks.worker.timers import Timers

BUSY_ROW = 0.05
"""Seconds until an outcome whose row somebody else had locked is tried again."""
WIDE = 500
"""Ids looked up in a turn after some had no row: real tasks must not wait behind a flood of others."""
NEAR = 60.0
"""Seconds ahead that a task is waited for by a timer instead of a scan."""


class Schedule:
    """What a worker knows of its near future.

    Attributes:
        nothing_due: the last scan that had room found nothing.
    """

    def __init__(self, config: Config) -> None:
        self.config = config
        self.nothing_due = False
        self.timers = Timers(
            retry=config.retry_time.total_seconds(), giveup=config.giveup_time.total_seconds()
        )
        self._timed: set[uuid.UUID] = set()
        self._width = 0
        self._backlog = False
        self._failures = 0
        self._earlier = jitter(0, 0.5)  # of an interval: those who began together part
        self._next_beat = self._next_scan = self._not_before = 0.0

    def next_turn(self, room: Room, *, hinted: bool, unrecorded: bool, more: bool = False) -> float:
        """Return when the next turn is due; 0 = now."""
        times = [self._next_beat]
        if unrecorded:
            times.append(0.0)
        if room.width:
            times.append(0.0 if hinted else self.timers.next())
        if room.width and not room.enough:
            times.append(0.0 if more else self._next_scan)
        return max(min(times), self._not_before)

    def turn(self, room: Room, hinted: list[uuid.UUID], now: float, *, more: bool = False) -> Turn:
        """Return what to look for now. After a failure only record: what made the claim fail may do so again.

        Args:
            more: others wait beside those that are ``hinted``.
        """
        self._timed = set()
        if self._failures or not room.width:
            return Turn(Room(0), [], scan=False)
        scan = (more or now >= self._next_scan) and not room.enough
        if scan and (
            more or self._backlog
        ):  # it finds them in their turn; if it has room, they are next
            return Turn(room, [], scan=True)
        width = max(room.width, self._width)
        timed = self.timers.pop_due(now, width)
        self._timed = set(timed)
        ids = timed + hinted[:width]
        return Turn(room, ids, scan=scan)

    def written(self, turn: Turn, now: float, *, busy: bool) -> None:
        """A turn has committed: decide what the next ones look for."""
        self._failures = 0
        self._not_before = now + BUSY_ROW if busy else 0.0
        self._next_beat = now + self.config.beat.total_seconds()
        if turn.lookup is not None:
            self.timers.found(set(turn.ids) - set(turn.lookup.absent))
            near = {
                task_id: wait
                for task_id, wait in turn.lookup.later.items()
                if 0 < wait < NEAR or task_id in self._timed
            }
            self.timers.due_in(near, now)
            self.timers.absent(turn.lookup.absent, now)
            self._width = WIDE if turn.lookup.absent else 0
        if turn.scan_filled:
            self.timers.pop_due(now)  # a backlog: the scan finds them in their turn
        if turn.scan:
            self.nothing_due = not (turn.claimed or turn.scan_filled or turn.recent)
            poll = self.config.poll_interval.total_seconds() * (1 - self._earlier)
            self._next_scan = 0.0 if turn.scan_filled else now + poll
            self._backlog = turn.scan_filled
            self._earlier = 0.0

    def failed(self, error: Exception, now: float) -> float:
        """A turn was rolled back: return after how many seconds the next one comes.

        The first one comes at once: a link that was cut is there again in a moment, and a worker that
        is suspected has to beat. All pauses stay well within the lease: a cleaner that is back sooner
        must not find it silent.
        """
        self.timers.due_in(dict.fromkeys(self._timed, 0.0), now)
        self._failures += 1
        self._earlier = jitter(0, 0.5)
        delay = 0.0
        if self._failures > 1 and not is_repeatable(error):
            ceiling = min(timedelta(seconds=5), self.config.lease / 5)
            pause = backoff(self._failures - 1, base=ceiling / 20, ceiling=ceiling)
            delay = pause.total_seconds()
        self._not_before = now + delay
        self._next_beat = 0.0
        return delay

    def beat_at_once(self) -> None:
        """Do not wait for the next beat, nor for the end of a pause."""
        self._next_beat = self._not_before = 0.0

    def look_again(self) -> None:
        """Something may be due that was not."""
        self.nothing_due, self._next_scan = False, 0.0

    def expect_retries(self, ended: Iterable[Ended], now: float) -> None:
        """A retry that is near is not left to the scan."""
        near = {
            one.attempt.task_id: one.delay.total_seconds()
            for one in ended
            if one.arrow is Arrow.RETRY and one.delay.total_seconds() < NEAR
        }
        self.timers.due_in(near, now)
