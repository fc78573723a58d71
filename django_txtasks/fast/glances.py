"""Glances: a worker without hints looks for more tasks between its scans, while there is work.

A glance reads a few entries of an index, whereas a turn writes the worker's beat.
"""

from __future__ import annotations

import time
from collections.abc import Iterable

from django.db import DatabaseError

from django_txtasks.core.rows.turn import Subscription, TurnResult
from django_txtasks.core.working.hint_inbox import HintInbox
from django_txtasks.core.working.parts import Part, WorkerContext
from django_txtasks.core.working.running.limits import NEVER
from django_txtasks.database.errors import TookTooLong, is_timeout
from django_txtasks.fast.heads import Heads
from django_txtasks.hints.options import HintConfig

EVERY_SECONDS = 0.04
FOR_SECONDS = 5.0
"""Seconds after a claim during which more tasks are expected."""
REST_SECONDS = 60.0
"""Seconds without a glance after a glance that took too long."""


class Glances(Part):
    """The glances of one worker. All times are by ``time.monotonic()``.

    Args:
        inbox: while its source is connected, hints come, so there are no glances.
    """

    def __init__(self, config: HintConfig, subscription: Subscription, inbox: HintInbox) -> None:
        self._is_on = config.may_hint_by_database
        self._inbox, self.looks_instead = inbox, (self,)
        self._heads = Heads(subscription)
        self._until = self._rests_until = 0.0
        self._next = NEVER

    @property
    def next(self) -> float:
        """Time of the next glance."""
        return self._next if self._is_on and not self._inbox.connected else NEVER

    def turned(self, result: TurnResult, *, alone: bool) -> None:
        """Note a turn that has claimed tasks."""
        if result.claimed:
            self.claimed(time.monotonic())

    def claimed(self, now: float) -> None:
        """Note that a task was claimed."""
        self._until = now + FOR_SECONDS
        self._next = max(now + EVERY_SECONDS, self._rests_until)

    def look(self) -> bool:
        """Look. Return True if a task is due that was not due at the last glance.

        Raises:
            DatabaseError: there are no more glances until the next claim.
        """
        self._next = NEVER  # after a failure only turns look, because their pauses grow
        try:
            fresh, _ = self._heads.news()
        except DatabaseError as error:
            if not (isinstance(error, TookTooLong) or is_timeout(error)):
                raise
            # Scans and sweeps deal with dead rows.
            self._rests_until = time.monotonic() + REST_SECONDS
            return False
        now = time.monotonic()
        self._next = now + EVERY_SECONDS if now < self._until else NEVER
        return bool(fresh)


def parts(context: WorkerContext) -> Iterable[Part]:
    """Return the part for one worker."""
    return [Glances(context.config.of(HintConfig), context.subscription, context.inbox)]
