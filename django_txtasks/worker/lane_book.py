"""A worker's knowledge of lanes: in which of them something may start, and when. Memory only.

It learns of a lane by a hint, by a task of its own that ends there, and by looking for lanes once in a while,
which finds what hints have not told. What it believes wrongly costs a look.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Iterable

from django_txtasks.conf import Config
from django_txtasks.lifecycle.lanes import AT_ONCE, FULL, LOOK_SECONDS, LanesRequest, LanesResult
from django_txtasks.lifecycle.turn import Subscription, TurnResult
from django_txtasks.worker.limits import NEVER

UNUSED_SECONDS = 30.0
"""Seconds between two looks where the settings have no lanes: tasks may be left from when they had."""
MOST_KNOWN = 100_000
"""Lanes that are kept in mind; where there are more, looking finds them again."""


class LaneBook:
    """Times are those of ``time.monotonic()``."""

    def __init__(self, config: Config, subscription: Subscription) -> None:
        self._rules, self._queues = config.lanes, subscription.queues
        poll = config.poll_interval.total_seconds()
        self._pause = poll if config.lanes else max(UNUSED_SECONDS, poll)
        self._next_look = 0.0 if config.lanes else time.monotonic() + self._pause
        self._behind = ""
        self._ready: dict[str, tuple[int, float]] = {}  # (-priority, tag), least first
        self._later: list[tuple[float, str]] = []
        self._tags: dict[str, float] = {}  # of lanes that have a row
        self._full: set[str] = set()  # a hint of one more task changes nothing there
        self._served: float | None = None

    @property
    def next(self) -> float:
        """When a turn may find something to start, or should look for lanes; 0 = now."""
        if self._ready:
            return 0.0
        return min(self._next_look, self._later[0][0] if self._later else NEVER)

    @property
    def is_idle(self) -> bool:
        """Whether nothing starts soon, as far as it has looked."""
        if self._ready or (self._rules and self._served is None):
            return False
        return not self._later or self._later[0][0] > time.monotonic() + self._pause

    def request(self, room: int, now: float) -> LanesRequest:
        """Return what a turn is to do: the lanes that come first, a few more than there is room for."""
        while self._later and self._later[0][0] <= now:
            _, name = heapq.heappop(self._later)
            self._is_ready(name)
        count = min(AT_ONCE, 2 * room + 2)
        first = heapq.nsmallest(count, self._ready.items(), key=lambda one: one[1])
        names = [name for name, _ in first]
        return LanesRequest(
            names,
            room,
            self._rules,
            self._served,
            new=[name for name in names if name not in self._tags],
            look_behind=self._behind if now >= self._next_look else None,
        )

    def look_again(self) -> None:
        """Look for lanes with the next turn: something has been enqueued that no hint names."""
        if self._rules:
            self._next_look = 0.0

    def ended(self, names: Iterable[str]) -> None:
        """Note lanes of which a task has ended here: another one may have its place."""
        for name in names:
            self._full.discard(name)
            self._is_ready(name)

    def learn(self, result: TurnResult, now: float) -> None:
        """Learn from a turn that has committed."""
        for name in result.in_lanes.values():
            if name not in self._full:
                self._is_ready(name)
        if result.lanes is not None:
            self._learn(result.lanes, now)

    def _learn(self, learned: LanesResult, now: float) -> None:
        self._served = learned.served
        if len(self._tags) > MOST_KNOWN:
            self._forget()
        for name, look in learned.looks.items():
            self._tags[name] = look.tag
            self._ready.pop(name, None)
            if look.wait == 0:
                self._is_ready(name)
            elif look.wait == FULL:
                self._full.add(name)
            elif look.wait is not None:
                heapq.heappush(self._later, (now + look.wait, name))
        if learned.has_looked:
            self._behind = learned.looked_until
            is_hungry = bool(self._behind) and len(self._ready) < AT_ONCE
            self._next_look = now + (LOOK_SECONDS if is_hungry else self._pause)
            self._full.clear()
        for bucket in learned.found:
            if bucket.queue_name in self._queues and bucket.wait < self._pause:
                if bucket.wait <= 0:
                    self._is_ready(bucket.lane, bucket.priority)
                else:
                    heapq.heappush(self._later, (now + bucket.wait, bucket.lane))

    def _is_ready(self, name: str, priority: int = 0) -> None:
        tag = self._tags.get(name, self._served or 0.0)
        before, _ = self._ready.get(name, (0, 0.0))
        self._ready[name] = (min(before, -priority), tag)

    def _forget(self) -> None:
        self._ready.clear()
        self._later.clear()
        self._tags.clear()
        self._full.clear()
        self._behind = ""
