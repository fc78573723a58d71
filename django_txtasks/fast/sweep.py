"""The sweep: a search of all due rows, in parts that each take a short time.

A scan in one statement would walk past all rows that this worker may not claim, and all dead rows that an old
snapshot keeps. These may be millions, and meanwhile the worker would claim and record nothing.
"""

from __future__ import annotations

import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from django_txtasks.core.rows.buckets import paused_queues
from django_txtasks.core.rows.engines.portable import RowsClaimed, claim_rows
from django_txtasks.core.rows.statements import CHOOSE_DUE
from django_txtasks.core.rows.turn import (
    Bucket,
    Candidate,
    Capacity,
    Cursor,
    Keys,
    ScanResult,
    Subscription,
    TurnResult,
)
from django_txtasks.fast import ranges
from django_txtasks.fast.gaps import Gaps
from django_txtasks.fast.ranges import Position

TURN_SECONDS = 0.025
"""Seconds that a turn spends on a sweep, because ended attempts and hints wait meanwhile."""
QUICK_PART_SECONDS = TURN_SECONDS / 2
"""Seconds; after a part that took less, the next part has twice the size."""
EMPTY_PART_SECONDS = TURN_SECONDS / 8
"""Seconds that an empty part takes."""
PART_LIMIT_SECONDS = 0.1
"""Limit in seconds for a part; then a much smaller part is tried, with twice the limit, until one succeeds."""
LAST_PART = 10 * ranges.SECOND
"""10 seconds as a position: rows that became due in the last 10 s are one part, unless it takes too long."""
COARSE_BITS = 8
"""The first part leaves out 1 / 2**8 of the time from its beginning to now."""
FINER_BITS = 6
"""A part that takes too long is read in 2**6 parts; if the first of them takes too long, in 2**12, 2**24 …"""

NOTHING_SEEN = ScanResult({}, backlog=False)
Parts = list[tuple[Position, float]]
"""The end of each part, and the seconds that it took."""


class SweepCursor(NamedTuple):
    """Where a sweep continues.

    Attributes:
        buckets: the buckets that are left, the current one first.
        begin: position at which the current part begins.
        end: end of a part that was not read to its end, because the worker had no more room; None = no such part.
        cursor: the last claimed row of that part.
    """

    buckets: tuple[Bucket, ...]
    begin: Position = 0
    end: Position | None = None
    cursor: Cursor | None = None


class Size:
    """The size of a sweep's parts, chosen from the times that the last parts took.

    Attributes:
        limit: seconds after which the database ends the statement of a part.
    """

    def __init__(self, longest: float) -> None:
        self.limit, self._longest = PART_LIMIT_SECONDS, longest
        self._too_long = 0
        self.reset()

    def reset(self) -> None:
        """Begin with large parts again."""
        self._span: Position | None = None
        self._dense_until, self._finest = 0, 0

    def end_of(self, at: Position, now: Position) -> Position:
        """Return the end of a part that begins at ``at``."""
        rest = now - at
        if self._span is not None:
            return min(now, at + self._span)
        return now if rest <= LAST_PART else now - (rest >> COARSE_BITS)

    def is_smallest(self, at: Position, end: Position) -> bool:
        """Say whether a part that took too long cannot be smaller, and may not take longer."""
        return ranges.part_end(at, at + 1) == end and self.limit >= self._longest

    def took(self, seconds: float, at: Position, end: Position, now: Position) -> None:
        """Choose the size of the next part after a part was read."""
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
        """Choose a much smaller size after a part that took too long, because it has many rows."""
        self._dense_until, self._finest = end, max(1, (end - at) >> FINER_BITS)
        self._span = max(1, (end - at) >> (FINER_BITS << self._too_long))
        self.failed()

    def succeeded(self) -> None:
        """Lower the limit after a statement that has finished within it."""
        self._too_long, self.limit = 0, max(PART_LIMIT_SECONDS, self.limit / 2)

    def failed(self) -> None:
        """Raise the limit after a statement that took too long, so that a later one succeeds."""
        self._too_long, self.limit = min(self._too_long + 1, 5), min(2 * self.limit, self._longest)


