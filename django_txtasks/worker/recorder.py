"""Outcomes on their way into the table: until it has them, none is forgotten and none is told."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence

from django.db import DatabaseError, InterfaceError, OperationalError, transaction

from django_txtasks import signals
from django_txtasks.conf import Config
from django_txtasks.exceptions import ClaimLost
from django_txtasks.lifecycle import outcomes
from django_txtasks.lifecycle.attempts import Arrow, Attempt, Ended
from django_txtasks.worker.runner import describe

Key = tuple[uuid.UUID, int]


class Recorder:
    """What ended and is not recorded yet.

    A turn may be rolled back after it has recorded; only ``settle``, called after its COMMIT, believes it.

    Attributes:
        waiting: for the next turn.
        careful: record one by one, since one that the database refuses would stop all others.
    """

    def __init__(self, alias: str, config: Config) -> None:
        self.alias, self.config = alias, config
        self.waiting: list[Ended] = []
        self.careful = False
        self._refused: list[Ended] = []
        self._refused_now: list[Ended] = []

    def add(self, ended: Iterable[Ended]) -> None:
        """These attempts ended; those of atomic tasks are recorded already."""
        for one in ended:
            if one.recorded:
                tell(one)
            else:
                self.waiting.append(one)

    def try_refused_again(self) -> None:
        """Let what the database refused wait with the others: it may be in a better mood."""
        self.waiting += self._refused
        self._refused = []

    def keys(self) -> set[Key]:
        """(id, attempt) of all that is known here and may still be claimed in the table."""
        return {key(one) for one in [*self.waiting, *self._refused]}

    def record(self, me: uuid.UUID, settled: Sequence[Ended] = ()) -> outcomes.Recorded:
        """Write what waits in the open transaction, but for what was found recorded already."""
        waiting = self.waiting
        if settled:
            waiting = [one for one in waiting if one not in settled]
        self._refused_now = []
        recorded = outcomes.Recorded()
        if self.careful:
            for one in waiting:
                recorded += self._record_carefully(one)
        else:
            recorded += self._record(waiting)
        self._look_again(recorded, me)
        return recorded

    def settle(self, recorded: outcomes.Recorded, me: uuid.UUID) -> None:
        """The transaction has committed: tell it."""
        self.waiting = recorded.busy
        self._refused += self._refused_now
        self._refused_now = []
        self.careful = False
        for one in recorded.done:
            tell(one)
        for one in recorded.lost:
            if one.attempt.worker == me:
                tell(one)  # moved by an earlier COMMIT whose answer was lost: see Ledger._reconcile
            elif one.arrow is Arrow.FINISH:
                signals.task_finished_late.tell(**one.attempt.facts)
            else:
                signals.claim_lost.tell(**one.attempt.facts)

    def _record(self, batch: list[Ended]) -> outcomes.Recorded:
        return outcomes.record(self.alias, batch, config=self.config)

    def _record_carefully(self, one: Ended) -> outcomes.Recorded:
        """One bad outcome must not stop a worker: what the database refuses leaves the task dead.

        If it refuses even that, the outcome waits for better times, which are looked for once in a lease.
        """
        refused = one
        for _ in range(2):
            try:
                with transaction.atomic(using=self.alias):
                    return self._record([refused])
            except (OperationalError, InterfaceError):
                raise
            except ClaimLost:
                return outcomes.Recorded(lost=[one])
            except DatabaseError as error:
                signals.outcome_refused.tell(**one.attempt.facts, error=str(error))
                refused = Ended(attempt=one.attempt, arrow=Arrow.BURY, error=describe(error))
        self._refused_now.append(one)
        return outcomes.Recorded()

    def _look_again(self, recorded: outcomes.Recorded, me: uuid.UUID) -> None:
        """Tell those that finished by a COMMIT whose answer was lost from those that finished too late."""
        for one in list(recorded.lost):
            if outcomes.finished_by(self.alias, one.attempt):
                recorded.lost.remove(one)
                recorded.done.append(one._replace(arrow=Arrow.FINISH))
            elif one.arrow is Arrow.FINISH and one.attempt.worker != me:
                self._note_late_finish(one.attempt)

    def _note_late_finish(self, attempt: Attempt) -> None:
        """A note that the database refuses is not worth a turn."""
        try:
            with transaction.atomic(using=self.alias):
                outcomes.note_late_finish(self.alias, attempt)
        except (OperationalError, InterfaceError):
            raise
        except DatabaseError as error:
            signals.outcome_refused.tell(**attempt.facts, error=str(error))


def tell(one: Ended) -> None:
    """Send the signal of an arrow that was taken."""
    if one.arrow is Arrow.FINISH:
        if signals.task_finished.is_heard:
            signals.task_finished.tell(**one.attempt.facts)
        return
    facts = one.attempt.facts
    error = f"{one.error.get('type')}: {one.error.get('message')}"
    if one.arrow is Arrow.RETRY:
        signals.task_retried.tell(**facts, delay=one.delay.total_seconds(), error=error)
    elif one.arrow is Arrow.BURY:
        signals.task_died.tell(**facts, error=error)
    else:
        signals.task_released.tell(**facts)


def key(one: Ended) -> Key:
    """What a row says of the attempt that holds it, beside its worker."""
    return one.attempt.task_id, one.attempt.number
