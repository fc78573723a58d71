"""The ticks of schedules, as rows: each once, whoever writes it, however many do.

A tick is written a few seconds ahead, with its instant as ``run_after``: in one transaction, in which the
schedule's row is locked, with the step to the next tick. There is no leader, and nothing is kept besides.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from typing import Any, NamedTuple

from django.db import connections

from django_txtasks.database.execute import as_uuid, execute, fetch, fetch_column, is_uuid
from django_txtasks.database.transactions import own_transaction
from django_txtasks.exceptions import InvalidSchedule, TxTasksError, UnknownZone
from django_txtasks.lifecycle.enqueueing import NewTask, insert
from django_txtasks.rules.schedules import (
    CATCH_UP,
    ON_TIME,
    Due,
    Rule,
    check_grace,
    due_ticks,
    parse_rule,
    tick_after,
)
from django_txtasks.schedules import statements

AHEAD = timedelta(seconds=5)
"""How long before its instant a tick's task is written."""
SCHEDULES_PER_BATCH = 250
"""Schedules that one transaction moves on."""
TASKS_PER_BATCH = 2000
"""Tasks after which a transaction ends: more than one schedule has only where missed ones are made up for."""


FOREIGN = (OverflowError, ValueError, TypeError)


class Scope(NamedTuple):
    """Whose ticks a cleaner may write: an older release knows neither new functions nor new queues.

    Attributes:
        names: of the task functions that its code declares.
        crons: it can read cron.
        skipped: names of schedules that it could not write a moment ago.
    """

    names: Sequence[str]
    queues: Sequence[str]
    crons: bool = True
    skipped: Sequence[str] = ()


class ScheduleRow(NamedTuple):
    """The row of a schedule, as the database has it: anybody may have written it.

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
"""Makes the tasks of these ticks."""


@dataclass
class Written:
    """What one transaction has written.

    Attributes:
        tasks: (id, queue) of each.
        passed: schedules whose tick has passed without a task, since one of them still waits.
        broken: (name, why) of schedules that were disabled.
        skipped: (name, why) of those that this process cannot write.
        moved: how many schedules have gone on, or were left.
    """

    tasks: list[tuple[uuid.UUID, str]] = field(default_factory=list)
    passed: list[str] = field(default_factory=list)
    broken: list[tuple[str, str]] = field(default_factory=list)
    skipped: list[tuple[str, str]] = field(default_factory=list)
    moved: int = 0


class _Step(NamedTuple):
    """What becomes of a schedule's row."""

    row: ScheduleRow
    next_at: datetime
    last_at: datetime | None
    last_task: Any
    waiting_since: datetime | None


class NextTick(NamedTuple):
    """The first tick of all schedules.

    Attributes:
        wait: seconds until then; zero or less = now; None = there is none.
        now: the database's time; None = there is no schedule to ask it with.
    """

    wait: float | None
    now: datetime | None


def next_tick(alias: str, scope: Scope) -> NextTick:
    """Look for the first tick of all."""
    if not scope.names:
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
    stepped: timedelta = timedelta(0),
) -> Written:
    """Write the tasks of the ticks that are due, or soon will be, of some schedules; in a transaction of its own.

    Args:
        limit: how long this process may freeze in it; None = in a test's transaction, which gets no limits.
        stepped: by how much the database's clock went forward a moment ago. No task has waited for that long.
    """
    written = Written()
    free = not connections[alias].in_atomic_block
    with own_transaction(alias, limit=limit, read_committed=free):
        rows = [
            ScheduleRow(*row)
            for row in fetch(
                alias, _of_scope(statements.DUE_SCHEDULES, scope),
                delay=AHEAD.total_seconds(), limit=SCHEDULES_PER_BATCH, **_params(scope),
            )
        ]  # fmt: skip
        unbegun = unbegun_of(alias, [row.last_task for row in rows])
        steps: list[_Step] = []
        tasks: list[NewTask] = []
        for row in rows:
            if len(tasks) >= TASKS_PER_BATCH:
                break
            try:
                waits = row.last_task in unbegun
                step, new = _step(row, waits, make, written, stepped=stepped)
            except UnknownZone as error:  # this host's list of zones may be an old one
                written.skipped.append((row.name, str(error)))
            except InvalidSchedule as error:
                written.broken.append((row.name, str(error)))
            except TxTasksError as error:
                written.skipped.append((row.name, str(error)))
            except FOREIGN as error:  # whatever somebody has written there
                written.broken.append((row.name, f"{type(error).__name__}: {error}"))
            else:
                tasks += new
                steps += [step] if step is not None else []
        if tasks:
            insert(connections[alias], tasks)
        if steps:
            _move_on(alias, steps)
        for name, why in written.broken:
            execute(alias, statements.DISABLE_SCHEDULE, name=name, error=why[:500])
        for name, why in written.skipped:
            execute(alias, statements.NOTE_OF_SCHEDULE, name=name, error=why[:500])
    written.moved = len(steps) + len(written.broken) + len(written.skipped)
    written.tasks = [(task.task_id, task.defaults.queue_name) for task in tasks]
    return written


