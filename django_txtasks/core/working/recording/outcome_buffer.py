"""Outcomes on their way into the table. Until the table has an outcome, it is not forgotten and no signal is
sent.
"""

from __future__ import annotations

import time
import uuid
from collections import OrderedDict
from collections.abc import Iterable, Sequence

from django.db import DatabaseError, InterfaceError, OperationalError, transaction

from django_txtasks import signals
from django_txtasks.core.ground.config import CoreConfig
from django_txtasks.core.rows import outcomes
from django_txtasks.core.rows.attempts import Arrow, Attempt, Ended, Recorded
from django_txtasks.core.working.parts import Parts
from django_txtasks.core.working.running.verdicts import buried
from django_txtasks.database.errors import message_of
from django_txtasks.exceptions import ClaimLost

Key = tuple[uuid.UUID, int]

TURN_BYTES = 1024 * 1024
"""Bytes of outcomes that one turn writes: much less than a server accepts in one packet (MariaDB: 16 MB)."""
TURN_OUTCOMES = 10_000
"""Number of small outcomes that one turn writes."""
MAX_REMEMBERED = 20_000
"""Number of ended attempts to remember, about 5 MB, so that a failover that loses them is noticed."""
MAX_FAILED_TURNS = 3
"""Failed turns after which an outcome that was written alone waits for a lease, so that others are written."""


class OutcomeBuffer:
    """Outcomes that are not recorded yet. The parts of the worker learn of the recorded ones.

    A turn may be rolled back after it has recorded, so only ``committed`` forgets outcomes, after the COMMIT.

    Attributes:
        waiting: outcomes for the next turns.
        one_by_one: True = record one by one, because an outcome that the database refuses would stop all others.
        most: number of outcomes that the next turn writes; halved after each failure, doubled after each success.
        held_up: True if the rows of all waiting outcomes are locked by other sessions.
        lately: recently recorded ends, without ends of tasks that may run again anyway.
    """

    def __init__(self, alias: str, config: CoreConfig, parts: Parts | None = None) -> None:
        self.alias, self.config, self._parts = alias, config, parts or Parts()
        self.waiting: list[Ended] = []
        self.lately: OrderedDict[Key, Arrow] = OrderedDict()
        self.one_by_one = self.held_up = False
        self.most = TURN_OUTCOMES
        self._of_turn: list[Ended] = []
        self._failures = 0
        self._refused: list[Ended] = []
        self._refused_now: list[Ended] = []
        self._again_at = 0.0

    def add(self, ended: Iterable[Ended]) -> None:
        """Add ended attempts. Outcomes of atomic tasks are recorded already."""
        recorded: list[Ended] = []
        for one in ended:
            (recorded if one.recorded else self.waiting).append(one)
        self.moved(recorded)

    def of_next_turn(self) -> list[Ended]:
        """Return the outcomes that the next turn is to write: the first ones, as many as fit."""
        size = 0
        for count, one in enumerate(self.waiting):
            size += outcomes.weight(one)
            if count and (count >= self.most or size > TURN_BYTES):
                self._of_turn = self.waiting[:count]
                return self._of_turn
        self._of_turn = self.waiting.copy()
        return self._of_turn

    def try_refused_again(self, *, now: bool = False) -> None:
        """Once a lease, try again to record the outcomes that the database has refused.

        Each is tried alone and once. After one more failure it waits again.

        Args:
            now: True = there will be no other chance.
        """
        if self._refused and (now or time.monotonic() >= self._again_at):
            self.waiting = self._refused + self.waiting
            self._refused = []
            self.most, self._failures = 1, MAX_FAILED_TURNS - 1

    def keys(self) -> set[Key]:
        """Return (id, attempt) of each outcome here. Their rows may still be claimed."""
        return {key(one) for one in [*self.waiting, *self._refused]}

    def record(self, me: uuid.UUID, reconciled: Sequence[Ended] = ()) -> Recorded:
        """Write the next outcomes in the open transaction, except outcomes that were found recorded already."""
        waiting = self.of_next_turn()
        if reconciled:
            waiting = [one for one in waiting if one not in reconciled]
        self._refused_now = []
        recorded = Recorded()
        if self.one_by_one:
            for one in waiting:
                written = _record_one(self.alias, one, self.config)
                if written is None:
                    self._refused_now.append(one)
                else:
                    recorded += written
        else:
            recorded += outcomes.record(self.alias, waiting, config=self.config)
        _look_again(self.alias, recorded, me)
        return recorded

    def committed(
        self, recorded: Recorded, me: uuid.UUID, reconciled: Sequence[Ended] = ()
    ) -> None:
        """Forget the outcomes that a committed transaction has recorded, and send their signals."""
        later = self.waiting[len(self._of_turn) :]
        if reconciled:
            later = [one for one in later if one not in reconciled]
        self.waiting = later + recorded.busy
        self.held_up = bool(recorded.busy) and not later
        self._put_aside(self._refused_now)
        self._of_turn, self._refused_now = [], []
        self.one_by_one, self._failures = False, 0
        self.most = min(2 * self.most, TURN_OUTCOMES)
        self.moved(recorded.done)
        for one in recorded.lost:
            if one.attempt.worker == me:
                # An earlier COMMIT whose answer was lost has moved it: see Reconciliation.
                self.moved([one])
            else:
                _tell_late(one)

    def moved(self, recorded: Sequence[Ended]) -> None:
        """Tell the parts of recorded outcomes, send their signals, remember their ends."""
        if recorded:
            self._parts.recorded(recorded)
        for one in recorded:
            emit(one)
            if not one.attempt.may_share:
                self.lately[key(one)] = one.arrow
                if len(self.lately) > MAX_REMEMBERED:
                    # OrderedDict, because a dict would step over each key that was deleted before.
                    self.lately.popitem(last=False)

    def failed(self, error: Exception, *, alone: bool) -> bool:
        """Prepare the turn after a failed one, if the database still takes writes: repeat nothing unchanged.

        The next turn writes half as many outcomes, down to one. If that one is too large for the database, the
        task is buried. Otherwise, for example if its row is locked, it waits a lease after ``MAX_FAILED_TURNS``.

        Args:
            alone: True if the turn did nothing else, so that the outcomes made it fail.

        Returns:
            True if the next turn writes other outcomes.
        """
        written, self._of_turn = self._of_turn, []
        if len(written) > 1:
            self.most = len(written) // 2
            return True
        if not written or not alone:
            return False
        self._failures += 1
        too_much = outcomes.is_too_much(self.alias, written[0], error)
        if not too_much and self._failures < MAX_FAILED_TURNS:
            return False
        one = self.waiting.pop(0)
        self._failures, self.most = 0, 1
        signals.outcome_refused.emit(**one.attempt.facts, error=message_of(error))
        if too_much and one.arrow is not Arrow.BURY:
            self.waiting.insert(0, _unrecorded(one, error))
        else:
            self._put_aside([one])
        return True

    def _put_aside(self, refused: list[Ended]) -> None:
        if refused:
            self._refused += refused
            self._again_at = time.monotonic() + self.config.lease.total_seconds()


