"""A worker's turns in the database, one transaction each: beat, record ended attempts, claim.

This module handles the hard cases: a COMMIT whose answer was lost, and a worker row that says the worker is lost.
"""

from __future__ import annotations

import uuid
from dataclasses import replace
from typing import Any, Protocol

from django.db import (
    DataError,
    IntegrityError,
    InterfaceError,
    NotSupportedError,
    OperationalError,
    connections,
)

from django_txtasks.core.enqueueing.commit_hints import notify_on_commit
from django_txtasks.core.ground.config import CoreConfig
from django_txtasks.core.ground.seams import AROUND
from django_txtasks.core.rows import engines
from django_txtasks.core.rows.attempts import Arrow, Ended
from django_txtasks.core.rows.turn import Subscription, TurnOrder, TurnRequest, TurnResult
from django_txtasks.core.working.cleaner_check import CleanerCheck
from django_txtasks.core.working.parts import Parts
from django_txtasks.core.working.recording.outcome_buffer import Key, OutcomeBuffer
from django_txtasks.core.working.recording.reconciliation import Reconciliation
from django_txtasks.core.working.registration import DeclaredLost, LastWill, Registration
from django_txtasks.core.working.schedule import Plan
from django_txtasks.core.working.turn_claims import TurnClaims
from django_txtasks.database import sessions
from django_txtasks.database.errors import is_repeatable, is_timeout
from django_txtasks.database.transactions import own_transaction
from django_txtasks.exceptions import ClaimLost
from django_txtasks.fast.sweep import Sweep

_OF_A_ROW = (ClaimLost, DataError, IntegrityError)


class SlotState(Protocol):
    """The part of the slots that a turn uses."""

    @property
    def running(self) -> int: ...
    def holds(self) -> set[Key]:
        """Return (id, attempt) of each attempt that the slots hold."""


class TurnWriter:
    """Writes one worker's turns.

    Args:
        last_will: None = there is no broker.
        parts: the parts of the worker.
    """

    def __init__(
        self,
        config: CoreConfig,
        subscription: Subscription,
        threads: int,
        last_will: LastWill | None = None,
        parts: Parts | None = None,
    ) -> None:
        self.config, self.subscription, self.alias = config, subscription, subscription.alias
        self.registration = Registration(config, subscription, threads, last_will)
        self.parts = parts or Parts()
        self.buffer = OutcomeBuffer(self.alias, config, self.parts)
        self.reconciliation = Reconciliation(self.alias, self.buffer, config.lease)
        self._claims = TurnClaims(config, subscription)
        self.scans = self._claims.scans
        self._has_unheld = self._only_records = False
        self._cleaner_check = CleanerCheck(self.alias, config.lease)

    @property
    def id(self) -> uuid.UUID | None:
        """The worker's id; None = not registered."""
        return self.registration.id

    @property
    def name(self) -> uuid.UUID | str:
        """The worker's id; before registration, a text for the log."""
        return self.registration.name

    def write(
        self,
        plan: Plan,
        slots: SlotState,
        connected: bool | None,
        apart: Any = None,
    ) -> TurnResult:
        """Beat, record, claim, commit. The claimed attempts may start once this has returned.

        Args:
            apart: a request of ``RowsApart``; None = the turn claims other rows.

        Raises:
            DeclaredLost: nothing was written; the next turn goes on under a new id.
            DatabaseError, InterfaceError, ClaimLost: see ``failed``.
        """
        self._only_records = not plan.capacity.width
        limit = self.config.lease / 2
        sessions.dedicate(self.alias, limit)
        AROUND.whole.before_turn(self.alias)
        if self.registration.ensure(connected):
            for part in self.parts.all:
                part.registered()
        if apart is not None:
            self.parts.apart.prepare(self.alias, apart)
        outcomes = self._usual_outcomes() if apart is None else None
        scan = self.scans.begin() if plan.scans and outcomes is not None else None
        if outcomes is not None and not isinstance(scan, Sweep):
            request = TurnRequest(plan.capacity, plan.hinted, scan)
            rows = self._claims.rows_of(plan)
            return self._write_whole_turn(rows, request, outcomes, slots.running, connected)
        me = self.registration.me
        with own_transaction(
            self.alias, limit=limit, in_order=True, read_committed=apart is not None
        ):
            self.registration.beat(slots.running, connected)
            is_due = self.reconciliation.is_due
            reconciled = self.reconciliation.reconcile(me, slots.holds()) if is_due else []
            recorded = self.buffer.record(me, reconciled)
            notify_on_commit(self.alias, recorded.to_notify)
            if any(one.arrow in (Arrow.RETRY, Arrow.RELEASE) for one in recorded.done):
                self.scans.from_head()  # its task is due at its old place, now or soon
            if plan.scans and scan is None:
                scan = self.scans.begin()
            result = (
                self._claims.claim(me, plan, scan)
                if apart is None
                else self.parts.apart.claim(self._claims.rows_of(plan), me, plan.capacity, apart)
            )
        result = self._claims.ended(replace(result, recorded=recorded))
        self.reconciliation.is_unsure = self._has_unheld = False
        self.buffer.moved(reconciled)
        self.buffer.committed(recorded, me, reconciled)
        self._cleaner_check.look(me)
        return result

    def failed(self, error: Exception) -> bool:
        """Prepare the next turn after an error. No ended attempt is forgotten.

        Returns:
            Whether the next turn differs from this one, and need not wait.
        """
        if isinstance(error, DeclaredLost):
            self.registration.forget()
            return False
        self.reconciliation.is_unsure = True
        self.scans.failed(too_long=is_timeout(error))
        # After a failover, an old session may answer and yet be read-only, or have plans for a column whose type
        # has changed. So it is closed, unless the database asks to repeat the turn or refuses a value.
        if not (isinstance(error, _OF_A_ROW) or is_repeatable(error)):
            connections[self.alias].close()
        if not isinstance(error, (OperationalError, InterfaceError, NotSupportedError)):
            self.buffer.one_by_one = True
            self.registration.beat_alone()
            return False
        return self.registration.beat_alone() and self.buffer.failed(
            error, alone=self._only_records
        )

    def _usual_outcomes(self) -> list[Ended] | None:
        """Return the attempts to record, if an engine can do the whole turn (except a sweep); else None."""
        if self.reconciliation.is_due or self._has_unheld or self.buffer.one_by_one:
            return None
        if self._claims.meets_keys or self.config.ageing is not None:
            return None
        outcomes = self.buffer.of_next_turn()
        return outcomes if engines.fits(self.alias, self.registration.me, outcomes) else None

    def _write_whole_turn(
        self,
        rows: Subscription,
        request: TurnRequest,
        outcomes: list[Ended],
        running: int,
        connected: bool | None,
    ) -> TurnResult:
        order = TurnOrder(
            rows,
            self.registration.me,
            self.registration.state(running, connected),
            request,
            outcomes,
            keep=self.config.keeps("succeeded"),
            limit=self.config.lease / 2,
        )
        result = engines.turn(order)
        if result is None:
            raise DeclaredLost
        self.registration.heed(is_suspected=result.is_suspected)
        result = self._claims.ended(result)
        self._has_unheld = bool(result.recorded.busy)
        self.buffer.committed(result.recorded, self.registration.me)
        return result
