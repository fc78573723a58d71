"""What a worker writes: its beat, what ended, what it claims. One transaction a turn.

It owns the hard cases: outcomes that cannot be recorded, a COMMIT whose answer was lost, a row that
says this worker is lost.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Protocol

from django.db import DatabaseError, InterfaceError, OperationalError, connections, transaction

from django_txtasks import signals
from django_txtasks.conf import Config
from django_txtasks.enqueueing import notify_on_commit
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

    @property
    def settled(self) -> set[uuid.UUID]:
        """The ids that need no other look by this worker, but for those that are due and found no room."""
        if self.lookup is None:
            return set()
        return set(self.ids) - {one for one, wait in self.lookup.later.items() if wait <= 0}


class LastWill(Protocol):
    """What RabbitMQ tells the cleaners by itself when this process is gone."""

    def number_for(self, worker: uuid.UUID) -> int:
        """Return the number of the will that is held for this worker; 0 = none yet."""


class Ledger:
    """One worker's rows.

    Args:
        last_will: None = there is no broker.
    """

    def __init__(
        self,
        config: Config,
        subscription: Subscription,
        threads: int,
        last_will: LastWill | None = None,
    ) -> None:
        self.config, self.subscription, self.threads = config, subscription, threads
        self.alias, self.last_will = subscription.alias, last_will
        self.id: uuid.UUID | None = None
        self.unrecorded: list[Ended] = []
        self.slot_sessions: dict[int, str] = {}
        self._seen_will = 0
        self._refused: list[Ended] = []
        self._unsure = self._careful = False
        self._next_check = 0.0

    def note_session(self, session: str) -> None:
        """The calling thread, which runs tasks, has this database session."""
        self.slot_sessions[threading.get_ident()] = session

    def sees_another_will(self) -> bool:
        """Say once for each change that it is time to beat: a lost link looks like a lost worker."""
        before, self._seen_will = self._seen_will, self._will()
        return self._seen_will != before

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
            notify_on_commit(self.alias, recorded.followers)
            self._look_again(recorded)
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
        connection = connections[self.alias]
        # PostgreSQL's own limits end a session with an InternalError.
        if isinstance(error, (OperationalError, InterfaceError)) or (
            connection.connection is not None and not connection.is_usable()
        ):
            connection.close()
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
        if not workers.beat(
            self.alias,
            self._me,
            running=running,
            listening=connected,
            will=self._will(),
            slot_sessions=[one for one in list(self.slot_sessions.values()) if one],
        ):
            raise DeclaredLost

    def _will(self) -> int:
        if self.last_will is None or self.id is None:
            return 0
        return self.last_will.number_for(self.id)

    @property
    def _me(self) -> uuid.UUID:
        if self.id is None:
            raise DeclaredLost
        return self.id

    def _beat_alone(self) -> None:
        """A turn that fails again and again must not cost a living worker its lease."""
        try:
            if self.id is not None:
                self._beat(0, None)
        except DeclaredLost:
            return  # the next turn finds out
        except (DatabaseError, InterfaceError):
            connections[self.alias].close()

    def _check_is_due(self) -> bool:
        due = self._unsure or time.monotonic() >= self._next_check
        if due:
            self.unrecorded += self._refused
            self._refused = []
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
        unknown = there - running - {_key(one) for one in [*self.unrecorded, *self._refused]}
        for task_id, number in sorted(unknown):
            attempt = Attempt(task_id, number, self._me)
            outcomes.move(self.alias, Ended(attempt=attempt, arrow=Arrow.RELEASE))
        if unknown:
            signals.unknown_claims.tell(worker=self.id, count=len(unknown))
        return settled

    def _record(self) -> outcomes.Recorded:
        if not self._careful:
            return outcomes.record(self.alias, self.unrecorded, config=self.config)
        recorded = outcomes.Recorded()
        for one in self.unrecorded:
            recorded += self._record_carefully(one)
        return recorded

    def _record_carefully(self, one: Ended) -> outcomes.Recorded:
        """One bad outcome must not stop a worker: what the database refuses leaves the task dead.

        If it refuses even that, the outcome waits for better times, which are looked for once in a lease.
        """
        refused = one
        for _ in range(2):
            try:
                with transaction.atomic(using=self.alias):
                    return outcomes.record(self.alias, [refused], config=self.config)
            except (OperationalError, InterfaceError):
                raise
            except ClaimLost:
                return outcomes.Recorded(lost=[one])
            except DatabaseError as error:
                signals.outcome_refused.tell(**one.attempt.facts, error=str(error))
                refused = Ended(attempt=one.attempt, arrow=Arrow.BURY, error=describe(error))
        self._refused.append(one)
        return outcomes.Recorded()

    def _look_again(self, recorded: outcomes.Recorded) -> None:
        """Tell those that finished by a COMMIT whose answer was lost from those that finished too late."""
        for one in list(recorded.lost):
            if outcomes.finished_by(self.alias, one.attempt):
                recorded.lost.remove(one)
                recorded.done.append(replace(one, arrow=Arrow.FINISH))
            elif one.arrow is Arrow.FINISH and not self._is_mine(one):
                self._note_late_finish(one)

    def _note_late_finish(self, one: Ended) -> None:
        """A note that the database refuses is not worth a turn."""
        try:
            with transaction.atomic(using=self.alias):
                outcomes.note_late_finish(self.alias, one.attempt)
        except (OperationalError, InterfaceError):
            raise
        except DatabaseError as error:
            signals.outcome_refused.tell(**one.attempt.facts, error=str(error))

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
            elif one.arrow is Arrow.FINISH:
                signals.task_finished_late.tell(**one.attempt.facts)
            else:
                signals.claim_lost.tell(**one.attempt.facts)

    def _is_mine(self, one: Ended) -> bool:
        return one.attempt.worker == self.id


def tell(one: Ended) -> None:
    """Send the signal of an arrow that was taken."""
    facts = one.attempt.facts
    error = f"{one.error.get('type')}: {one.error.get('message')}"
    if one.arrow is Arrow.FINISH:
        signals.task_finished.tell(**facts)
    elif one.arrow is Arrow.RETRY:
        signals.task_retried.tell(**facts, delay=one.delay.total_seconds(), error=error)
    elif one.arrow is Arrow.BURY:
        signals.task_died.tell(**facts, error=error)
    else:
        signals.task_released.tell(**facts)


def _key(one: Ended) -> Key:
    return one.attempt.task_id, one.attempt.number
