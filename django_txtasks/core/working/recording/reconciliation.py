"""The comparison of a worker's own record of its claims with the table."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Iterator
from datetime import timedelta
from functools import partial

from django.db import DatabaseError, InterfaceError, OperationalError, transaction

from django_txtasks import signals
from django_txtasks.core.enqueueing.commit_hints import notify_on_commit
from django_txtasks.core.rows import attempts, cleaning, outcomes, workers
from django_txtasks.core.rows.attempts import Arrow, Attempt, Ended
from django_txtasks.core.rows.cleaning import Holder, Orphan, Recovered
from django_txtasks.core.working.recording.outcome_buffer import Key, OutcomeBuffer, key
from django_txtasks.exceptions import ClaimLost

LOCKED_SECONDS = 1.0
"""Seconds until the next comparison if another session has locked a claim that is to be given back."""


class Reconciliation:
    """Compares after each failed turn, and once a lease.

    Attributes:
        is_unsure: True if the COMMIT of a failed turn may have succeeded.
        seconds: duration of the last look through this worker's claims.
    """

    def __init__(self, alias: str, buffer: OutcomeBuffer, lease: timedelta) -> None:
        self._alias, self._buffer, self._interval = alias, buffer, lease.total_seconds()
        self.is_unsure, self.seconds = False, 0.0
        self._next = 0.0

    @property
    def is_due(self) -> bool:
        """True if the next turn has to compare."""
        return self.is_unsure or time.monotonic() >= self._next

    def reconcile(self, worker: uuid.UUID, running: set[Key]) -> list[Ended]:
        """Compare, in the open transaction, after the beat. Return the outcomes that are already recorded.

        While the database accepts this worker's beat, no other process moves its claims. So an outcome whose row
        is no longer claimed was recorded before, and a claim that the worker does not know is released. If the end
        of such a claim was recorded lately, the database has lost that end in a failover: see
        ``cleaning.give_back``.

        Args:
            running: (id, attempt) of each attempt in a slot.
        """
        self._buffer.try_refused_again()
        began = time.monotonic()
        self._next = began + self._interval
        there = attempts.claims_of(self._alias, worker)
        self.seconds = time.monotonic() - began
        unknown = there - running - self._buffer.keys()
        if unknown:
            self._give_back(worker, unknown)
        waiting = self._buffer.waiting
        return [one for one in waiting if one.attempt.worker == worker and key(one) not in there]

    def without_ended(self, claimed: list[Attempt]) -> list[Attempt]:
        """Return fresh claims without those whose end was recorded before. If there are any, the next turn
        reconciles.

        The database has lost both the old claim and its end, and offers the task again.
        """
        lately = self._buffer.lately
        if lately.keys().isdisjoint((one.task_id, one.number) for one in claimed):
            return claimed  # the usual case
        # If history has the end, another session has written the row anew: the attempt reports that and does not
        # run.
        left = [one for one in claimed if one.has_ended or (one.task_id, one.number) not in lately]
        self.is_unsure |= len(left) < len(claimed)
        return left

    def _give_back(self, worker: uuid.UUID, unknown: set[Key]) -> None:
        """Give back the claims that no session has locked. To wait for the others would delay all tasks here."""
        ended = unknown & self._buffer.lately.keys()
        count = self._release(worker, unknown - ended)
        for orphan in orphans_of(self._alias, worker, ended):
            try:
                with transaction.atomic(using=self._alias):
                    count += give_back(self._alias, orphan, self._buffer) is None
            except (OperationalError, InterfaceError):
                raise
            except ClaimLost:
                self._compare_soon()  # another session has locked it
            except DatabaseError:
                continue  # the row was changed by hand: the next comparison looks at it again
        if count:
            signals.unknown_claims.emit(worker=worker, count=count)

    def _release(self, worker: uuid.UUID, unknown: set[Key]) -> int:
        """Release claims that this worker has never begun. Return their number."""
        locked = attempts.locked(self._alias, [task_id for task_id, _ in unknown])
        mine = sorted(one for one in locked if one[:2] in unknown and one[2] == worker)
        for fence in mine:
            outcomes.move(self._alias, Ended(attempt=Attempt(*fence), arrow=Arrow.RELEASE))
        if len(mine) < len(unknown):
            self._compare_soon()
        return len(mine)

    def _compare_soon(self) -> None:
        self._next = min(self._next, time.monotonic() + LOCKED_SECONDS)


def holder_of(worker: uuid.UUID) -> Holder:
    """Return this worker as a holder of claims."""
    return Holder(worker, f"{worker} on {workers.host_name()} (pid {os.getpid()})")


def orphans_of(alias: str, worker: uuid.UUID, claimed: set[Key]) -> Iterator[Orphan]:
    """Yield these claims of this worker, by id."""
    for orphan in cleaning.orphans(alias, holder_of(worker), sorted(one for one, _ in claimed)):
        if (orphan.attempt.task_id, orphan.attempt.number) in claimed:
            yield orphan


def give_back(alias: str, orphan: Orphan, buffer: OutcomeBuffer) -> Recovered | None:
    """Apply the arrow of a claim that this worker does not hold, in the open transaction.

    Signals follow the commit.

    Returns:
        None = the task is pending again.
    """
    lost_end = buffer.lately.get((orphan.attempt.task_id, orphan.attempt.number))
    recovered = cleaning.give_back(alias, orphan, buffer.config, lost_end)
    if recovered is not None:
        notify_on_commit(alias, recovered.follow_ups)
        for signal, facts in cleaning.signals_of(orphan, recovered.ended):
            transaction.on_commit(partial(signal.emit, **facts), using=alias, robust=True)
    return recovered
