"""A pass over all that is due, in parts that each take a moment.

A scan in one statement would walk past all rows that this worker may not take, and all dead ones that an old
snapshot keeps: millions, in the end, while nothing is claimed or recorded.
"""

from __future__ import annotations

import itertools
import time
import uuid
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from django_txtasks.lifecycle import ranges
from django_txtasks.lifecycle.engines.portable import claim_rows
from django_txtasks.lifecycle.heads import paused_queues
from django_txtasks.lifecycle.ranges import Position
from django_txtasks.lifecycle.turn import (
    Bucket,
    Candidate,
    Capacity,
    Cursor,
    Keys,
    ScanResult,
    Subscription,
    TurnResult,
)

TURN_SECONDS = 0.025
"""Seconds that a turn gives to a sweep: what ended, and hints, wait for so long."""
QUICK_PART_SECONDS = TURN_SECONDS / 2
"""Seconds; a part that took less is followed by one of twice the size."""
EMPTY_PART_SECONDS = TURN_SECONDS / 8
"""Seconds that a part takes in which there is nothing."""
PART_LIMIT_SECONDS = 0.1
"""Seconds after which a part is given up for a much smaller one; then twice as long, until one succeeds."""
LAST_PART = 10 * ranges.SECOND
"""Microseconds. Rows that became due in this time are looked at as one part, unless that takes too long."""
COARSE_BITS = 8
"""At first a part leaves 1 / 2**8 of the time between where it begins and now."""
FINER_BITS = 6
"""A part that takes too long is looked at in 2**6 parts; if the first of them does, too, in 2**12, 2**24 …"""

NOTHING_SEEN = ScanResult({}, backlog=False)
Parts = list[tuple[Position, float]]
"""Where each part ended, and how many seconds it took."""


class Place(NamedTuple):
    """The place that a sweep has come to.

    Attributes:
        buckets: those that are left, the present one first.
        at: the present part begins behind it.
        end: of a part that was not looked at to its end, for want of room.
        cursor: the last row that was claimed in that.
    """

    buckets: tuple[Bucket, ...]
    at: Position = 0
    end: Position | None = None
    cursor: Cursor | None = None


class Gap(NamedTuple):
    """Priorities between two others of a queue, neither of which is part of it."""

    queue: str
    low: int
    high: int

    @property
    def is_empty(self) -> bool:
        return self.high - self.low <= 1


