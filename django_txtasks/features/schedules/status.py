"""Status of schedules: the state of the last task, the delay, the next ticks. The module only reads."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import islice
from typing import Any, NamedTuple

from django.db.models import Q
from django.utils.translation import gettext as _

from django_txtasks.core.declaring import registry
from django_txtasks.exceptions import TxTasksError
from django_txtasks.features.results.task_states import DONE, Representative, representatives_of
from django_txtasks.features.schedules.elsewhere import is_elsewhere
from django_txtasks.features.schedules.fan_out import Unsettled, unsettled
from django_txtasks.features.schedules.off import FOR_LONG, authors, off_for
from django_txtasks.features.schedules.rules import (
    ON_TIME,
    ScheduleRule,
    expected_by,
    number_of_ticks,
    ticks_after,
)
from django_txtasks.features.schedules.ticks import FOREIGN, Scope, parse_known
from django_txtasks.models import DatabaseNow, Outcome, Schedule


@dataclass(frozen=True)
class ScheduleStatus:
    """Status of one schedule.

    Attributes:
        late: seconds since a tick that no cleaner has written; 0: no such tick.
        state: state or outcome of its last task, or ``gone``; empty: no task yet.
        unready: the tick that should be done by the hour of ``ready_by``, and is not.
        unsettled: the batch that is the reason for ``unready``; None: the reason is the tick's own task.
        problem: the reason why the schedule does not tick as declared; empty: it does.
        lacks_function: True if the schedule is on, and this code has no task function of its name.
        off: for how long the schedule has been off because a person wants it so; None: it is on, or off otherwise.
        author: who has turned it off, and why; empty: not known, or not read (see ``with_authors``).
    """

    row: Any
    late: float
    state: str
    unready: datetime | None
    problem: str
    unsettled: Unsettled | None = None
    lacks_function: bool = False
    off: timedelta | None = None
    author: str = ""

    @property
    def is_well(self) -> bool:
        """True if the schedule is on and has no problem, or if it is off without one."""
        return not (self.problem or self.unready or self.late)

    @property
    def is_off_for_long(self) -> bool:
        """True if a person turned the schedule off more than a day ago, and may have forgotten it."""
        return self.off is not None and self.off > FOR_LONG


def status_of_schedules(alias: str, names: Collection[str] | None = None) -> list[ScheduleStatus]:
    """Return the status of these schedules, or of all, sorted by name."""
    rows = Schedule.objects.using(alias).annotate(now=DatabaseNow()).order_by("pk")
    return status_of_rows(alias, rows if names is None else rows.filter(pk__in=names))


def status_of_rows(alias: str, rows: Iterable[Any]) -> list[ScheduleStatus]:
    """Return the status of schedules.

    Args:
        rows: rows with the attribute ``now``, the database's time.
    """
    rows = list(rows)
    last_tasks = {row.last_task for row in rows if row.last_task is not None}
    found = representatives_of(alias, last_tasks)
    seen = [_Seen(row, found.get(row.last_task), _due_tick(row)) for row in rows]
    done = [one.last for one in seen if one.last is not None and one.is_done_itself]
    left = unsettled(alias, {one.task_id for one in done})
    return [_status(one, left) for one in seen]


class _Seen(NamedTuple):
    """A schedule, its last task, and the tick whose task should be done."""

    row: Any
    last: Representative | None
    tick: datetime | None

    @property
    def is_done_itself(self) -> bool:
        """True if the task of the tick has succeeded, even if its batches have not, or was handed over."""
        done = (*DONE, Outcome.HANDED)
        return self.last is not None and self.last.state in done and self.row.last_at == self.tick


def _status(seen: _Seen, unsettled: dict[uuid.UUID, Unsettled]) -> ScheduleStatus:
    row, last, tick = seen
    problem, late = row.error, 0.0
    lacks_function = row.enabled and registry.find(row.task_name) is None
    lacks_function = lacks_function and not is_elsewhere(row.task_name, row.queue_name)
    if lacks_function and not problem:
        text = _("No task function %(name)s is declared in this code.")
        problem = text % {"name": row.task_name}
    if row.enabled and row.next_at is not None and row.now - row.next_at > ON_TIME:
        late = (row.now - row.next_at).total_seconds()
    left = None
    if last is not None and seen.is_done_itself:
        left = unsettled.get(last.task_id)
        tick = tick if left else None
    state = last.state if last else ""
    return ScheduleStatus(row, late, state, tick, problem, left, lacks_function, off_for(row))


def with_authors(found: Iterable[ScheduleStatus]) -> list[ScheduleStatus]:
    """Return the statuses with who has turned schedules off. Call it outside a transaction; see ``authors``."""
    found = list(found)
    who = authors({one.row.pk: one.row.now - one.off for one in found if one.off is not None})
    return [replace(one, author=who.get(one.row.pk, "")) for one in found]


def next_ticks(row: Any, count: int = 5) -> list[datetime]:
    """Return the next ticks of a schedule; none if it is off, or if its schedule rule is invalid here."""
    rule = _rule(row)
    if rule is None or not row.enabled:
        return []
    if row.next_at is None:
        return list(islice(ticks_after(rule, row.now), count))
    return [row.next_at, *islice(ticks_after(rule, max(row.next_at, row.now)), count - 1)]


def _due_tick(row: Any) -> datetime | None:
    """Return the tick whose ``ready_by`` has passed; None: no such tick, or a later tick has a task already."""
    rule = _rule(row)
    if rule is None or not (row.ready_by and row.enabled):
        return None
    try:
        tick = expected_by(rule, row.ready_by, row.now)
    except (ValueError, TxTasksError):
        return None
    if tick is None or row.watched_from is None or tick <= row.watched_from:
        return None
    return None if row.last_at is not None and row.last_at > tick else tick


def _rule(row: Any) -> ScheduleRule | None:
    try:
        return parse_known(row.cron, row.every, row.tz)
    except TxTasksError:
        return None


def differences(rows: Iterable[Any], declared: Mapping[str, Any]) -> list[str]:
    """Return the differences between the schedules of the code and of the database, as texts."""
    by_name = {row.pk: row for row in rows}
    found = [f"{name} is missing" for name in declared if name not in by_name]
    for name, one in declared.items():
        row = by_name.get(name)
        if row is None or row.edited:
            continue
        if any(getattr(row, key) != value for key, value in one.configuration.items()):
            found.append(f"{name} differs")
    return found + [
        f"{name} is no longer declared"
        for name, row in sorted(by_name.items())
        if row.from_code and name not in declared
    ]


def ticks_between(alias: str, scope: Scope, begin: datetime, end: datetime) -> int:
    """Count the ticks of enabled schedules after ``begin`` and up to ``end``, at most 1,000 of a cron schedule."""
    rows = Schedule.objects.using(alias).filter(
        Q(task_name__in=scope.names) | Q(queue_name__in=scope.handed),
        enabled=True,
        queue_name__in=scope.queues,
    )
    count = 0
    for cron, every, tz in rows.values_list("cron", "every", "tz"):
        with suppress(TxTasksError, *FOREIGN):  # a row whose rule is invalid
            count += number_of_ticks(parse_known(cron, every, tz), begin, end)
    return count
