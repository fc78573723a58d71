"""The arrows that a person takes, from the admin or a command. Rows in another state are not changed."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from typing import NamedTuple

from django_txtasks import signals
from django_txtasks.core.declaring.registry import hint_queue
from django_txtasks.core.rows import arrow_parts, statements
from django_txtasks.core.rows.outcomes import finish_rows
from django_txtasks.database.execute import as_uuid, execute, fetch
from django_txtasks.database.transactions import own_transaction
from django_txtasks.models import Outcome, Status
from django_txtasks.signals import LogSignal

Moved = list[tuple[uuid.UUID, str]]
"""(id, queue name) of each row that has taken the arrow."""


class Spread(NamedTuple):
    """Times for many tasks: each task becomes due at a random time of its own.

    Attributes:
        start: the earliest time, as text of the database.
        seconds: the time from there to the latest time. 0: all tasks become due at ``start``.
        after: a moment as text of the database; then each time is later than it, and with ``seconds=0`` it is now.
    """

    start: str
    seconds: float
    after: str = ""


_Locked = list[tuple[uuid.UUID, str, str]]
"""(id, queue name, task name) of each locked row."""


def hold(alias: str, ids: Iterable[uuid.UUID]) -> Moved:
    """Move PENDING -> HELD: the task waits for a person."""
    return _update(alias, ids, Status.PENDING, statements.HOLD, signals.task_held)


def resume(alias: str, ids: Iterable[uuid.UUID]) -> Moved:
    """Move HELD -> PENDING, with its old time."""
    return _update(alias, ids, Status.HELD, statements.RESUME, signals.task_resumed)


def run_now(alias: str, ids: Iterable[uuid.UUID], spread: Spread | None = None) -> Moved:
    """Make pending tasks due now, or at the times of ``spread``, instead of later."""
    return _update(
        alias, ids, Status.PENDING, statements.RUN_NOW, signals.task_run_now, spread=spread
    )


def revive(alias: str, ids: Iterable[uuid.UUID], spread: Spread | None = None) -> Moved:
    """Move DEAD -> PENDING, due now or at the times of ``spread``, without failures, crashes and expiry.

    Compensated tasks are left out.
    """
    return _update(
        alias,
        ids,
        Status.DEAD,
        statements.REVIVE,
        signals.task_revived,
        lock=statements.LOCK_REVIVABLE,
        spread=spread,
    )


def cancel(
    alias: str, ids: Iterable[uuid.UUID], *, keep: bool, status: Status = Status.PENDING
) -> Moved:
    """Move PENDING, or HELD, -> finished as cancelled: it never runs."""
    return _finish(alias, ids, status, Outcome.CANCELLED, signals.task_cancelled, keep=keep)


def ask_to_stop(alias: str, ids: Iterable[uuid.UUID]) -> Moved:
    """Ask running attempts to stop. They stay CLAIMED until they do, and no other attempt starts."""
    return _update(
        alias,
        ids,
        Status.CLAIMED,
        statements.ASK_TO_STOP,
        signals.task_asked_to_stop,
        lock=statements.LOCK_TO_ASK,
    )


def discard(alias: str, ids: Iterable[uuid.UUID], *, keep: bool) -> Moved:
    """Move DEAD -> finished as discarded."""
    return _finish(alias, ids, Status.DEAD, Outcome.DISCARDED, signals.task_discarded, keep=keep)


def _update(
    alias: str,
    ids: Iterable[uuid.UUID],
    status: Status,
    sql: str,
    signal: LogSignal,
    *,
    lock: str = statements.LOCK_IN_STATE,
    spread: Spread | None = None,
) -> Moved:
    times = {} if spread is None else spread._asdict()
    if spread is not None:
        sql = sql.replace(statements.AT_ONCE, _time_of(spread))
    with own_transaction(alias):
        moved = _lock(alias, ids, status, lock)
        if moved:
            execute(alias, sql, ids=sorted(task_id for task_id, *_ in moved), **times)
    return _told(moved, signal)


def _time_of(spread: Spread) -> str:
    if not spread.after:
        return statements.IN_SPREAD
    return statements.IN_SPREAD_AFTER if spread.seconds else statements.AT_ONCE_AFTER


def _finish(
    alias: str,
    ids: Iterable[uuid.UUID],
    status: Status,
    outcome: Outcome,
    signal: LogSignal,
    *,
    keep: bool,
) -> Moved:
    with own_transaction(alias):
        moved = _lock(alias, ids, status, statements.LOCK_IN_STATE)
        if moved:
            finish_rows(alias, [task_id for task_id, *_ in moved], status, outcome, keep=keep)
            if outcome is Outcome.CANCELLED:  # a dead task was counted when it died
                arrow_parts.without_run(alias, [(queue, name) for _, queue, name in moved])
    return _told(moved, signal)


def _told(moved: _Locked, signal: LogSignal) -> Moved:
    for task_id, queue, name in moved:
        signal.emit(task_id=task_id, queue=queue, task=name)
    return [(task_id, hint_queue(name, queue)) for task_id, queue, name in moved]


def _lock(alias: str, ids: Iterable[uuid.UUID], status: Status, sql: str) -> _Locked:
    """Lock the rows that are in the state. A row that another transaction has locked is left out."""
    wanted = sorted(set(ids))
    if not wanted:
        return []
    rows = fetch(alias, sql, ids=wanted, status=status.value)
    return [(as_uuid(task_id), queue, name) for task_id, queue, name in rows]
