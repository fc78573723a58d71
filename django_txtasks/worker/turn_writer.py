"""What a worker writes: its beat, what ended, what it claims. One transaction a turn.

It owns the hard cases: a COMMIT whose answer was lost, a row that says this worker is lost.
"""

from __future__ import annotations

import threading
import time
import uuid
from dataclasses import replace
from typing import Any, Protocol

from django.db import (
    DatabaseError,
    DataError,
    IntegrityError,
    InterfaceError,
    NotSupportedError,
    OperationalError,
    connections,
)

from django_txtasks import signals
from django_txtasks.conf import Config
from django_txtasks.enqueueing import notify_on_commit
from django_txtasks.exceptions import ClaimLost
from django_txtasks.lifecycle import claims, engines, outcomes, sessions, workers
from django_txtasks.lifecycle.attempts import Arrow, Attempt, Ended
from django_txtasks.lifecycle.database_errors import is_repeatable, is_timeout
from django_txtasks.lifecycle.engines import postgresql
from django_txtasks.lifecycle.transactions import own_transaction
from django_txtasks.lifecycle.turn import Capacity, Subscription, TurnRequest, TurnResult
from django_txtasks.worker.cleaner_check import CleanerCheck
from django_txtasks.worker.outcome_buffer import Key, OutcomeBuffer, emit, key
from django_txtasks.worker.scan_cursor import ScanCursor
from django_txtasks.worker.schedule import Plan
from django_txtasks.worker.sweep import Sweep

_OF_A_ROW = (ClaimLost, DataError, IntegrityError)


class DeclaredLost(Exception):
    """This worker's row says that it is lost."""


class Slots(Protocol):
    """What runs."""

    @property
    def running(self) -> int: ...
    def holds(self) -> set[Key]:
        """Return (id, attempt) of each."""


class LastWillHolder(Protocol):
    """What RabbitMQ tells the cleaners by itself when this process is gone."""

    def number_for(self, worker: uuid.UUID) -> int:
        """Return the number of the will that is held for this worker; 0 = none yet."""


