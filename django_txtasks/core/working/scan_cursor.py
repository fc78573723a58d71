"""The place that a worker's scans have reached: where each begins, and how often one begins at the head again."""

from __future__ import annotations

import time
from dataclasses import replace
from datetime import timedelta

from django_txtasks.core.declaring import registry
from django_txtasks.core.rows.turn import (
    Bucket,
    Cursors,
    RecentWindow,
    Scan,
    Subscription,
    TurnResult,
)
from django_txtasks.fast.sweep import Parts, Sweep, in_order

SLOW_SCAN_SECONDS = 0.1
"""Seconds; if a turn that scans from the head takes longer, it walks past rows that this worker may not claim."""
PAUSE_PER_SECOND = 20
"""Pause in seconds per second of such a scan: it takes at most 5 % of the worker's time."""
LONGEST_PAUSE_SECONDS = 30.0
"""Longest such pause in seconds, because only these scans find some rows."""
SOONER_SHARE = 0.2
"""Share of such a pause that remains if a row is known to be due at its old place."""
LATE_COMMIT_SECONDS = 10.0
"""Seconds by which the scans in between read further back than the last one, in buckets without a cursor."""


class LookBack:
    """How far back the scans between two sweeps read, in buckets without a cursor.

    Attributes:
        skipped_until: time of the last scan that took too long, so that due rows may have been left out.
    """

    def __init__(self) -> None:
        self.skipped_until = 0.0
        self._read_until, self._seconds = 0.0, LATE_COMMIT_SECONDS

    def window(self, buckets: tuple[Bucket, ...], now: float) -> RecentWindow:
        """Return the rows that the next scan reads: all that became due since the last one, and a few more."""
        return RecentWindow(buckets, now - self._read_until + self._seconds)

    def read(self, began: float) -> None:
        """Note that all rows that were due at this time were read."""
        self._read_until = began

    def took(self, seconds: float) -> None:
        """Choose how far back the next scan reads, from the seconds that this one took."""
        if seconds < SLOW_SCAN_SECONDS / 4:
            longer = max(SLOW_SCAN_SECONDS, 2 * self._seconds)
            self._seconds = min(LATE_COMMIT_SECONDS, longer)
        elif seconds > SLOW_SCAN_SECONDS:
            self._seconds /= 2

    def skip(self, began: float) -> None:
        """Leave out what a scan that took too long was to read; the next sweep finds it."""
        self._read_until = self.skipped_until = began
        self._seconds = 0.0


