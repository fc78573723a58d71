"""What a worker claims while its slots get no session in the database: the one of its loop may live on."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from datetime import timedelta

from django_txtasks.lifecycle.attempts import Arrow, Ended
from django_txtasks.lifecycle.turn import Capacity
from django_txtasks.rules.retry import backoff
from django_txtasks.signals.outage import Outage
from django_txtasks.worker.running.connections import NoSession
from django_txtasks.worker.running.limits import NEVER

SHORTEST_PAUSE = timedelta(seconds=0.25)
LONGEST_PAUSE = timedelta(seconds=5)


class SlotSessions:
    """Has a worker pause where a task could not begin as it got no session, for example after a new password.

    Such a task is released, and nothing is counted against it. After each pause, and until a task has finished,
    each turn claims one task.

    Args:
        who: returns what the log calls them.
    """

    def __init__(self, alias: str, who: Callable[[], str]) -> None:
        self._outage = Outage(alias, who)
        self._failures = 0
        self._pause_end = 0.0

    def note(self, ended: Iterable[Ended]) -> None:
        """Note which tasks could not begin."""
        for one in ended:
            if isinstance(one.exception, NoSession):
                self._refused(one.exception)
            elif self._pause_end and one.arrow is Arrow.FINISH:
                self._outage.succeeded()
                if time.monotonic() >= self._pause_end:
                    self._failures = 0

    @property
    def pause_end(self) -> float:
        """When a pause ends that is not over, by ``time.monotonic()``."""
        return self._pause_end if time.monotonic() < self._pause_end else NEVER

    def limited(self, capacity: Capacity) -> Capacity:
        """Return how much of this capacity may be used now."""
        if not self._failures:
            return capacity
        is_pausing = time.monotonic() < self._pause_end
        return capacity._replace(limit=0 if is_pausing else min(1, capacity.limit))

    def _refused(self, error: NoSession) -> None:
        now = time.monotonic()
        if now >= self._pause_end:  # else another slot has met the same a moment before
            self._failures += 1
            pause = backoff(self._failures, base=SHORTEST_PAUSE, ceiling=LONGEST_PAUSE)
            self._pause_end = now + pause.total_seconds()
            self._outage.failed(str(error), pause.total_seconds())