def tell_unready(alias: str, name: str, tick: datetime) -> bool:
    """Note that it is told of a tick that it is not done; False = somebody has told it."""
    at = connections[alias].ops.adapt_datetimefield_value(tick)
    return bool(execute(alias, statements.TELL_UNREADY, name=name, tick=at))


def unbegun_of(alias: str, ids: Iterable[Any]) -> set[Any]:
    """Return which of these tasks no worker has begun; ids as the database gives them."""
    sound = {one: as_uuid(one) for one in ids if one is not None and is_uuid(one)}
    if not sound:
        return set()
    found = {
        as_uuid(one) for one in fetch_column(alias, statements.UNBEGUN, ids=sorted(sound.values()))
    }
    return {one for one, task_id in sound.items() if task_id in found}


def moment_of(text: str) -> datetime:
    """Return a time of the database, in UTC.

    Raises:
        InvalidSchedule: it is none.
    """
    whole, _, part = str(text).partition(".")
    try:
        return datetime.fromisoformat(f"{whole}.{part:0<6}").replace(tzinfo=timezone.utc)
    except ValueError:
        raise InvalidSchedule(
            f"{text!r} is no time. Enable it again, and it gets a new one."
        ) from None


def rule_of(row: ScheduleRow) -> Rule:
    """Return when a schedule's ticks are.

    Raises:
        InvalidSchedule, LibraryMissing: see ``parse_rule``.
    """
    return parse_known(row.cron, row.every, row.tz)


_known: dict[tuple[Any, Any, Any], Rule] = {}


def parse_known(cron: Any, every: Any, tz: Any) -> Rule:
    """Return what ``parse_rule`` does, which takes a while, and remember it."""
    key = (cron, every, tz)
    if key not in _known:
        if len(_known) > 10_000:
            _known.clear()
        _known[key] = parse_rule(cron, every, tz)
    return _known[key]


def _step(
    row: ScheduleRow, waits: bool, make: Make, written: Written, *, stepped: timedelta
) -> tuple[_Step | None, list[NewTask]]:
    rule, now = rule_of(row), moment_of(row.now)
    last_at = moment_of(row.last_at) if row.last_at else None
    if row.next_at is None:
        after = now if last_at is None else max(now, last_at)
        return _Step(row, tick_after(rule, after), last_at, row.last_task, None), []
    next_at = moment_of(row.next_at)
    since = moment_of(row.waiting_since) if waits and row.waiting_since else last_at
    if waits and next_at > now:
        return None, []
    if waits and since is not None and now - since - stepped > ON_TIME:
        written.passed.append(row.name)
        return _Step(row, tick_after(rule, now), last_at, row.last_task, since), []
    due = _due(row, rule, next_at, now)
    tasks = make(row, due.ticks)
    if tasks:
        last_at, last_task = due.ticks[-1], tasks[-1].task_id
    else:
        last_task = row.last_task
    return _Step(row, due.next_at, last_at, last_task, since if waits else None), tasks


def _due(row: ScheduleRow, rule: Rule, next_at: datetime, now: datetime) -> Due:
    if row.catch_up not in CATCH_UP:
        raise InvalidSchedule(f"catch_up is {row.catch_up!r}: use 'last', 'all' or 'none'.")
    grace = check_grace(row.grace)
    return due_ticks(rule, next_at, now, catch_up=row.catch_up, grace=grace)


def _move_on(alias: str, steps: Sequence[_Step]) -> None:
    connection, rows, params = connections[alias], [], dict[str, Any]()

    def at(moment: datetime | None) -> Any:
        return None if moment is None else connection.ops.adapt_datetimefield_value(moment)

    for n, step in enumerate(steps):
        rows.append(
            f"(%(name_{n})s, %(task_{n})s, %(next_{n})s, %(last_{n})s, %(id_{n})s, %(since_{n})s)"
        )
        params.update({f"name_{n}": step.row.name, f"task_{n}": step.row.task_name})
        params.update({f"next_{n}": at(step.next_at), f"last_{n}": at(step.last_at)})
        params.update({f"id_{n}": step.last_task, f"since_{n}": at(step.waiting_since)})
    update = statements.MYSQL_TO_TICKED if connection.vendor == "mysql" else statements.TO_TICKED
    execute(alias, statements.TICKED.replace("{rows}", ", ".join(rows)) + update, **params)


def _of_scope(sql: str, scope: Scope) -> str:
    places = ", ".join(f"%(skipped_{n})s" for n in range(len(scope.skipped))) or "''"
    return sql.replace("<skipped>", places).replace(
        "<crons>", "" if scope.crons else "AND cron = ''"
    )


def _params(scope: Scope) -> dict[str, Any]:
    skipped = {f"skipped_{n}": name for n, name in enumerate(scope.skipped)}
    return {"names": tuple(scope.names), "queues": tuple(scope.queues), **skipped}
