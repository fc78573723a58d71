"""Ticks of schedules, written as tasks. Each tick is written once, by any number of cleaners.

A cleaner writes a tick's task a few seconds ahead, with the time of the tick as ``run_after``. The same
transaction locks the schedule's row and moves it to the next tick. There is no leader, and no other state.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from typing import Any, NamedTuple

from django.db import connections

from django_txtasks.core.ground import payload
from django_txtasks.core.rows.enqueueing import NewTask, insert
from django_txtasks.database.execute import as_uuid, execute, fetch, fetch_column, is_uuid
from django_txtasks.database.transactions import own_transaction
from django_txtasks.exceptions import InvalidSchedule, TxTasksError, UnknownZone
from django_txtasks.features.schedules import statements
from django_txtasks.features.schedules.rules import (
    CATCH_UP,
    ON_TIME,
    Due,
    ScheduleRule,
    check_grace,
    due_ticks,
    parse_schedule_rule,
    tick_after,
)

AHEAD = timedelta(seconds=5)
"""Time before a tick at which its task is written."""
SCHEDULES_PER_TRANSACTION = 250
"""Number of schedules that one transaction moves to their next tick."""
TASKS_PER_TRANSACTION = 2000
"""Number of tasks after which a transaction ends. A schedule has many at once only if missed ticks are caught
up."""


FOREIGN = (OverflowError, ValueError, TypeError)


class Scope(NamedTuple):
    """The schedules whose ticks a cleaner may write. An older release does not know new functions and queues.

    Attributes:
        names: the task functions that the cleaner's code declares.
        crons: True: the cleaner can read cron.
        skipped: names of schedules that the cleaner recently failed to write.
        handed: queues whose tasks need no declaration, because other systems run them.
    """

    names: Sequence[str]
    queues: Sequence[str]
    crons: bool = True
    skipped: Sequence[str] = ()
    handed: Sequence[str] = ()


class ScheduleRow(NamedTuple):
    """The row of a schedule, unchecked: it may have been written by hand.

    Attributes:
        args, kwargs: JSON text.
        next_at, last_at, waiting_since, now: text, in UTC.
    """

    name: str
    task_name: str
    queue_name: str
    args: str
    kwargs: str
    cron: Any
    every: Any
    tz: Any
    catch_up: Any
    grace: Any
    next_at: str | None
    last_at: str | None
    last_task: Any
    waiting_since: str | None
    now: str


Make = Callable[[ScheduleRow, Sequence[datetime]], list[NewTask]]
"""A function that makes the tasks of ticks."""


@dataclass
class Written:
    """The result of one transaction.

    Attributes:
        tasks: (id, queue) of each written task.
        passed: schedules whose tick passed without a task, because the task of an earlier tick still waits.
        broken: (name, reason) of schedules that were disabled.
        skipped: (name, reason) of schedules that this process cannot write.
        moved: number of schedules that were moved, disabled or skipped.
    """

    tasks: list[tuple[uuid.UUID, str]] = field(default_factory=list)
    passed: list[str] = field(default_factory=list)
    broken: list[tuple[str, str]] = field(default_factory=list)
    skipped: list[tuple[str, str]] = field(default_factory=list)
    moved: int = 0


class _Move(NamedTuple):
    """The new values of a schedule's row."""

    row: ScheduleRow
    next_at: datetime
    last_at: datetime | None
    last_task: Any
    waiting_since: datetime | None


class NextTick(NamedTuple):
    """The first tick of all schedules.

    Attributes:
        wait: seconds until the tick; zero or less: now; None: no tick.
        now: the database's time; None: not read, because there is no schedule.
    """

    wait: float | None
    now: datetime | None


def next_tick(alias: str, scope: Scope) -> NextTick:
    """Read the first tick of all schedules."""
    if not (scope.names or scope.handed):
        return NextTick(None, None)
    rows = fetch(alias, _of_scope(statements.NEXT_TICK, scope), **_params(scope))
    for next_at, now_text in rows:
        now = moment_of(now_text)
        try:
            return NextTick((moment_of(next_at) - now).total_seconds() if next_at else 0.0, now)
        except InvalidSchedule:
            return NextTick(0.0, now)
    return NextTick(None, None)


def write_ticks(
    alias: str,
    scope: Scope,
    make: Make,
    *,
    limit: timedelta | None,
    set_forward: timedelta = timedelta(0),
) -> Written:
    """Write the tasks of some schedules' ticks that are due, or due soon, in a separate transaction.

    Args:
        limit: longest time for which this process may freeze in the transaction; None: no limit, in the
            transaction of a test.
        set_forward: time by which the database's clock was set forward a moment ago. It is no waiting time.
    """
    written = Written()
    free = not connections[alias].in_atomic_block
    with own_transaction(alias, limit=limit, read_committed=free):
        rows = [
            ScheduleRow(*row)
            for row in fetch(
                alias, _of_scope(statements.DUE_SCHEDULES, scope),
                delay=AHEAD.total_seconds(), limit=SCHEDULES_PER_TRANSACTION, **_params(scope),
            )
        ]  # fmt: skip
        unbegun = unbegun_of(alias, [row.last_task for row in rows])
        moves: list[_Move] = []
        tasks: list[NewTask] = []
        for row in rows:
            if len(tasks) >= TASKS_PER_TRANSACTION:
                break
            try:
                waits = row.last_task in unbegun
                move, new = _move(row, waits, make, written, set_forward=set_forward)
            except UnknownZone as error:  # this host's list of zones may be old
                written.skipped.append((row.name, str(error)))
            except InvalidSchedule as error:
                written.broken.append((row.name, str(error)))
            except TxTasksError as error:
                written.skipped.append((row.name, str(error)))
            except FOREIGN as error:  # a value that was written by hand
                written.broken.append((row.name, f"{type(error).__name__}: {error}"))
            else:
                tasks += new
                moves += [move] if move is not None else []
        if tasks:
            insert(connections[alias], tasks)
        if moves:
            _move_on(alias, moves)
        _note(alias, statements.DISABLE_SCHEDULE, written.broken)
        _note(alias, statements.NOTE_OF_SCHEDULE, written.skipped)
    written.moved = len(moves) + len(written.broken) + len(written.skipped)
    written.tasks = [task.hint for task in tasks]
    return written


