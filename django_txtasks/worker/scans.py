"""How far a worker's scans have come: where each begins, and how often one begins at the head again."""

from __future__ import annotations

import time
import uuid
from dataclasses import dataclass, field
from datetime import timedelta

from django_txtasks import registry
from django_txtasks.lifecycle import claims
from django_txtasks.lifecycle.attempts import Attempt
from django_txtasks.lifecycle.claims import Head, Marks, Recent, Room, Subscription
from django_txtasks.worker.sweep import Parts, Sweep

SLOW_SCAN_SECONDS = 0.1
"""Seconds; if a turn that scans from the head takes longer, there are rows to walk past that none may take."""
PAUSE_PER_SECOND = 20
"""Then the head is looked at again after so many times as long as it took: a twentieth of the worker's time."""
LONGEST_PAUSE_SECONDS = 30.0
"""Seconds; and not later, whatever it takes: what such scans alone can find has waited long enough."""
SOONER_SHARE = 0.2
"""Part of such a pause after which it is done where something is known to be due at its old place."""
LATE_COMMIT_SECONDS = 10.0
"""Seconds by which scans in between look further back than the last one, where they have no mark."""


@dataclass
class Scan:
    """One scan: of all that is due, from the head or from marks; or of a part of it.

    Attributes:
        marks: how far the last ones have come.
        recent: look at this only.
        sweep: go on with this instead.
        is_from_head: it begins with the oldest.
        began: when, by ``time.monotonic()``.
    """

    marks: Marks = field(default_factory=dict)
    recent: Recent | None = None
    sweep: Sweep | None = None
    is_from_head: bool = False
    began: float = field(default_factory=time.monotonic)

    def claim(
        self, subscription: Subscription, worker: uuid.UUID, room: Room, seconds: float
    ) -> list[Attempt]:
        """Claim what it finds, in the open transaction."""
        if self.sweep is not None:
            return self.sweep.claim(worker, room)
        return claims.claim_due(
            subscription, worker, room, self.marks, self.recent, seconds=seconds
        )


class Scans:
    """The scans of one worker.

    During a backlog each goes on where the last one ended; now and then one begins at the head again: there
    may be a row that was locked as a scan came by, or was written since with an older time. Where that takes
    long, or is ended by the database, because of rows that this worker may not take, or of dead ones that an
    old snapshot keeps, it is done by sweeps, and seldom. In between, scans look at what has come lately.

    Args:
        pause: from one scan that begins at the head to the next, in a backlog.
        longest: seconds that a scan may take.
    """

    def __init__(self, subscription: Subscription, pause: timedelta, longest: float) -> None:
        self._subscription, self._pause = subscription, pause.total_seconds()
        self.longest = longest
        self._marks: Marks = {}
        self._heads = {
            (one.priority, queue)
            for one in registry.declarations()
            if one.name in subscription.names
            for queue in subscription.queues
        }
        self._next_head = self._soon = 0.0
        self._is_dear = self._swept_last = self._has_claimed = False
        self._sweep: Sweep | None = None
        self._parts: dict[Head, Parts] = {}
        self._scan: Scan | None = None
        self._looked_until = self._skipped_until = 0.0
        self._look_back = LATE_COMMIT_SECONDS

    @property
    def is_sweeping(self) -> bool:
        """Say whether there are parts left to look at."""
        return self._sweep is not None

    def begin(self) -> Scan:
        """Return where to look now."""
        now = time.monotonic()
        if self._is_dear:
            self._scan = self._part(now)
        elif now >= self._next_head:
            self._marks = {}
            self._scan = Scan(self._marks, is_from_head=True)
        else:
            self._scan = Scan(self._marks)
        return self._scan

    def ended(self, room: Room, *, claimed: bool) -> bool:
        """A scan has committed: learn from it. Return whether there may be more that is due, whatever it found."""
        scan, self._scan = self._scan, None
        if scan is None:
            return True
        took = time.monotonic() - scan.began
        self._has_claimed = self._has_claimed or claimed
        self._heads.update(scan.marks)
        self._take_turns(room)
        if scan.sweep is not None:
            self._note_sweep(scan.sweep)
            return self.is_sweeping or self._has_claimed
        if scan.recent is not None:
            self._note_recent(scan, took, is_all=not (room.filled or room.blocked))
            return True
        if scan.is_from_head:
            self._looked_until = scan.began
            self._note_cost(took, waste=took)
        return False

    def failed(self, *, too_long: bool) -> None:
        """A turn was rolled back. If its scan took too long, sweep; and look at less in between."""
        scan, self._scan = self._scan, None
        self._marks, self._next_head = {}, 0.0
        if scan is not None and scan.sweep is not None:
            scan.sweep.rolled_back()
        if scan is not None and too_long:
            self._is_dear = True
            self._looked_until = self._skipped_until = scan.began
            self._look_back = 0.0

    def from_head(self) -> None:
        """Something is due at its old place again: scan from the head, or soon if that takes long."""
        if self._is_dear:
            self._next_head = min(self._next_head, self._soon)
        else:
            self._marks, self._next_head = {}, 0.0

    def _part(self, now: float) -> Scan:
        """By turns a part of a sweep, if there is one to be made, and what has come lately."""
        if self._sweep is None and now >= self._next_head:
            self._sweep = Sweep(
                self._subscription, self._heads, longest=self.longest, before=self._parts
            )
            self._has_claimed = False
        self._swept_last = self._sweep is not None and not self._swept_last
        if self._swept_last:
            return Scan(sweep=self._sweep)
        order = self._subscription.queues.index
        heads = sorted(self._heads, key=lambda head: (-head[0], order(head[1])))
        return Scan(self._marks, Recent(heads, now - self._looked_until + self._look_back))

    def _note_sweep(self, sweep: Sweep) -> None:
        self._heads |= sweep.heads
        if sweep.is_over:
            self._sweep, self._parts = None, sweep.parts
            self._note_cost(sweep.spent, waste=sweep.waste)
            if sweep.began < self._skipped_until:
                self._next_head = 0.0

    def _note_recent(self, scan: Scan, took: float, *, is_all: bool) -> None:
        if is_all:
            self._looked_until = scan.began
        if took < SLOW_SCAN_SECONDS / 4:
            self._look_back = min(LATE_COMMIT_SECONDS, max(SLOW_SCAN_SECONDS, 2 * self._look_back))
        elif took > SLOW_SCAN_SECONDS:
            self._look_back /= 2
            self._marks = {} if is_all else self._marks

    def _note_cost(self, seconds: float, *, waste: float) -> None:
        """It took so long to look at all that is due: say when to do it again."""
        self._is_dear = waste > SLOW_SCAN_SECONDS
        now = time.monotonic()
        seldom = min(seconds * PAUSE_PER_SECOND, LONGEST_PAUSE_SECONDS) if self._is_dear else 0.0
        self._next_head = now + max(self._pause, seldom)
        self._soon = now + seldom * SOONER_SHARE

    def _take_turns(self, room: Room) -> None:
        """Let another queue come first in the next scan: none starves another."""
        queues = self._subscription.queues
        queues.append(queues.pop(0))
        if room.blocked_queue in queues:  # whose turn it is until its task has a slot
            queues.remove(room.blocked_queue)
            queues.insert(0, room.blocked_queue)
