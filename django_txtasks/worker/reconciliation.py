"""The comparison of what a worker knows of its claims with what the table says."""

from __future__ import annotations

import time
import uuid
from datetime import timedelta

from django_txtasks import signals
from django_txtasks.lifecycle import claims, outcomes
from django_txtasks.lifecycle.attempts import Arrow, Attempt, Ended
from django_txtasks.worker.outcome_buffer import Key, OutcomeBuffer, key


class Reconciliation:
    """Due after each failed turn, and once a lease.

    Attributes:
        is_unsure: the COMMIT of a turn that failed may have landed.
        seconds: how long the last look through this worker's claims took.
    """

    def __init__(self, alias: str, buffer: OutcomeBuffer, lease: timedelta) -> None:
        self._alias, self._buffer, self._interval = alias, buffer, lease.total_seconds()
        self.is_unsure, self.seconds = False, 0.0
        self._next = 0.0

    @property
    def is_due(self) -> bool:
        """Whether the next turn has to compare."""
        return self.is_unsure or time.monotonic() >= self._next

    def reconcile(self, worker: uuid.UUID, running: set[Key]) -> list[Ended]:
        """Compare, in the open transaction, after the beat; return the outcomes that are recorded already.

        Nobody but this worker moves its claims while its beat is accepted. So an outcome whose row is no longer
        claimed was recorded by then, and a claim that is not known here is released.

        Args:
            running: (id, attempt) of what slots hold.
        """
        self._buffer.try_refused_again()
        began = time.monotonic()
        self._next = began + self._interval
        there = claims.claims_of(self._alias, worker)
        self.seconds = time.monotonic() - began
        unknown = there - running - self._buffer.keys()
        for task_id, number in sorted(unknown):
            attempt = Attempt(task_id, number, worker)
            outcomes.move(self._alias, Ended(attempt=attempt, arrow=Arrow.RELEASE))
        if unknown:
            signals.unknown_claims.emit(worker=worker, count=len(unknown))
        waiting = self._buffer.waiting
        return [one for one in waiting if one.attempt.worker == worker and key(one) not in there]
