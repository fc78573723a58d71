"""The look ahead: a worker asks from time to time which tasks become due soon, and scans at these times.

Each worker looks independently, so if one worker is busy or dead, the others find the tasks.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Iterable

from django.db import DatabaseError

from django_txtasks.core.ground.config import CoreConfig
from django_txtasks.core.rows.turn import Bucket, Subscription, TurnResult
from django_txtasks.core.working.parts import Part, WorkerContext
from django_txtasks.core.working.running.limits import NEVER
from django_txtasks.core.working.scan_cursor import ScanCursor
from django_txtasks.core.working.schedule import TurnSchedule
from django_txtasks.database.errors import TookTooLong, is_timeout
from django_txtasks.fast.upcoming import upcoming

POLLS_AHEAD = 2
"""Poll intervals between two looks. Scans find tasks that come without a hint and are due before the next look."""
MOST_SECONDS_AHEAD = 10.0
"""Upper limit in seconds for the time that a look covers. Hints announce tasks that are enqueued for less."""
LATE_SECONDS = 0.001
"""Seconds between the time of a task and its scan, because the database's clock may be a moment behind."""
OTHERS_SECONDS = 0.02
"""Longest pause in seconds after scans that came too late because other workers were quicker."""
LEAST_PAUSE_SECONDS = 0.0025
REST_SECONDS = 60.0
"""Seconds without a look after a look that took too long, because it must step over many rows."""


class UpcomingLook(Part):
    """The look ahead of one worker. All times are by ``time.monotonic()``.

    Args:
        schedule: while it has a backlog, scans follow each other, so there is no look.
        scans: learn in which priorities tasks become due.
    """

    def __init__(
        self,
        config: CoreConfig,
        subscription: Subscription,
        schedule: TurnSchedule,
        scans: ScanCursor,
    ) -> None:
        self._subscription, self._schedule, self._scans = subscription, schedule, scans
        self._ahead = min(POLLS_AHEAD * config.poll_interval.total_seconds(), MOST_SECONDS_AHEAD)
        self._next_look = self._known_until = 0.0
        self._due: list[float] = []
        self._pause = self._not_before = 0.0
        self._has_scanned = False
        self.looks_before = (self,)

    @property
    def next(self) -> float:
        """Time of the next look, or of the next upcoming task."""
        if self._schedule.has_backlog:
            return NEVER
        due = max(self._due[0], self._not_before) if self._due else self._next_look
        return min(due, self._next_look)

    def pop_due(self, now: float) -> bool:
        """Return True if a task has become due by now, and remove these tasks."""
        is_due = bool(self._due) and max(self._due[0], self._not_before) <= now
        while self._due and self._due[0] <= now:
            heapq.heappop(self._due)
        self._has_scanned = is_due
        return is_due

    def turned(self, result: TurnResult, *, alone: bool) -> None:
        """Learn from a turn that has scanned."""
        if result.has_scanned:
            self.scanned(time.monotonic(), claimed=bool(result.claimed))

    def scanned(self, now: float, *, claimed: bool) -> None:
        """Adapt the pause: the scan has found tasks, or other workers were quicker."""
        if self._has_scanned:
            self._pause = 0.0 if claimed else max(LEAST_PAUSE_SECONDS, 2 * self._pause)
            self._pause = min(self._pause, OTHERS_SECONDS)
            self._not_before = now + self._pause
            self._has_scanned = False

    def look(self) -> bool:
        """Look ahead, if it is time. Return True if a task has become due.

        If a task has become due, the next round of the loop looks ahead, after the scan.

        Raises:
            DatabaseError, InterfaceError: scans find the tasks that become due meanwhile.
        """
        now = time.monotonic()
        if self.pop_due(now):
            return True
        if now >= self._next_look:
            self._scans.expect(self.look_ahead(now))
        return False

    def look_ahead(self, now: float) -> set[Bucket]:
        """Read the times at which tasks become due. Return their buckets."""
        self._next_look = now + self._ahead
        try:
            found = upcoming(self._subscription, 1.2 * self._ahead)
        except DatabaseError as error:
            if not (isinstance(error, TookTooLong) or is_timeout(error)):
                raise
            self._next_look = now + max(REST_SECONDS, self._ahead)
            return set()
        looked = time.monotonic()
        due_by_now = sorted(at for at in self._due if at <= looked + LATE_SECONDS)
        if looked > self._known_until:  # a task may have become due since then
            due_by_now = [looked]
        self._known_until = now + found.known_for
        self._due = due_by_now + [looked + wait + LATE_SECONDS for wait in found.waits]
        self._next_look = min(self._next_look, looked + found.known_for)
        return found.buckets


def parts(context: WorkerContext) -> Iterable[Part]:
    """Return the part for one worker."""
    return [UpcomingLook(context.config, context.subscription, context.schedule, context.scans)]