def _note(alias: str, sql: str, reasons: Iterable[tuple[str, str]]) -> None:
    for name, why in reasons:
        execute(alias, sql, name=name, error=payload.storable(why)[:500])


def tell_unready(alias: str, name: str, tick: datetime) -> bool:
    """Record that a late tick is reported; return False if another cleaner has reported it."""
    at = connections[alias].ops.adapt_datetimefield_value(tick)
    return bool(execute(alias, statements.TELL_UNREADY, name=name, tick=at))


def unbegun_of(alias: str, ids: Iterable[Any]) -> set[Any]:
    """Return the tasks that no worker has begun, with ids in the form that the database gives."""
    sound = {one: as_uuid(one) for one in ids if one is not None and is_uuid(one)}
    if not sound:
        return set()
    found = {
        as_uuid(one) for one in fetch_column(alias, statements.UNBEGUN, ids=sorted(sound.values()))
    }
    return {one for one, task_id in sound.items() if task_id in found}


def moment_of(text: str) -> datetime:
    """Return the time that a text from the database has, in UTC.

    Raises:
        InvalidSchedule: the text is not a time.
    """
    whole, _, part = str(text).partition(".")
    try:
        return datetime.fromisoformat(f"{whole}.{part:0<6}").replace(tzinfo=timezone.utc)
    except ValueError:
        raise InvalidSchedule(
            f"{text!r} is no time. Enable it again, and it gets a new one."
        ) from None


_known: dict[tuple[Any, Any, Any], ScheduleRule] = {}


def parse_known(cron: Any, every: Any, tz: Any) -> ScheduleRule:
    """Return the result of ``parse_schedule_rule``, which is slow, from a cache."""
    key = (cron, every, tz)
    if key not in _known:
        if len(_known) > 10_000:
            _known.clear()
        _known[key] = parse_schedule_rule(cron, every, tz)
    return _known[key]


def _move(
    row: ScheduleRow, waits: bool, make: Make, written: Written, *, set_forward: timedelta
) -> tuple[_Move | None, list[NewTask]]:
    rule, now = parse_known(row.cron, row.every, row.tz), moment_of(row.now)
    last_at = moment_of(row.last_at) if row.last_at else None
    if row.next_at is None:
        after = now if last_at is None else max(now, last_at)
        return _Move(row, tick_after(rule, after), last_at, row.last_task, None), []
    next_at = moment_of(row.next_at)
    since = moment_of(row.waiting_since) if waits and row.waiting_since else last_at
    if waits and next_at > now:
        return None, []
    if waits and since is not None and now - since - set_forward > ON_TIME:
        written.passed.append(row.name)
        return _Move(row, tick_after(rule, now), last_at, row.last_task, since), []
    due = _due(row, rule, next_at, now)
    tasks = make(row, due.ticks)
    if tasks:
        last_at, last_task = due.ticks[-1], tasks[-1].task_id
    else:
        last_task = row.last_task
    return _Move(row, due.next_at, last_at, last_task, since if waits else None), tasks


def _due(row: ScheduleRow, rule: ScheduleRule, next_at: datetime, now: datetime) -> Due:
    if row.catch_up not in CATCH_UP:
        raise InvalidSchedule(f"catch_up is {row.catch_up!r}: use 'last', 'all' or 'none'.")
    grace = check_grace(row.grace)
    return due_ticks(rule, next_at, now, catch_up=row.catch_up, grace=grace)


def _move_on(alias: str, moves: Sequence[_Move]) -> None:
    connection, rows, params = connections[alias], [], dict[str, Any]()

    def at(moment: datetime | None) -> Any:
        return None if moment is None else connection.ops.adapt_datetimefield_value(moment)

    for n, move in enumerate(moves):
        rows.append(
            f"(%(name_{n})s, %(task_{n})s, %(next_{n})s, %(last_{n})s, %(id_{n})s, %(since_{n})s)"
        )
        params.update({f"name_{n}": move.row.name, f"task_{n}": move.row.task_name})
        params.update({f"next_{n}": at(move.next_at), f"last_{n}": at(move.last_at)})
        params.update({f"id_{n}": move.last_task, f"since_{n}": at(move.waiting_since)})
    update = statements.MYSQL_TO_TICKED if connection.vendor == "mysql" else statements.TO_TICKED
    execute(alias, statements.TICKED.replace("{rows}", ", ".join(rows)) + update, **params)


def _of_scope(sql: str, scope: Scope) -> str:
    places = ", ".join(f"%(skipped_{n})s" for n in range(len(scope.skipped))) or "''"
    names = statements.NAMES_AND_HANDED if scope.handed else statements.NAMES
    return (
        sql.replace("<skipped>", places)
        .replace("<crons>", "" if scope.crons else "AND cron = ''")
        .replace("<names>", names)
    )


def _params(scope: Scope) -> dict[str, Any]:
    skipped = {f"skipped_{n}": name for n, name in enumerate(scope.skipped)}
    handed = {"handed": tuple(scope.handed)} if scope.handed else {}
    return {"names": tuple(scope.names), "queues": tuple(scope.queues), **handed, **skipped}
