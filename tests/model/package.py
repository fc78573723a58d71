"""The package's own calls, each in the transaction that its caller owes it."""

from __future__ import annotations

import dataclasses
import uuid
from datetime import timedelta

from django.db import transaction
from probe import tasks as functions

from django_txtasks.conf import get_config
from django_txtasks.core.declaring import registry
from django_txtasks.core.rows import cleaning, engines, outcomes, workers
from django_txtasks.core.rows.attempts import Arrow, Ended
from django_txtasks.core.rows.turn import Capacity, Scan, Subscription, TurnOrder, TurnRequest
from django_txtasks.database import sessions
from django_txtasks.features.results import cancelling
from django_txtasks.models import FinishedTask, Task, Worker
from django_txtasks.operations import operators
from model.tables import Tables

ALIAS = "default"
LATER = timedelta(hours=1)


class RolledBack(Exception):
    """The caller's transaction, or the worker's, was not committed."""


class Package:
    """The lifecycle's calls; changes of its interface need changes only here."""

    def __init__(self) -> None:
        self.keeping = get_config()
        self.forgetting = dataclasses.replace(self.keeping, keep_finished=timedelta(0))

    def register(self) -> uuid.UUID:
        lease = self.keeping.lease
        return workers.register(ALIAS, queues=["default"], threads=1, listening=None, lease=lease)

    def beat(self, worker):
        return workers.beat(ALIAS, worker, running=0, listening=None) is not None

    def turn(self, worker, ended, queues, limit, *, keep):
        """As a worker's turn: beat, record, claim, commit. In one statement where it can be."""
        subscription = self._subscription(queues)
        request = TurnRequest(Capacity(limit), scan=Scan(subscription.queues))
        written = self._in_one_statement(subscription, worker, ended, request, keep=keep)
        if written is not None:  # what is not held is busy or lost: the next turn looks which
            written.recorded.lost, written.recorded.busy = written.recorded.busy, []
            return written.recorded, written.claimed
        with transaction.atomic():
            if not self.beat(worker):
                raise RolledBack
            recorded = self.record(ended, keep=keep)
            return recorded, engines.claim(subscription, worker, request).claimed

    def _in_one_statement(self, subscription, worker, ended, request, *, keep):
        """None = it cannot be."""
        sessions.dedicate(ALIAS, self.keeping.lease)
        if not engines.fits(ALIAS, worker, ended) or not request.capacity.width:
            return None
        state = workers.state_of(ALIAS, running=0, listening=None)
        limit = self.keeping.lease
        written = engines.turn(TurnOrder(subscription, worker, state, request, ended, keep, limit))
        if written is None:
            raise RolledBack
        return written

    def record(self, ended, *, keep):
        with transaction.atomic():
            return outcomes.record(ALIAS, ended, config=self._config(keep))

    def hinted_turn(self, worker, ended, queues, ids, limit, *, keep):
        """As a worker's turn for hints: in one statement where it can be. None = nothing was tried."""
        subscription = self._subscription(queues)
        request = TurnRequest(Capacity(limit), ids)
        written = self._in_one_statement(subscription, worker, ended, request, keep=keep)
        if written is not None:
            return written.recorded.done, written
        if ended or not ids:
            return None
        with transaction.atomic():
            if not self.beat(worker):
                raise RolledBack
            return [], engines.claim(subscription, worker, request)

    def finish(self, attempt, *, keep):
        """As an atomic task: its effect and its finish."""
        with transaction.atomic():
            functions.ran("effect")
            ended = Ended(attempt=attempt, arrow=Arrow.FINISH)
            outcomes.finish(ALIAS, ended, config=self._config(keep))

    def move(self, ended):
        with transaction.atomic():
            outcomes.move(ALIAS, ended)

    def lose(self, sight):
        with transaction.atomic():
            return cleaning.lose(ALIAS, sight)

    def recover(self, orphan, *, stopped):
        why = "a second stop signal" if stopped else ""
        with transaction.atomic():
            recovered = cleaning.recover(
                ALIAS, orphan, lambda crashes: LATER, self.keeping, stopped=why
            )
        return recovered.ended.arrow

    def cancel(self, ids):
        results, _ = cancelling.cancel(ALIAS, ids, keep=True)
        return {key: result.value for key, result in results.items()}

    def by_person(self, name, ids):
        more = {"keep": True} if name in ("cancel", "discard") else {}
        return getattr(operators, name)(ALIAS, ids, **more)

    def _config(self, keep):
        return self.keeping if keep else self.forgetting

    def _subscription(self, queues):
        return Subscription(ALIAS, tuple(queues), tuple(registry.names()))


def assert_alike(tables: Tables) -> None:
    """Compare the whole tables of the database with ``tables``."""
    due = set(Task.objects.due().values_list("id", flat=True))
    assert due == {key for key, row in tables.tasks.items() if row.is_due}
    columns = ("status", "attempt", "worker", "failures", "crashes", "snoozes")
    live = {task.id: task for task in Task.objects.all()}
    assert {
        key: (
            *(getattr(task, name) for name in columns),
            len(task.errors),
            bool(task.cancel_asked_at),
        )
        for key, task in live.items()
    } == {
        key: (*(getattr(row, name) for name in columns), row.errors, row.asked)
        for key, row in tables.tasks.items()
    }
    assert all(task.started_at for task in live.values() if task.status == "claimed")
    rows = FinishedTask.objects.values_list("id", "outcome", "attempt")
    assert {key: tuple(rest) for key, *rest in rows} == tables.finished
    rows = Worker.objects.values_list("id", "beat", "lost")
    assert {key: tuple(rest) for key, *rest in rows} == {
        key: (row.beat, row.lost) for key, row in tables.workers.items()
    }
