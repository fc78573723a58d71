"""Fewer claims while slots get no database session. The session of the loop may continue to work."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta

from django_txtasks.core.ground.retry import backoff
from django_txtasks.core.rows.attempts import Arrow, Ended
from django_txtasks.core.rows.turn import Capacity
from django_txtasks.core.working.parts import Part, WorkerContext
from django_txtasks.core.working.running.limits import NEVER
from django_txtasks.database.errors import NoSession
from django_txtasks.signals.outage import Outage

SHORTEST_PAUSE = timedelta(seconds=0.25)
LONGEST_PAUSE = timedelta(seconds=5)
RECENT_SECONDS = 10.0
"""Seconds after a pause for which its refusal is news. An idle worker does not try again."""


class SlotSessions(Part):
    """Pauses the claims of a worker if a task could not begin without a session, for example after a new password.

    Such a task is released without a count against it. After each pause, each turn claims one task, until a task
    has finished.

    Args:
        who: returns the name of these sessions in the log.
    """

    def __init__(self, alias: str, who: Callable[[], str]) -> None:
        self._outage = Outage(alias, who)
        self._failures = 0
        self._pause_end = 0.0
        self.looks = (self,)

    def collected(self, ended: Sequence[tuple[Ended, float]]) -> None:
        """Note tasks that could not begin."""
        for one, _ in ended:
            if isinstance(one.exception, NoSession):
                self._refused(one.exception)
            elif self._pause_end and one.arrow is Arrow.FINISH:
                self._outage.succeeded()
                if time.monotonic() >= self._pause_end:
                    self._failures = 0

    def look(self) -> bool:
        """Look for nothing: the loop wakes for the end of a pause."""
        return False

    @property
    def next(self) -> float:
        """End of the present pause, by ``time.monotonic()``."""
        return self._pause_end if time.monotonic() < self._pause_end else NEVER

    @property
    def lacks_session(self) -> bool:
        """True if a task could not begin lately, and none has ended since the last pause."""
        return self._failures > 0 and time.monotonic() < self._pause_end + RECENT_SECONDS

    def limited(self, capacity: Capacity) -> Capacity:
        """Return the part of this capacity that may be used now."""
        if not self._failures:
            return capacity
        is_pausing = time.monotonic() < self._pause_end
        return capacity._replace(limit=0 if is_pausing else min(1, capacity.limit))

    def _refused(self, error: NoSession) -> None:
        now = time.monotonic()
        if now >= self._pause_end:  # otherwise another slot has begun the same pause
            self._failures += 1
            pause = backoff(self._failures, base=SHORTEST_PAUSE, ceiling=LONGEST_PAUSE)
            self._pause_end = now + pause.total_seconds()
            self._outage.failed(str(error), pause.total_seconds())


def parts(context: WorkerContext) -> Iterable[Part]:
    """Return the part for one worker."""

    def who() -> str:
        return f"Worker {context.registration.name} (sessions of its threads)"

    return [SlotSessions(context.alias, who)]
