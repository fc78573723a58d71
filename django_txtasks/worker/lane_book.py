"""A worker's knowledge of lanes: in which of them something may start, and when. Memory only.

It learns of a lane by a hint, by a task of its own that ends there, and by looking for lanes once in a while,
which finds what hints have not told. What it believes wrongly costs a look. It serves the lanes for which its
settings have a rule: where that is gone, or not there yet, what is in them waits.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from dataclasses import dataclass

from django.db import connections

from django_txtasks.conf import Config
from django_txtasks.lanes.claiming import (
    AT_ONCE,
    BUSY_SECONDS,
    FULL,
    LaneLook,
    LanesRequest,
    LanesResult,
)
from django_txtasks.lifecycle.lane_buckets import LOOK_SECONDS
from django_txtasks.lifecycle.turn import Subscription, TurnResult
from django_txtasks.worker.running.limits import NEVER

MOST_KNOWN = 100_000
"""Lanes that are kept in mind; where there are more, looking finds them again."""
MORE_LANES = 4
"""Lanes that a turn asks for beyond its room: of some nothing is due, and others are locked."""
OFTEN_SECONDS = 0.1
"""Seconds between two looks while there is work, where no hint tells of a lane that was empty."""
MOST_READY = 5_000
"""Lanes in which something is known to be due; looks find the others again."""
LONGEST_PAUSE_SECONDS = 5.0
"""Seconds after which a lane is tried again that gives this worker nothing, if nobody tells of it sooner."""
NEAR_SECONDS = 60.0
"""Seconds ahead that a lane's next task is waited for; what is later is found by looking."""
FAILED_SECONDS = 30.0
"""Seconds after which a lane is tried again at which a turn has failed that served no other."""
FIRST = (float("-inf"), 0.0)
"""The place of a lane of which it is not known what is due in it: a turn finds out."""


@dataclass
class _Shut:
    """A lane that gives this worker nothing: looks pass over it until then, and then for twice as long."""

    until: float
    pause: float