class Size:
    """The size of a sweep's parts: it follows from how long the last ones took.

    Attributes:
        limit: seconds after which the database ends a part.
    """

    def __init__(self, longest: float) -> None:
        self.limit, self._longest = PART_LIMIT_SECONDS, longest
        self._too_long = 0
        self.reset()

    def reset(self) -> None:
        """Begin with large ones."""
        self._span: Position | None = None
        self._dense_until, self._finest = 0, 0

    def end_of(self, at: Position, now: Position) -> Position:
        """Return where a part ends that begins here."""
        rest = now - at
        if self._span is not None:
            return min(now, at + self._span)
        return now if rest <= LAST_PART else now - (rest >> COARSE_BITS)

    def is_smallest(self, at: Position, end: Position) -> bool:
        """Say whether a part that took too long can be no smaller, and may take no longer."""
        return ranges.part_end(at, at + 1) == end and self.limit >= self._longest

    def took(self, seconds: float, at: Position, end: Position, now: Position) -> None:
        """Choose the size of the next part after one that was looked at."""
        self.succeeded()
        if seconds > TURN_SECONDS:
            self._span = max(1, (end - at) // 2)
        elif seconds < QUICK_PART_SECONDS and self._span is not None:
            self._span *= 2
            if end < self._dense_until:
                self._span = min(self._span, self._finest)
            elif self._span > now - end:
                self._span = None

    def took_too_long(self, at: Position, end: Position) -> None:
        """Choose a much smaller size after a part that the database has ended: it has many rows."""
        self._dense_until, self._finest = end, max(1, (end - at) >> FINER_BITS)
        self._span = max(1, (end - at) >> (FINER_BITS << self._too_long))
        self.failed()

    def succeeded(self) -> None:
        """Note that a statement has ended by itself."""
        self._too_long, self.limit = 0, max(PART_LIMIT_SECONDS, self.limit / 2)

    def failed(self) -> None:
        """Raise the limit after a statement that took longer, so that one succeeds in the end."""
        self._too_long, self.limit = min(self._too_long + 1, 5), min(2 * self.limit, self._longest)


class Sweep:
    """One pass, from the oldest row to those that are due as it begins; higher priorities first.

    A part takes as long as there are rows in it, dead or alive, which nobody can count. One that takes too long
    is ended by the database and looked at in much smaller ones; the next pass has the same parts.

    Where priorities are strict, the last part of each bucket ends with what is due by then, so that a backlog
    which grows as fast as it is claimed keeps lower priorities waiting. Where tasks gain priority with age, what
    has become due since the pass began is left to the next one.

    Args:
        buckets: where rows may be; those that are missing are found.
        longest: seconds that one statement may take at all.
        before: the parts of the last pass.
        is_strict: whether priorities are: no age makes up for a lower one.

    Attributes:
        buckets: with those that were found.
        parts: of each of them, so far.
        began: when, by ``time.monotonic()``.
        spent: seconds that its turns have taken.
        waste: seconds that its parts have taken because there was something in them.
    """

    def __init__(
        self,
        subscription: Subscription,
        buckets: Iterable[Bucket],
        *,
        longest: float,
        before: Mapping[Bucket, Parts],
        is_strict: bool = True,
    ) -> None:
        self._subscription, self._is_strict = subscription, is_strict
        self.buckets = {one for one in buckets if one.queue_name in subscription.queues}
        self.parts: dict[Bucket, Parts] = defaultdict(list)
        self.began = time.monotonic()
        self.spent = self.waste = 0.0
        self._known = {bucket: _joined(parts) for bucket, parts in before.items()}
        self._now: Position = 0
        self._gaps = [gap for queue in subscription.queues for gap in self._gaps_of(queue)]
        self._place: Place | None = None
        self._before: Place | None = None
        self._paused: set[str] = set()
        self._size = Size(longest)

    @property
    def is_over(self) -> bool:
        """Say whether all of it was looked at."""
        return self._place is not None and not self._place.buckets

    def claim(self, worker: uuid.UUID, capacity: Capacity) -> TurnResult:
        """Go on for a moment; claim what is found and fits."""
        self._before = self._place
        self._paused = paused_queues(self._subscription.alias)
        result = TurnResult(capacity, scan=NOTHING_SEEN)
        begun = time.monotonic()
        while not self.is_over and result.rest.width and result.blocked_queue is None:
            if self._place is None:
                self._look_for_buckets()
            else:
                result = self._look(self._place, worker, result)
            if time.monotonic() >= begun + TURN_SECONDS:
                break
        self.spent += time.monotonic() - begun
        return result

    def rolled_back(self) -> None:
        """Go on from where the last turn began: what it claimed is pending again."""
        self._place = self._before

    # -- which priorities there are ----------------------------------------------------------------

    def _gaps_of(self, queue: str) -> list[Gap]:
        known = sorted(priority for priority, of in self.buckets if of == queue)
        edges = [ranges.LOWEST - 1, *known, ranges.HIGHEST + 1]
        return [Gap(queue, *pair) for pair in itertools.pairwise(edges)]

    def _look_for_buckets(self) -> None:
        """Look into a gap. One that takes too long has dead rows in it: its middle is looked at in parts."""
        if not self._gaps:
            self._begin()
            return
        queue, low, high = gap = self._gaps.pop()
        if gap.is_empty:
            return
        alias = self._subscription.alias
        found, seconds = ranges.priority_between(alias, queue, low, high, seconds=self._size.limit)
        self.waste += max(0.0, seconds - EMPTY_PART_SECONDS)
        (self._size.failed if found is None else self._size.succeeded)()
        if found == []:
            return
        priority = (low + high) // 2
        for (lowest,) in found or []:
            priority = lowest
        self.buckets.add(Bucket(priority, queue))
        self._gaps += [gap._replace(high=priority), gap._replace(low=priority)]

    def _begin(self) -> None:
        self._now = ranges.now(self._subscription.alias)
        self._place = Place(tuple(in_order(self.buckets, self._subscription.queues)))

    # -- parts -------------------------------------------------------------------------------------

    def _look(self, place: Place, worker: uuid.UUID, so_far: TurnResult) -> TurnResult:
        width, bucket = so_far.rest.width, place.buckets[0]
        if bucket.queue_name in self._paused:
            self._go_on(place, self._now)
            return so_far
        end = place.end or self._end_of_part(place)
        rows, seconds = ranges.choose(
            self._subscription,
            bucket,
            width,
            begin=place.at,
            end=None if self._is_strict and end >= self._now else end,
            cursor=place.cursor,
            seconds=self._size.limit,
        )
        self.waste += max(0.0, seconds - EMPTY_PART_SECONDS)
        if rows is None:
            self._took_too_long(place, end)
            return so_far
        candidates = [Candidate._make(row) for row in rows]
        claimed = claim_rows(self._subscription, worker, candidates, so_far.rest)
        is_filled = len(candidates) == width or claimed.is_cut_short
        if is_filled or claimed.blocked_queue is not None:
            cursor = candidates[claimed.passed - 1].cursor if claimed.passed else place.cursor
            self._place = place._replace(end=end, cursor=cursor)
        else:
            self._size.took(seconds, place.at, end, self._now)
            self.parts[bucket].append((end, seconds))
            self._go_on(place, end)
        scan, attempts = so_far.scan or NOTHING_SEEN, so_far.claimed + claimed.attempts
        is_held_up = (scan.is_held_up or claimed.keys_wait) and not attempts
        return replace(
            so_far,
            rest=claimed.rest,
            claimed=attempts,
            scan=ScanResult({}, scan.backlog or is_filled, is_held_up=is_held_up),
            keys=Keys.CLAIMED if claimed.has_keys else so_far.keys,
            blocked_queue=claimed.blocked_queue,
        )

    def _end_of_part(self, place: Place) -> Position:
        known = self._known.get(place.buckets[0], [])
        while known and known[0] <= place.at:
            known.pop(0)
        end = known[0] if known else self._size.end_of(place.at, self._now)
        return ranges.part_end(place.at, end)

    def _took_too_long(self, place: Place, end: Position) -> None:
        self._known.pop(place.buckets[0], None)
        self._place = place._replace(end=None)
        if self._size.is_smallest(place.at, end):
            self._go_on(place, end)
        self._size.took_too_long(place.at, end)

    def _go_on(self, place: Place, end: Position) -> None:
        if end < self._now:
            self._place = Place(place.buckets, at=end)
        else:
            self._place = Place(place.buckets[1:])
            self._size.reset()


def _joined(parts: Parts) -> list[Position]:
    """Return where parts end that take a moment, too, made of those that took less."""
    ends: list[Position] = []
    total = 0.0
    for end, seconds in parts:
        if ends and total + seconds <= TURN_SECONDS:
            ends.pop()
            total += seconds
        else:
            total = seconds
        ends.append(end)
    return ends


def in_order(buckets: Iterable[Bucket], queues: Sequence[str]) -> list[Bucket]:
    """Return buckets in the order of a scan: higher priorities first, then as the queues stand."""
    return sorted(buckets, key=lambda one: (-one.priority, queues.index(one.queue_name)))