class ScanCursor:
    """The place that the scans of one worker have reached.

    During a backlog, each scan goes on where the last one ended. At intervals, a scan begins at the head again,
    for rows that were locked when an earlier scan passed, or were written later with an older time. If such a
    scan takes long, or the database ends it, there are rows that this worker may not claim, or dead rows that an
    old snapshot keeps. Then sweeps replace it, at longer intervals, and the scans in between read the rows that
    have become due recently.

    Args:
        pause: time between two scans that begin at the head, during a backlog.
        longest: limit in seconds for a scan.
        ageing: time after which the priority of a due task increases by 1; None = never.
    """

    def __init__(
        self,
        subscription: Subscription,
        pause: timedelta,
        longest: float,
        ageing: timedelta | None = None,
    ) -> None:
        self._subscription, self._pause = subscription, pause.total_seconds()
        self._ageing = None if ageing is None else ageing.total_seconds()
        self._longest = longest
        self._queues = subscription.queues
        self._cursors: Cursors = {}
        self._buckets = {
            Bucket(one.priority, queue)
            for one in registry.declarations()
            if not set(subscription.names).isdisjoint(one.names)
            for queue in subscription.queues
        }
        self._next_head = self._soon = 0.0
        self._is_slow = self._swept_last = self._has_claimed = False
        self._sweep: Sweep | None = None
        self._parts: dict[Bucket, Parts] = {}
        self._scan: Scan | Sweep | None = None
        self._began, self._is_from_head = 0.0, False
        self._look_back = LookBack()

    @property
    def is_sweeping(self) -> bool:
        """Say whether a sweep has parts left."""
        return self._sweep is not None

    def begin(self) -> Scan | Sweep:
        """Return the scan or sweep of the next turn."""
        self._began = now = time.monotonic()
        self._is_from_head = not self._is_slow and now >= self._next_head
        if self._is_from_head:
            self._cursors = {}
        self._scan = self._part(now) if self._is_slow else self._from(self._cursors)
        return self._scan

    def ended(self, result: TurnResult) -> bool:
        """Learn from a committed scan. Return whether it has read only a part of the due rows."""
        scan, self._scan = self._scan, None
        if scan is None or result.scan is None:
            return True
        took = time.monotonic() - self._began
        self._has_claimed = self._has_claimed or bool(result.claimed)
        self._take_turns(result.blocked_queue)
        if isinstance(scan, Sweep):
            self._note_sweep(scan)
            return self.is_sweeping or self._has_claimed
        self._cursors = result.scan.cursors
        self._buckets.update(result.scan.cursors)
        if scan.recent is not None:
            self._note_recent(took, is_all=not result.has_more)
            return True
        if self._is_from_head:
            self._look_back.read(self._began)
            self._note_cost(took, waste=took)
        return False

    def failed(self, *, too_long: bool) -> None:
        """Prepare the scan after a turn that was rolled back: if it took too long, sweep, and read less."""
        scan, self._scan = self._scan, None
        self._cursors, self._next_head = {}, 0.0
        if isinstance(scan, Sweep):
            scan.rolled_back()
        if scan is not None and too_long:
            self._is_slow = True
            self._look_back.skip(self._began)

    def expect(self, buckets: set[Bucket]) -> None:
        """Add buckets in which tasks become due: scans of recent rows read known buckets only."""
        self._buckets |= buckets

    def from_head(self) -> None:
        """Scan from the head, because a task is due at its old place again; if that is slow, soon."""
        if self._is_slow:
            self._next_head = min(self._next_head, self._soon)
        else:
            self._cursors, self._next_head = {}, 0.0

    def _from(self, cursors: Cursors, recent: RecentWindow | None = None) -> Scan:
        return Scan(self._queues, cursors, recent, self._longest, self._ageing)

    def _part(self, now: float) -> Scan | Sweep:
        """Return in turn a part of a sweep, if one is due, and a scan of recent rows."""
        if self._sweep is None and now >= self._next_head:
            self._sweep = Sweep(
                replace(self._subscription, queues=self._queues),
                self._buckets,
                longest=self._longest,
                before=self._parts,
                is_strict=self._ageing is None,
            )
            self._has_claimed = False
        self._swept_last = self._sweep is not None and not self._swept_last
        if self._swept_last and self._sweep is not None:
            return self._sweep
        buckets = tuple(in_order(self._buckets, self._queues))
        return self._from(self._cursors, self._look_back.window(buckets, now))

    def _note_sweep(self, sweep: Sweep) -> None:
        self._buckets |= sweep.buckets
        if sweep.is_over:
            self._sweep, self._parts = None, sweep.parts
            self._note_cost(sweep.spent, waste=sweep.waste)
            if sweep.began < self._look_back.skipped_until:
                self._next_head = 0.0

    def _note_recent(self, took: float, *, is_all: bool) -> None:
        if is_all:
            self._look_back.read(self._began)
        self._look_back.took(took)
        if took > SLOW_SCAN_SECONDS and is_all:
            self._cursors = {}

    def _note_cost(self, seconds: float, *, waste: float) -> None:
        """Choose the time of the next read of all due rows, from the seconds that this one took."""
        self._is_slow = waste > SLOW_SCAN_SECONDS
        now = time.monotonic()
        seldom = min(seconds * PAUSE_PER_SECOND, LONGEST_PAUSE_SECONDS) if self._is_slow else 0.0
        self._next_head = now + max(self._pause, seldom)
        self._soon = now + seldom * SOONER_SHARE

    def _take_turns(self, blocked_queue: str | None) -> None:
        """Let another queue come first in the next scan, so that no queue starves another."""
        first, *others = self._queues
        queues = [*others, first]
        if blocked_queue in queues:  # it comes first until its task has a slot
            queues.remove(blocked_queue)
            queues.insert(0, blocked_queue)
        self._queues = tuple(queues)
