"""How far a worker's scans have come: where each begins, and how often one begins at the head again."""

from __future__ import annotations

import time
from datetime import timedelta

from django_txtasks import registry
from django_txtasks.lifecycle.claims import Marks, Recent, Room, Subscription

DEAR = 0.1
"""Seconds; if a turn that scans from the head takes longer, there are dead rows to walk over."""
SELDOM = 20
"""Such a turn comes after so many times its own length: it takes a twentieth of the worker's time."""
LONGEST_PAUSE = 30.0
"""Seconds; and not later, whatever it takes: what such scans alone can find has waited long enough."""
LATE_COMMIT = 10.0
"""Seconds by which scans in between look further back than the last one from the head, where they have no mark."""


class Scans:
    """The scans of one worker.

    During a backlog each goes on where the last one ended; now and then one begins at the head again: there
    may be a row that was locked as a scan came by, or was written since with an older time. While an old
    snapshot keeps so many dead rows that this takes long, it is done seldom, and scans in between look at what has
    come lately.

    Args:
        pause: from one scan that begins at the head to the next, in a backlog.
    """

    def __init__(self, subscription: Subscription, pause: timedelta) -> None:
        self._subscription, self._pause = subscription, pause.total_seconds()
        self._marks: Marks = {}
        self._heads = {
            (one.priority, queue)
            for one in registry.declarations()
            if one.name in subscription.names
            for queue in subscription.queues
        }
        self._next_head = self._began_at_head = 0.0
        self._is_at_head = self._is_dear = False

    def begin(self) -> tuple[Marks, Recent | None]:
        """Return how far the last ones have come, and where to look; None = at all that is due."""
        now = time.monotonic()
        if now >= self._next_head:
            self._marks = {}
            self._is_at_head, self._began_at_head = True, now
        elif self._is_dear:
            order = self._subscription.queues.index
            heads = sorted(self._heads, key=lambda head: (-head[0], order(head[1])))
            return self._marks, Recent(heads, now - self._began_at_head + LATE_COMMIT)
        return self._marks, None

    def ended(self, room: Room) -> None:
        """A scan is over: note what it has cost, if it began at the head, and whose turn is next."""
        now = time.monotonic()
        self._heads.update(self._marks)
        if self._is_at_head:
            self._is_at_head = False
            cost = now - self._began_at_head
            self._is_dear = cost > DEAR
            seldom = max(self._pause, min(cost * SELDOM, LONGEST_PAUSE))
            self._next_head = now + (seldom if self._is_dear else self._pause)
        self._take_turns(room)

    def from_head(self) -> None:
        """The next one begins at the head: something is due at its old place again."""
        self._marks, self._next_head = {}, 0.0

    def _take_turns(self, room: Room) -> None:
        """Let another queue come first in the next scan: none starves another."""
        queues = self._subscription.queues
        queues.append(queues.pop(0))
        if room.crowded_queue in queues:  # whose turn it is until its task has a slot
            queues.remove(room.crowded_queue)
            queues.insert(0, room.crowded_queue)