def emit(one: Ended) -> None:
    """Send the signal of a recorded outcome. Of a release with a delay, the part tells that has decided it."""
    if one.arrow is Arrow.FINISH:
        if signals.task_finished.has_observers:
            signals.task_finished.emit(**one.attempt.facts, context=one.context)
        return
    facts, context = one.attempt.facts, one.context
    error = f"{one.error.get('type')}: {one.error.get('message')}"
    raised = one.exception
    if one.arrow is Arrow.RETRY:
        delay = one.delay.total_seconds()
        signals.task_retried.emit(
            **facts, context=context, delay=delay, error=error, exception=raised
        )
    elif one.arrow is Arrow.BURY:
        signals.task_died.emit(**facts, context=context, error=error, exception=raised)
    elif one.arrow is Arrow.SNOOZE:
        signals.task_snoozed.emit(**facts, context=context, delay=one.delay.total_seconds())
    elif one.arrow is Arrow.SUSPEND:
        signals.task_suspended.emit(**facts, context=context, awaited=one.awaited)
    elif one.arrow is Arrow.CANCEL:
        signals.task_stopped.emit(**facts, context=context)
    elif not one.delay:
        signals.task_released.emit(**facts, context=context)


def _tell_late(one: Ended) -> None:
    """Send the signal of an outcome that came too late to be recorded."""
    if one.arrow is Arrow.FINISH:
        signals.task_finished_late.emit(**one.attempt.facts, context=one.context)
    else:
        what = f"ended ({one.arrow.value}) too late to be recorded"
        signals.claim_lost.emit(**one.attempt.facts, what=what)


def key(one: Ended) -> Key:
    """Return (id, attempt), which identify the attempt in the row together with its worker."""
    return one.attempt.task_id, one.attempt.number


def _record_one(alias: str, one: Ended, config: CoreConfig) -> Recorded | None:
    """Record one outcome, in the open transaction. If the database refuses it, the task becomes dead.

    Returns:
        None: the database refuses even that.
    """
    refused = one
    for _ in range(2):
        try:
            with transaction.atomic(using=alias):
                return outcomes.record(alias, [refused], config=config)
        except (OperationalError, InterfaceError):
            raise
        except ClaimLost:
            return Recorded(lost=[one])
        except DatabaseError as error:
            signals.outcome_refused.emit(**one.attempt.facts, error=message_of(error))
            refused = _unrecorded(one, error)
    return None


def _look_again(alias: str, recorded: Recorded, me: uuid.UUID) -> None:
    """Separate tasks that finished by a COMMIT whose answer was lost from tasks that finished too late."""
    for one in list(recorded.lost):
        if outcomes.finished_by(alias, one.attempt):
            recorded.lost.remove(one)
            recorded.done.append(one._replace(arrow=Arrow.FINISH))
        elif one.arrow is Arrow.FINISH and one.attempt.worker != me:
            _note_late_finish(alias, one.attempt)


def _note_late_finish(alias: str, attempt: Attempt) -> None:
    """Note a late finish beside the task. If the database refuses the note, the turn continues without it."""
    try:
        with transaction.atomic(using=alias):
            outcomes.note_late_finish(alias, attempt)
    except (OperationalError, InterfaceError):
        raise
    except DatabaseError as error:
        signals.outcome_refused.emit(**attempt.facts, error=message_of(error))


def _unrecorded(one: Ended, error: Exception) -> Ended:
    """Return the outcome that replaces a refused one: the task is dead, with the reason."""
    if one.arrow is Arrow.FINISH:
        what = f"The task has ended well, but its result ({len(one.result or ''):,} bytes of JSON)"
    else:
        what = f"This attempt's {one.arrow.value} ({one.error.get('type')})"
    ended = buried(one.attempt, error)
    message = f"{what} could not be recorded: {message_of(error)}. Reviving the task runs it again."
    return ended._replace(error={**ended.error, "message": message}, exception=None)
