"""What a worker writes: its beat, what ended, what it claims. One transaction a turn.

It owns the hard cases: outcomes that cannot be recorded, a COMMIT whose answer was lost, a row that
says this worker is lost.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from django.db import DatabaseError, InterfaceError, OperationalError, connections, transaction

from django_txtasks import signals
from django_txtasks.conf import Config
from django_txtasks.exceptions import ClaimLost
from django_txtasks.lifecycle import claims, outcomes, workers
from django_txtasks.lifecycle.attempts import Arrow, Attempt, Ended
from django_txtasks.lifecycle.claims import Lookup, Subscription
from django_txtasks.lifecycle.dialect import own_transaction
from django_txtasks.worker.runner import describe

Key = tuple[uuid.UUID, int]


class DeclaredLost(Exception):
    """This worker's row says that it is lost."""


@dataclass
class Turn:
    """What a turn is to claim, and what came of it.

    Attributes:
        room: how many tasks fit.
        ids: look these up.
        scan: look for what is due, too.
        scan_filled: the scan found as many as there was room for, so there may be more.
    """

    room: int
    ids: list[uuid.UUID]
    scan: bool
    claimed: list[Attempt] = field(default_factory=list)
    lookup: Lookup | None = None
    scan_filled: bool = False


class Ledger:
    """One worker's rows."""

    def __init__(self, config: Config, subscription: Subscription, threads: int) -> None:
        self.config, self.subscription, self.threads = config, subscription, threads
        self.alias = subscription.alias
        self.id: uuid.UUID | None = None
        self.unrecorded: list[Ended] = []
        self._unsure = self._careful = False
        self._next_check = 0.0

    def add(self, ended: Iterable[Ended]) -> None:
        """These attempts ended; those of atomic tasks are recorded already."""
        for one in ended:
            if one.recorded:
                tell(one)
            else:
                self.unrecorded.append(one)

    def write(self, turn: Turn, running: set[Key], connected: bool | None) -> None:
        """Beat, record, claim, commit. What was claimed may start once this has returned.

        Raises:
            DeclaredLost: nothing was written; the next turn goes on under a new id.
            DatabaseError, InterfaceError, ClaimLost: see ``failed``.
        """
        if self.id is None:
            self._register(connected)
        with own_transaction(self.alias, limit=self.config.lease / 2):
            self._beat(len(running), connected)
            settled = self._reconcile(running) if self._check_is_due() else []
            recorded = self._record()
            if turn.room:
                self._claim(turn)
        self._unsure = self._careful = False
        for one in settled:
            tell(one)
        self._settle(recorded)

    def failed(self, error: Exception) -> None:
        """Prepare the next turn; nothing that ended is forgotten."""
        if isinstance(error, DeclaredLost):
            previous, self.id = self.id, None
            signals.worker_was_lost.tell(worker=previous)
            return
        self._unsure = True  # its COMMIT may have landed
        if isinstance(error, (OperationalError, InterfaceError)):
            connections[self.alias].close()
        else:
            self._careful = True
        self._beat_alone()

    def leave(self, *, cut_short: bool) -> None:
        """Remove this worker's row, or leave its claims to the cleaner at once."""
        if self.id is not None:
            with own_transaction(self.alias, limit=self.config.lease / 2):
                (workers.give_up if cut_short else workers.unregister)(self.alias, self.id)

    def _register(self, connected: bool | None) -> None:
        self.id = workers.register(
            self.alias,
            queues=sorted(self.subscription.queues),
            threads=self.threads,
            listening=connected,
            lease=self.config.lease,
        )
        signals.worker_started.tell(
            worker=self.id,
            queues=", ".join(sorted(self.subscription.queues)),
            threads=self.threads,
            broker={None: "none", True: "connected", False: "not connected yet"}[connected],
        )

    def _beat(self, running: int, connected: bool | None) -> None:
        if self.id is None or not workers.beat(
            self.alias, self.id, running=running, listening=connected
        ):
            raise DeclaredLost

    @property
    def _me(self) -> uuid.UUID:
        if self.id is None:
            raise DeclaredLost
        return self.id

    def _beat_alone(self) -> None:
        """A turn that fails again and again must not cost a living worker its lease."""
        try:
            if self.id is not None:
                workers.beat(self.alias, self.id, running=0, listening=None)
        except (DatabaseError, InterfaceError):
            connections[self.alias].close()

    def _check_is_due(self) -> bool:
        due = self._unsure or time.monotonic() >= self._next_check
        if due:
            self._next_check = time.monotonic() + self.config.lease.total_seconds()
        return due

    def _reconcile(self, running: set[Key]) -> list[Ended]:
        """The answer to a COMMIT may have been lost: compare the table with what is known here.

        Nobody but this worker moves its claims while its beat is accepted. So an outcome whose row is
        no longer claimed was recorded by then, and a claim that is not known here is given back.
        """
        there = claims.claims_of(self.alias, self._me)
        settled = [one for one in self.unrecorded if self._is_mine(one) and _key(one) not in there]
        self.unrecorded = [one for one in self.unrecorded if one not in settled]
        unknown = there - running - {_key(one) for one in self.unrecorded}
        for task_id, number in sorted(unknown):
            attempt = Attempt(task_id, number, self._me, "", "", "", "", 0, 0, 0, [])
            outcomes.move(self.alias, Ended(attempt=attempt, arrow=Arrow.RELEASE))
        if unknown:
            signals.unknown_claims.tell(worker=self.id, count=len(unknown))
        return settled

    def _record(self) -> outcomes.Recorded:
        if not self._careful:
            return outcomes.record(
                self.alias, self.unrecorded, keep=bool(self.config.keep_finished)
            )
        recorded = outcomes.Recorded()
        for one in self.unrecorded:
            recorded += self._record_carefully(one)
        return recorded

    def _record_carefully(self, one: Ended) -> outcomes.Recorded:
        """One bad outcome must not stop a worker: what the database refuses leaves the task dead."""
        keep = bool(self.config.keep_finished)
        try:
            with transaction.atomic(using=self.alias):
                return outcomes.record(self.alias, [one], keep=keep)
        except (OperationalError, InterfaceError):
            raise
        except ClaimLost:
            return outcomes.Recorded(lost=[one])
        except DatabaseError as error:
            signals.outcome_refused.tell(**facts_of(one), error=str(error))
            refused = Ended(attempt=one.attempt, arrow=Arrow.BURY, error=describe(error))
            return outcomes.record(self.alias, [refused], keep=keep)

    def _claim(self, turn: Turn) -> None:
        """The scan comes first: rows whose hints were lost must not wait behind a stream of hints."""
        if turn.scan:
            turn.claimed += claims.claim_due(self.subscription, self._me, turn.room)
            turn.scan_filled = len(turn.claimed) == turn.room
            queues = self.subscription.queues
            queues.append(queues.pop(0))  # they take turns in coming first: none starves another
        if turn.ids:
            left = turn.room - len(turn.claimed)
            turn.lookup = claims.claim_hinted(self.subscription, self._me, turn.ids, left)
            turn.claimed += turn.lookup.claimed

    def _settle(self, recorded: outcomes.Recorded) -> None:
        self.unrecorded = recorded.busy
        for one in recorded.done:
            tell(one)
        for one in recorded.lost:
            if self._is_mine(one):
                tell(one)  # moved by an earlier COMMIT whose answer was lost: see _reconcile
            else:
                signals.claim_lost.tell(**facts_of(one))

    def _is_mine(self, one: Ended) -> bool:
        return one.attempt.worker == self.id


def tell(one: Ended) -> None:
    """Send the signal of an arrow that was taken."""
    facts = facts_of(one)
    error = f"{one.error.get('type')}: {one.error.get('message')}"
    if one.arrow is Arrow.FINISH:
        signals.task_finished.tell(**facts)
    elif one.arrow is Arrow.RETRY:
        signals.task_retried.tell(**facts, delay=one.delay.total_seconds(), error=error)
    elif one.arrow is Arrow.BURY:
        signals.task_died.tell(**facts, error=error)
    else:
        signals.task_released.tell(**facts)


def facts_of(one: Ended) -> dict[str, Any]:
    """What every event about an attempt says."""
    attempt = one.attempt
    return {
        "task_id": attempt.task_id,
        "task": attempt.task_name,
        "queue": attempt.queue_name,
        "attempt": attempt.number,
        "worker": attempt.worker,
    }


def _key(one: Ended) -> Key:
    return one.attempt.task_id, one.attempt.number
