"""The last transaction of a worker that must end while its tasks still run."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping, Set
from datetime import timedelta
from functools import partial
from types import MappingProxyType

from django.db import DatabaseError, InterfaceError, OperationalError, connections, transaction

from django_txtasks.core.ground.retry import backoff
from django_txtasks.core.rows import arrow_parts, cleaning, workers
from django_txtasks.core.rows.attempts import Counted, Ended
from django_txtasks.core.rows.cleaning import Orphan
from django_txtasks.core.working.recording.outcome_buffer import Key, emit
from django_txtasks.core.working.recording.reconciliation import give_back, holder_of
from django_txtasks.core.working.turn_writer import TurnWriter
from django_txtasks.database import sessions
from django_txtasks.database.transactions import own_transaction
from django_txtasks.exceptions import ClaimLost

Left = list[tuple[Orphan, Ended]]
NONE_STUCK: Mapping[Key, Ended] = MappingProxyType({})


def let_go(
    writer: TurnWriter, running: Set[Key], why: str, stuck: Mapping[Key, Ended] = NONE_STUCK
) -> None:
    """Declare this worker lost and apply the crash policy to each of its claims, in one transaction.

    The threads that run these tasks end with the process, a moment later. Another worker can run such a task only
    after this worker was declared lost. No hints are sent: a scan comes soon enough, and it comes after the
    process has ended. Outcomes that are still not recorded keep their claims, for the cleaner.

    Args:
        running: (id, attempt) of each attempt in a slot.
        why: reason, for the errors of the interrupted tasks.
        stuck: tasks that no exception could end, by (id, attempt), each with the outcome of a failure.

    Raises:
        DatabaseError, InterfaceError: the worker may be declared lost; the cleaner finds its claims.
    """
    if writer.id is None:
        return
    arrow = partial(_arrow, writer, running, why, stuck)
    try:
        left = _let_go(
            writer, writer.id, arrow, lambda key: key in running and key not in stuck, why
        )
    except (DatabaseError, InterfaceError):
        connections[writer.alias].close()
        with own_transaction(writer.alias, limit=writer.config.lease / 2):
            workers.give_up(writer.alias, writer.id)
        raise
    for orphan, ended in left:
        if ended.counted is Counted.FAILURE:
            emit(ended)
            continue
        for signal, facts in cleaning.signals_of(orphan, ended):
            signal.emit(**facts)
    sessions.close_dedicated(writer.alias)


def _let_go(
    writer: TurnWriter,
    me: uuid.UUID,
    arrow: Callable[[Orphan], Ended | None],
    is_cut_short: Callable[[Key], bool],
    why: str,
) -> Left:
    buffer = writer.buffer
    buffer.one_by_one = True
    with own_transaction(writer.alias, limit=writer.config.lease / 2, in_order=True):
        workers.give_up(writer.alias, me)
        recorded = buffer.record(me)
        arrow_parts.recorded_last(writer.alias, recorded.done)
        left = list(_cut_short(writer, me, arrow, is_cut_short, why))
        workers.unregister(writer.alias, me, writer.registration.end)
    buffer.committed(recorded, me)
    return left


def _cut_short(
    writer: TurnWriter,
    me: uuid.UUID,
    arrow: Callable[[Orphan], Ended | None],
    is_cut_short: Callable[[Key], bool],
    why: str,
) -> Iterator[tuple[Orphan, Ended]]:
    """Move the claims of running tasks: most of them together, each other row in a savepoint of its own."""
    alias, unrecorded = writer.alias, writer.buffer.keys()
    holder = holder_of(me)
    found = cleaning.orphans(alias, holder, cleaning.held_by(alias, holder))
    orphans = [one for one in found if _key(one) not in unrecorded]
    together = _retried_together(alias, [one for one in orphans if is_cut_short(_key(one))], why)
    yield from together
    done = {_key(one) for one, _ in together}
    for orphan in orphans:
        if _key(orphan) in done:
            continue
        try:
            with transaction.atomic(using=alias):
                ended = arrow(orphan)
        except (OperationalError, InterfaceError):
            raise
        except (ClaimLost, DatabaseError):
            continue  # the task ends at this moment, or its row cannot be moved: the cleaner looks at it
        if ended is not None:
            yield orphan, ended


def _retried_together(alias: str, orphans: list[Orphan], why: str) -> Left:
    try:
        with transaction.atomic(using=alias):
            return cleaning.retry_together(alias, orphans, why)
    except (OperationalError, InterfaceError):
        raise
    except (ClaimLost, DatabaseError):
        return []  # one by one, so that one row does not keep back the others


def _key(orphan: Orphan) -> Key:
    return orphan.attempt.task_id, orphan.attempt.number


def _arrow(
    writer: TurnWriter, running: Set[Key], why: str, stuck: Mapping[Key, Ended], orphan: Orphan
) -> Ended | None:
    """Move one claim, in the open transaction. Return its outcome; None = the attempt had not begun.

    If the worker does not know a claim, either the attempt never began, because the answer to the COMMIT of the
    claim was lost, or the database has lost the end of the attempt.
    """
    alias, config, key = writer.alias, writer.config, _key(orphan)

    def delay(crashes: int) -> timedelta:
        return backoff(crashes, base=config.retry_base, ceiling=config.retry_ceiling)

    if key in stuck:
        return cleaning.abandon(alias, orphan, stuck[key], config).ended
    if key not in running:
        give_back(alias, orphan, writer.buffer)
        return None
    return cleaning.recover(alias, orphan, delay, config, stopped=why).ended