class Sweep:
    """One search from the oldest row to the rows that are due when it begins; higher priorities first.

    The time of a part depends on its rows, live and dead, and no statement can count them. If a part takes too
    long, the database ends its statement, and the sweep reads it in much smaller parts. The next sweep has the
    same parts.

    If priorities are strict, the last part of each bucket includes the rows that have become due since, so a
    backlog that grows as fast as it is claimed keeps lower priorities waiting. If tasks gain priority with age,
    those rows are left to the next sweep.

    Args:
        buckets: buckets that may have rows; the sweep finds the others.
        longest: limit in seconds for one statement.
        before: the parts of the last sweep.
        is_strict: whether priorities are strict: a task gains none with age.

    Attributes:
        sql, kind: the statement of a part, and the class of its rows.
        now: position of the database's time at which the parts end; 0 = the parts have not begun.
        buckets: all buckets, given and found.
        parts: the parts of each bucket so far.
        began: start of the sweep, by ``time.monotonic()``.
        spent: seconds that its turns have taken.
        waste: seconds that its parts have taken beyond the time of empty parts.
    """

    sql = CHOOSE_DUE
    kind: Callable[..., Any] = Candidate

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
        self.now: Position = 0
        self._gaps = Gaps(subscription, self.buckets)
        self._here: SweepCursor | None = None
        self._before: SweepCursor | None = None
        self._paused: set[str] = set()
        self._size = Size(longest)

    @property
    def is_over(self) -> bool:
        """Say whether all parts were read."""
        return self._here is not None and not self._here.buckets

    def claim(self, worker: uuid.UUID, capacity: Capacity) -> TurnResult:
        """Go on for ``TURN_SECONDS``, and claim the rows that fit."""
        self._before = self._here
        self._paused = paused_queues(self._subscription.alias)
        result = TurnResult(capacity, scan=NOTHING_SEEN)
        begun = time.monotonic()
        while not self.is_over and result.rest.width and result.blocked_queue is None:
            if self._here is None:
                (self._begin if self._gaps.are_over else self._search_gap)()
            else:
                result = self._claim_part(self._here, worker, result)
            if time.monotonic() >= begun + TURN_SECONDS:
                break
        self.spent += time.monotonic() - begun
        return result

    def rolled_back(self) -> None:
        """Go back to where the last turn began, because the rows that it claimed are pending again."""
        self._here = self._before

    def _search_gap(self) -> None:
        searched = self._gaps.search(self._size.limit)
        self.waste += max(0.0, searched.seconds - EMPTY_PART_SECONDS)
        (self._size.failed if searched.took_too_long else self._size.succeeded)()
        if searched.bucket is not None:
            self.buckets.add(searched.bucket)

    def _begin(self) -> None:
        self.now = ranges.now(self._subscription.alias)
        self._here = SweepCursor(tuple(in_order(self.buckets, self._subscription.queues)))

    # -- parts -------------------------------------------------------------------------------------

    def _claim_part(self, here: SweepCursor, worker: uuid.UUID, so_far: TurnResult) -> TurnResult:
        width, bucket = so_far.rest.width, here.buckets[0]
        if bucket.queue_name in self._paused:
            self._go_on(here, self.now)
            return so_far
        end = here.end or self._end_of_part(here)
        rows, seconds = ranges.choose(
            self._subscription, bucket, width, begin=here.begin, cursor=here.cursor,
            end=None if self._is_strict and end >= self.now else end,
            seconds=self._size.limit, sql=self.sql,
        )  # fmt: skip
        self.waste += max(0.0, seconds - EMPTY_PART_SECONDS)
        if rows is None:
            self._took_too_long(here, end)
            return so_far
        candidates = [self.kind(*row) for row in rows]
        claimed = self._take(worker, candidates, so_far.rest)
        is_filled = len(candidates) == width or claimed.is_cut_short
        if is_filled or claimed.blocked_queue is not None:
            cursor = candidates[claimed.passed - 1].cursor if claimed.passed else here.cursor
            self._here = here._replace(end=end, cursor=cursor)
        else:
            self._size.took(seconds, here.begin, end, self.now)
            self.parts[bucket].append((end, seconds))
            self._go_on(here, end)
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

    def _take(self, worker: uuid.UUID, candidates: Sequence[Any], rest: Capacity) -> RowsClaimed:
        return claim_rows(self._subscription, worker, candidates, rest)

    def _end_of_part(self, here: SweepCursor) -> Position:
        known = self._known.get(here.buckets[0], [])
        while known and known[0] <= here.begin:
            known.pop(0)
        end = known[0] if known else self._size.end_of(here.begin, self.now)
        return ranges.part_end(here.begin, end)

    def _took_too_long(self, here: SweepCursor, end: Position) -> None:
        self._known.pop(here.buckets[0], None)
        self._here = here._replace(end=None)
        if self._size.is_smallest(here.begin, end):
            self._go_on(here, end)
        self._size.took_too_long(here.begin, end)

    def _go_on(self, here: SweepCursor, end: Position) -> None:
        if end < self.now:
            self._here = SweepCursor(here.buckets, begin=end)
        else:
            self._here = SweepCursor(here.buckets[1:])
            self._size.reset()


def _joined(parts: Parts) -> list[Position]:
    """Return the ends of parts of about ``TURN_SECONDS``, joined from parts that took less."""
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
    """Return buckets in the order of a scan: higher priorities first, then by the order of the queues."""
    return sorted(buckets, key=lambda one: (-one.priority, queues.index(one.queue_name)))
