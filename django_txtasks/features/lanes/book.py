"""A worker's knowledge of lanes: which lanes may have a task to start, and when. It is kept in memory only.

The worker learns of a lane from a hint, from its own task that ends there, and from a look for lanes once per
``poll_interval``, which finds the lanes that no hint named. A wrong entry costs one look. The worker serves the
lanes for which its settings have a rule; tasks in other lanes wait.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Set
from dataclasses import dataclass

from django.db import connections

from django_txtasks.core.ground.config import CoreConfig
from django_txtasks.core.rows.turn import Subscription, TurnResult
from django_txtasks.core.working.running.limits import NEVER
from django_txtasks.features.lanes.buckets import LOOK_SECONDS
from django_txtasks.features.lanes.claiming import (
    AT_ONCE,
    BUSY_SECONDS,
    FULL,
    LanesRequest,
    LanesResult,
    LaneState,
)
from django_txtasks.features.lanes.options import LaneConfig

MOST_KNOWN = 100_000
"""Lanes to remember. If there are more, looks find them again."""
MORE_LANES = 4
"""Lanes that a turn asks for beyond its room, because some lanes have nothing due and others are locked."""
OFTEN_SECONDS = 0.1
"""Seconds between two looks while there is work, if no hint names a lane that was empty."""
MOST_READY = 5_000
"""Lanes to remember as ready. Looks find the others again."""
LONGEST_PAUSE_SECONDS = 5.0
"""Longest pause in seconds before a lane is tried again that gave this worker nothing."""
NEAR_SECONDS = 60.0
"""Seconds ahead for which the next task of a lane gets a timer. Looks find later tasks."""
RESERVED_SECONDS = 1.0
"""Seconds until a lane is tried again that is left to a last chance after a crash."""
FAILED_SECONDS = 30.0
"""Seconds until a lane is tried again if a turn failed that served no other lane."""
Rank = tuple[float, float]
"""Minus the priority, and the virtual time; the smallest comes first."""
FIRST: Rank = (float("-inf"), 0.0)
"""Rank of a lane whose due tasks are unknown. It comes first, so that a turn finds out."""


@dataclass
class _Shut:
    """A lane that gives this worker nothing. Looks skip it until a time; the next pause is twice as long."""

    until: float
    pause: float


class LaneBook:
    """The lanes that one worker knows. All times are by ``time.monotonic()``."""

    def __init__(self, config: CoreConfig, subscription: Subscription) -> None:
        self.rules, self._queues = config.of(LaneConfig).lanes, subscription.queues
        self._pause = config.poll_interval.total_seconds()
        self._next_look = 0.0 if self.rules else NEVER
        vendor = connections[subscription.alias].vendor
        self._looks_often = config.has_database_hints and vendor == "mysql"
        self._looked_at, self._has_looked, self._behind = 0.0, False, ""
        self._ready: dict[str, Rank] = {}
        self._later: list[tuple[float, str]] = []
        self._later_at: dict[str, float] = {}
        self._virtual_times: dict[str, float] = {}  # virtual time of each lane that has a row
        self._shut: dict[str, _Shut] = {}
        self._suspects: list[str] = []  # lanes to ask for one by one, because a turn has failed
        self._asked: list[str] = []
        self._served: float | None = None

    @property
    def next(self) -> float:
        """Time at which a turn may find a task to start, or should look for lanes; 0 = now."""
        if self._ready or self._suspects:
            return 0.0
        return min(self._next_look, self._later[0][0] if self._later else NEVER)

    def is_idle(self, now: float) -> bool:
        """Return True if a complete look found nothing that starts within a poll interval."""
        if not self.rules:
            return True
        knows_all = self._has_looked and not (self._ready or self._behind)
        return knows_all and (not self._later or self._later[0][0] > now + self._pause)

    def request(self, room: int, now: float, reserved: Set[str] = frozenset()) -> LanesRequest:
        """Return the next turn's work: a look for lanes, or the first not ``reserved``, a few more than fit."""
        if now >= self._next_look:
            self._asked = []
            return LanesRequest([], room, self.rules, self._served, look_behind=self._behind)
        while self._later and self._later[0][0] <= now:
            at, name = heapq.heappop(self._later)
            if self._later_at.get(name) == at:
                del self._later_at[name]
                self._is_ready(name)
        for name in self._ready.keys() & reserved:
            del self._ready[name]
            self._wait_for(name, now, RESERVED_SECONDS)
        count = min(AT_ONCE, room + MORE_LANES)
        self._asked = [self._suspects.pop()] if self._suspects else _first(self._ready, count)
        new = [name for name in self._asked if name not in self._virtual_times]
        return LanesRequest(self._asked, room, self.rules, self._served, new)

    def look_again(self) -> None:
        """Look for lanes with the next turn, because an enqueued task may be in a lane that no hint names."""
        if self.rules:
            self._next_look, self._behind, self._has_looked = 0.0, "", False

    def ended(self, names: Iterable[str]) -> None:
        """Note lanes in which a task has ended here, so that another task may take its place."""
        for name in names:
            self._shut.pop(name, None)
            self._is_ready(name)

    def failed(self, now: float) -> None:
        """Prepare the next turns: the last turn took too long because of one of its lanes."""
        if len(self._asked) == 1:
            self._ready.pop(self._asked[0], None)
            self._shut[self._asked[0]] = _Shut(NEVER, FAILED_SECONDS)
            self._wait_for(self._asked[0], now, FAILED_SECONDS)
        elif self._asked:
            self._suspects = self._asked
        else:  # the turn was looking for lanes
            self._next_look = now + FAILED_SECONDS
        self._asked = []

    def learn(self, result: TurnResult, now: float) -> None:
        """Update the book from a committed turn."""
        for name in result.in_lanes.values():
            shut = self._shut.get(name)
            if shut is None or now >= shut.until:
                self._is_ready(name)
        if result.apart is not None:
            self._learn(result.apart, now)
            if self._looks_often and result.claimed:
                self._next_look = min(self._next_look, self._looked_at + OFTEN_SECONDS)

    def _learn(self, learned: LanesResult, now: float) -> None:
        self._served = learned.served
        if len(self._virtual_times) + len(self._shut) + len(self._later_at) > MOST_KNOWN:
            self._forget()
        for name in self._asked:
            self._ready.pop(name, None)
            if name in learned.states:
                self._note(name, learned.states[name], now)
            else:  # another session has locked its row, or it has no row any more
                self._virtual_times.pop(name, None)
                self._wait_for(name, now, BUSY_SECONDS)
        if learned.has_looked:
            self._note_found(learned, now)

    def _note(self, name: str, state: LaneState, now: float) -> None:
        self._virtual_times[name] = state.virtual_time
        if state.wait == FULL or state.is_barren:
            before = self._shut.get(name)
            pause = self._pause if before is None else min(2 * before.pause, LONGEST_PAUSE_SECONDS)
            self._shut[name] = _Shut(now + pause, pause)
            return
        self._shut.pop(name, None)
        if state.wait == 0:
            self._is_ready(name, state.priority)
        elif state.wait is not None:
            if state.is_closed:  # neither hints nor looks open it sooner
                pause = min(state.wait, LONGEST_PAUSE_SECONDS)
                self._shut[name] = _Shut(now + pause, pause)
            self._wait_for(name, now, state.wait)

    def _note_found(self, learned: LanesResult, now: float) -> None:
        """Note the lanes of a look. If the look is not complete and few lanes are ready, it continues soon."""
        for bucket in learned.found:
            shut = self._shut.get(bucket.lane)
            if bucket.queue_name not in self._queues or (shut is not None and now < shut.until):
                continue
            if bucket.wait <= 0:
                if bucket.lane in self._ready or len(self._ready) < MOST_READY:
                    self._is_ready(bucket.lane, bucket.priority)
            else:
                self._wait_for(bucket.lane, now, bucket.wait)
        self._behind, self._looked_at = learned.looked_until, now
        self._has_looked = self._has_looked or not self._behind
        is_hungry = bool(self._behind) and len(self._ready) < AT_ONCE
        self._next_look = now + (LOOK_SECONDS if is_hungry else self._pause)

    def _is_ready(self, name: str, priority: int | None = None) -> None:
        if self.rules.find(name) is None:
            return
        virtual_time = self._virtual_times.get(name, self._served or 0.0)
        rank = FIRST if priority is None else (-float(priority), virtual_time)
        self._ready[name] = min(self._ready.get(name, rank), rank)

    def _wait_for(self, name: str, now: float, seconds: float) -> None:
        """Ask for a lane after this number of seconds, unless it is asked for sooner."""
        at = now + seconds
        if seconds <= NEAR_SECONDS and at < self._later_at.get(name, NEVER):
            self._later_at[name] = at
            heapq.heappush(self._later, (at, name))

    def _forget(self) -> None:
        for known in (self._ready, self._later, self._later_at, self._virtual_times, self._shut):
            known.clear()
        self._behind = ""


def _first(ready: dict[str, Rank], count: int) -> list[str]:
    """Return ``count`` lanes, or all: up to half of them new ones, then the first in order."""
    new = [name for name, rank in ready.items() if rank == FIRST][: count // 2]
    known = [(rank, name) for name, rank in ready.items() if rank != FIRST]
    return new + [name for _, name in heapq.nsmallest(count - len(new), known)]