class TurnWriter:
    """One worker's rows.

    Args:
        last_will: None = there is no broker.

    Attributes:
        can_beat: after a turn that failed: the beat could be written all the same.
        check_seconds: how long the last look through this worker's claims took.
    """

    def __init__(
        self,
        config: Config,
        subscription: Subscription,
        threads: int,
        last_will: LastWillHolder | None = None,
    ) -> None:
        self.config, self.subscription, self.threads = config, subscription, threads
        self.alias, self.last_will = subscription.alias, last_will
        self.id: uuid.UUID | None = None
        self.can_beat, self.check_seconds = True, 0.0
        self.buffer = OutcomeBuffer(self.alias, config)
        self.slot_sessions: dict[int, str] = {}
        self._seen_will = 0
        self._unsure = self._has_unheld = self._only_records = False
        self._next_check = 0.0
        self._cleaner_check = CleanerCheck(self.alias, config.lease)
        self.scans = ScanCursor(
            subscription, config.poll_interval, longest=config.lease.total_seconds() / 4
        )

    @property
    def name(self) -> uuid.UUID | str:
        """The worker's id; before it has one, what the log says instead."""
        return self.id or "(not registered yet)"

    def note_session(self, session: str) -> None:
        """The calling thread, which runs tasks, has this database session."""
        self.slot_sessions[threading.get_ident()] = session

    def sees_another_will(self) -> bool:
        """Say once for each change that it is time to beat: a lost link looks like a lost worker."""
        before, self._seen_will = self._seen_will, self._will()
        return self._seen_will != before

    def write(self, plan: Plan, slots: Slots, connected: bool | None) -> TurnResult:
        """Beat, record, claim, commit. What was claimed may start once this has returned.

        Raises:
            DeclaredLost: nothing was written; the next turn goes on under a new id.
            DatabaseError, InterfaceError, ClaimLost: see ``failed``.
        """
        self._only_records = not plan.capacity.width
        sessions.dedicate(self.alias, self.config.lease / 2)
        if self.id is None:
            self._register(connected)
        scan = None
        usual = self._usual_batch()
        if usual is not None:
            scan = self.scans.begin() if plan.scans else None
            if not isinstance(scan, Sweep):
                request = TurnRequest(plan.capacity, plan.hinted, scan)
                return self._write_in_one_statement(request, usual, slots.running, connected)
        with own_transaction(self.alias, limit=self.config.lease / 2, in_order=True):
            self._beat(slots.running, connected)
            settled = self._reconcile(slots.holds()) if self._check_is_due else []
            recorded = self.buffer.record(self._me, settled)
            notify_on_commit(self.alias, recorded.to_notify)
            if any(one.arrow in (Arrow.RETRY, Arrow.RELEASE) for one in recorded.done):
                self.scans.from_head()  # it is due at its old place again, or soon
            if plan.scans and scan is None:
                scan = self.scans.begin()
            if isinstance(scan, Sweep):
                result = self._sweep(plan, scan)
            else:
                request = TurnRequest(plan.capacity, plan.hinted, scan)
                result = engines.claim(self.subscription, self._me, request)
        result = self._scanned(replace(result, recorded=recorded))
        self._unsure = self._has_unheld = False
        for one in settled:
            emit(one)
        self.buffer.committed(recorded, self._me, settled)
        self._cleaner_check.look(self.id)
        return result

    def failed(self, error: Exception) -> bool:
        """Prepare the next turn; nothing that ended is forgotten.

        Returns:
            Whether the next turn is another one than this, and not to be waited for.
        """
        if isinstance(error, DeclaredLost):
            previous, self.id = self.id, None
            signals.worker_was_lost.emit(worker=previous)
            return False
        self._unsure = True  # its COMMIT may have landed
        self.scans.failed(too_long=is_timeout(error))
        # An old session may answer and yet be read-only since a failover, or keep plans for a column whose
        # type has changed. It is kept where the database asks for the same again, or refuses some value.
        if not (isinstance(error, _OF_A_ROW) or is_repeatable(error)):
            connections[self.alias].close()
        if not isinstance(error, (OperationalError, InterfaceError, NotSupportedError)):
            self.buffer.one_by_one = True
            self._beat_alone()
            return False
        return self._beat_alone() and self.buffer.failed(error, alone=self._only_records)

    def leave(self) -> None:
        """Remove this worker's row. One that still holds claims stays until its lease is over."""
        if self.id is not None:
            with own_transaction(self.alias, limit=self.config.lease / 2, in_order=True):
                workers.unregister(self.alias, self.id)
        sessions.close_dedicated(self.alias)

    def _register(self, connected: bool | None) -> None:
        self.id = workers.register(
            self.alias,
            queues=sorted(self.subscription.queues),
            task_names=sorted(self.subscription.names),
            threads=self.threads,
            listening=connected,
            lease=self.config.lease,
        )
        signals.worker_started.emit(
            worker=self.id,
            queues=", ".join(sorted(self.subscription.queues)),
            threads=self.threads,
            broker=self.config.broker_address,
        )

    def _beat(self, running: int, connected: bool | None) -> None:
        if not workers.beat(self.alias, self._me, **self._state(running, connected)):
            raise DeclaredLost

    def _state(self, running: int, connected: bool | None) -> dict[str, Any]:
        return {
            "running": running,
            "listening": connected,
            "will": self._will(),
            "slot_sessions": [one for one in list(self.slot_sessions.values()) if one],
        }

    def _will(self) -> int:
        if self.last_will is None or self.id is None:
            return 0
        return self.last_will.number_for(self.id)

    @property
    def _me(self) -> uuid.UUID:
        if self.id is None:
            raise DeclaredLost
        return self.id

    def _beat_alone(self) -> bool:
        """A turn that fails again and again must not cost a living worker its lease. False = it cannot beat."""
        self.can_beat = False
        try:
            if self.id is not None:
                self._beat(0, None)
                self.can_beat = True
        except DeclaredLost:
            pass  # the next turn finds out
        except (DatabaseError, InterfaceError):
            connections[self.alias].close()
        return self.can_beat

    @property
    def _check_is_due(self) -> bool:
        return self._unsure or time.monotonic() >= self._next_check

    def _reconcile(self, running: set[Key]) -> list[Ended]:
        """The answer to a COMMIT may have been lost: compare the table with what is known here.

        Nobody but this worker moves its claims while its beat is accepted. So an outcome whose row is
        no longer claimed was recorded by then, and a claim that is not known here is given back.
        """
        self.buffer.try_refused_again()
        self._next_check = time.monotonic() + self.config.lease.total_seconds()
        began = time.monotonic()
        there = claims.claims_of(self.alias, self._me)
        self.check_seconds = time.monotonic() - began
        unknown = there - running - self.buffer.keys()
        for task_id, number in sorted(unknown):
            attempt = Attempt(task_id, number, self._me)
            outcomes.move(self.alias, Ended(attempt=attempt, arrow=Arrow.RELEASE))
        if unknown:
            signals.unknown_claims.emit(worker=self.id, count=len(unknown))
        waiting = self.buffer.waiting
        return [one for one in waiting if one.attempt.worker == self.id and key(one) not in there]

    def _usual_batch(self) -> list[Ended] | None:
        """Return what the turn records, if one statement can do all of it, but for a sweep; else None."""
        if self._check_is_due or self._has_unheld or self.buffer.one_by_one:
            return None
        batch = self.buffer.batch()
        return batch if postgresql.fits(self.alias, self._me, batch) else None

    def _write_in_one_statement(
        self, request: TurnRequest, batch: list[Ended], running: int, connected: bool | None
    ) -> TurnResult:
        result = postgresql.turn(
            self.subscription,
            self._me,
            workers.state_of(self.alias, **self._state(running, connected)),
            request,
            batch,
            keep=self.config.keeps_finished,
            limit=self.config.lease / 2,
        )
        if result is None:
            raise DeclaredLost
        result = self._scanned(result)
        self._has_unheld = bool(result.recorded.busy)
        self.buffer.committed(result.recorded, self._me)
        return result

    def _sweep(self, plan: Plan, sweep: Sweep) -> TurnResult:
        """The sweep comes first, as a scan does."""
        swept = sweep.claim(self._me, plan.capacity)
        if not plan.hinted:
            return swept
        rest = swept.rest if swept.blocked_queue is None else Capacity(0)
        found = engines.claim(self.subscription, self._me, TurnRequest(rest, plan.hinted))
        return replace(
            found,
            claimed=swept.claimed + found.claimed,
            backlog=swept.backlog,
            blocked_queue=swept.blocked_queue or found.blocked_queue,
            has_scanned=True,
        )

    def _scanned(self, result: TurnResult) -> TurnResult:
        if not result.has_scanned:
            return result
        is_partial = self.scans.ended(result)
        return replace(result, is_partial=is_partial, is_unfinished=self.scans.is_sweeping)
