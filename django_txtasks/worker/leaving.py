"""The last transaction of a worker that must end although its tasks still run."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator, Set
from datetime import timedelta

from django.db import DatabaseError, InterfaceError, OperationalError, connections, transaction

from django_txtasks.exceptions import ClaimLost
from django_txtasks.lifecycle import cleaning, outcomes, sessions, workers
from django_txtasks.lifecycle.attempts import Arrow, Ended
from django_txtasks.lifecycle.cleaning import Holder, Orphan
from django_txtasks.lifecycle.transactions import own_transaction
from django_txtasks.retry import backoff
from django_txtasks.worker.outcome_buffer import Key
from django_txtasks.worker.turn_writer import TurnWriter

Left = list[tuple[Orphan, Ended]]


def let_go(writer: TurnWriter, running: Set[Key], why: str) -> None:
    """Declare this worker lost and let its claims take their own arrows, in one transaction.

    The threads that run these tasks end with the process, a moment after it: whoever runs such a task again runs
    it after its worker was declared lost. No hint is sent, since a scan comes soon enough, and later than that.
    Outcomes that are still not recorded keep their claims, for the cleaner.

    Args:
        running: (id, attempt) of what slots hold.
        why: said among the errors of what was cut short.

    Raises:
        DatabaseError, InterfaceError: the worker may be declared lost; the cleaner finds its claims.
    """
    if writer.id is None:
        return
    try:
        left = _let_go(writer, writer.id, running, why)
    except (DatabaseError, InterfaceError):
        connections[writer.alias].close()
        with own_transaction(writer.alias, limit=writer.config.lease / 2):
            workers.give_up(writer.alias, writer.id)
        raise
    for orphan, ended in left:
        for event, facts in cleaning.events_of(orphan, ended):
            event.emit(**facts)
    sessions.close_dedicated(writer.alias)


def _let_go(writer: TurnWriter, me: uuid.UUID, running: Set[Key], why: str) -> Left:
    buffer = writer.buffer
    buffer.one_by_one = True
    with own_transaction(writer.alias, limit=writer.config.lease / 2, in_order=True):
        workers.give_up(writer.alias, me)
        recorded = buffer.record(me)
        left = list(_cut_short(writer, me, running, why))
        workers.unregister(writer.alias, me)
    buffer.committed(recorded, me)
    return left


def _cut_short(
    writer: TurnWriter, me: uuid.UUID, running: Set[Key], why: str
) -> Iterator[tuple[Orphan, Ended]]:
    """Move what runs. A claim that is not known here was never begun: the answer to its COMMIT was lost."""
    alias, config, unrecorded = writer.alias, writer.config, writer.buffer.keys()

    def delay(crashes: int) -> timedelta:
        return backoff(crashes, base=config.retry_base, ceiling=config.retry_ceiling)

    holder = Holder(me, f"{me} on {workers.host_name()} (pid {os.getpid()})")
    for orphan in cleaning.orphans(alias, holder, cleaning.held_by(alias, holder)):
        attempt = orphan.attempt
        key = attempt.task_id, attempt.number
        if key in unrecorded:
            continue
        try:
            with transaction.atomic(using=alias):
                if key not in running:
                    outcomes.move(alias, Ended(attempt=attempt, arrow=Arrow.RELEASE))
                    continue
                recovered = cleaning.recover(alias, orphan, delay, config, stopped=why)
        except (OperationalError, InterfaceError):
            raise
        except (ClaimLost, DatabaseError):
            continue  # it ends just now, or cannot be moved: the cleaner looks at it
        yield orphan, recovered.ended