class LaneBook:
    """Times are those of ``time.monotonic()``."""

    def __init__(self, config: Config, subscription: Subscription) -> None:
        self._rules, self._queues = config.lanes, subscription.queues
        self._pause = config.poll_interval.total_seconds()
        self._next_look = 0.0 if config.lanes else NEVER
        vendor = connections[subscription.alias].vendor
        self._looks_often = config.has_database_hints and vendor == "mysql"
        self._looked_at = 0.0
        self._has_looked = False
        self._behind = ""
        self._ready: dict[str, tuple[float, float]] = {}  # (-priority, tag), least first
        self._later: list[tuple[float, str]] = []
        self._later_at: dict[str, float] = {}
        self._tags: dict[str, float] = {}  # of lanes that have a row
        self._shut: dict[str, _Shut] = {}
        self._suspects: list[str] = []  # to be asked for one by one, since a turn has failed
        self._asked: list[str] = []
        self._served: float | None = None

    @property
    def next(self) -> float:
        """When a turn may find something to start, or should look for lanes; 0 = now."""
        if self._ready or self._suspects:
            return 0.0
        return min(self._next_look, self._later[0][0] if self._later else NEVER)

    def is_idle(self, now: float) -> bool:
        """Say whether nothing starts within a poll interval, as far as a whole look has found."""
        if not self._rules:
            return True
        if self._ready or self._behind or not self._has_looked:
            return False
        return not self._later or self._later[0][0] > now + self._pause

    def request(self, room: int, now: float) -> LanesRequest:
        """Return what a turn is to do: look for lanes, or serve those that come first, a few more than fit."""
        if now >= self._next_look:
            self._asked = []
            return LanesRequest([], room, self._rules, self._served, look_behind=self._behind)
        while self._later and self._later[0][0] <= now:
            at, name = heapq.heappop(self._later)
            if self._later_at.get(name) == at:
                del self._later_at[name]
                self._is_ready(name)
        self._asked = self._first(room)
        new = [name for name in self._asked if name not in self._tags]
        return LanesRequest(self._asked, room, self._rules, self._served, new)

    def _first(self, room: int) -> list[str]:
        if self._suspects:
            return [self._suspects.pop()]
        count = min(AT_ONCE, room + MORE_LANES)
        new = [name for name, place in self._ready.items() if place == FIRST][: count // 2]
        known = [(place, name) for name, place in self._ready.items() if place != FIRST]
        first = [name for _, name in heapq.nsmallest(count - len(new), known)]
        return new + first

    def look_again(self) -> None:
        """Look for lanes with the next turn: something has been enqueued that no hint names."""
        if self._rules:
            self._next_look, self._behind, self._has_looked = 0.0, "", False

    def ended(self, names: Iterable[str]) -> None:
        """Note lanes of which a task has ended here: another one may have its place."""
        for name in names:
            self._shut.pop(name, None)
            self._is_ready(name)

    def failed(self, now: float) -> None:
        """Prepare the turns after one that took too long: one of its lanes is why."""
        if len(self._asked) == 1:
            self._ready.pop(self._asked[0], None)
            self._shut[self._asked[0]] = _Shut(NEVER, FAILED_SECONDS)
            self._wait_for(self._asked[0], now, FAILED_SECONDS)
        elif self._asked:
            self._suspects = self._asked
        else:  # it was looking for lanes
            self._next_look = now + FAILED_SECONDS
        self._asked = []

    def learn(self, result: TurnResult, now: float) -> None:
        """Learn from a turn that has committed."""
        for name in result.in_lanes.values():
            shut = self._shut.get(name)
            if shut is None or now >= shut.until:
                self._is_ready(name)
        if result.lanes is not None:
            self._learn(result.lanes, now)
            if self._looks_often and result.claimed:
                self._next_look = min(self._next_look, self._looked_at + OFTEN_SECONDS)

    def _learn(self, learned: LanesResult, now: float) -> None:
        self._served = learned.served
        if len(self._tags) + len(self._shut) + len(self._later_at) > MOST_KNOWN:
            self._forget()
        for name in self._asked:
            self._ready.pop(name, None)
            if name in learned.looks:
                self._note(name, learned.looks[name], now)
            else:  # somebody has locked its row, or it has none any more
                self._tags.pop(name, None)
                self._wait_for(name, now, BUSY_SECONDS)
        if learned.has_looked:
            self._note_found(learned, now)

    def _note(self, name: str, look: LaneLook, now: float) -> None:
        self._tags[name] = look.tag
        if look.wait == FULL or look.is_barren:
            before = self._shut.get(name)
            pause = self._pause if before is None else min(2 * before.pause, LONGEST_PAUSE_SECONDS)
            self._shut[name] = _Shut(now + pause, pause)
            return
        self._shut.pop(name, None)
        if look.wait == 0:
            self._is_ready(name, look.priority)
        elif look.wait is not None:
            if look.is_closed:  # hints, and what looks find, change nothing there
                pause = min(look.wait, LONGEST_PAUSE_SECONDS)
                self._shut[name] = _Shut(now + pause, pause)
            self._wait_for(name, now, look.wait)

    def _note_found(self, learned: LanesResult, now: float) -> None:
        """Note the lanes of a look; one that is to go on goes on soon where little is known to be due."""
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
        if self._rules.find(name) is None:
            return
        tag = self._tags.get(name, self._served or 0.0)
        place = FIRST if priority is None else (-float(priority), tag)
        self._ready[name] = min(self._ready.get(name, place), place)

    def _wait_for(self, name: str, now: float, seconds: float) -> None:
        """Ask for a lane after so long, unless it is asked for sooner."""
        at = now + seconds
        if seconds <= NEAR_SECONDS and at < self._later_at.get(name, NEVER):
            self._later_at[name] = at
            heapq.heappush(self._later, (at, name))

    def _forget(self) -> None:
        for known in (self._ready, self._later, self._later_at, self._tags, self._shut):
            known.clear()
        self._behind = ""
