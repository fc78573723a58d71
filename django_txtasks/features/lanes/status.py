"""State of lanes for people: limits, running and waiting tasks, and when the next task may start."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db import connections
from django.db.models import Count
from django.utils.translation import gettext as _

from django_txtasks.conf import get_config
from django_txtasks.database.execute import fetch, fetch_as
from django_txtasks.features.lanes import claiming as lanes
from django_txtasks.features.lanes import statements
from django_txtasks.features.lanes.buckets import look
from django_txtasks.features.lanes.claiming import LaneRow
from django_txtasks.features.lanes.rules import LaneRule
from django_txtasks.models import Lane, Status, Task

MOST_LANES = 200
"""Number of lanes on one page."""
MOST_WAITING = 1_000
"""Number of waiting tasks that are counted in one lane; more are shown as "1000 or more"."""


@dataclass(frozen=True)
class LaneStatus:
    """State of one lane.

    Attributes:
        rule: the limits in force: the settings, overridden by the limits that a person has set.
        is_known: whether the settings have a rule for the lane.
        running: number of claimed tasks.
        waiting: number of pending tasks, due or not; up to ``MOST_WAITING``.
        opens_in: seconds until its rate lets the next task start; zero = now.
        held_for: rest of the wait that a task of the lane has asked for, in seconds.
        paused_at: None = not paused.
    """

    name: str
    rule: LaneRule
    is_known: bool
    running: int
    waiting: int
    opens_in: float = 0.0
    held_for: float = 0.0
    paused_at: datetime | None = None
    paused_by: str = ""
    reason: str = ""

    @property
    def limits(self) -> str:
        """The limits in a few words."""
        rule, words = self.rule, []
        if rule.at_most is not None:
            words.append(_("%(n)s at once") % {"n": rule.at_most})
        if rule.rate is not None:
            words.append(rate_text(rule.rate))
        if rule.burst is not None:
            words.append(_("bursts of %(n)s") % {"n": rule.burst})
        if rule.weight != 1:
            words.append(_("weight %(n)s") % {"n": f"{rule.weight:g}"})
        return ", ".join(words) or _("none")

    @property
    def may_have_more(self) -> bool:
        """True if more tasks than ``waiting`` may wait, because they are counted up to a limit."""
        return self.waiting >= MOST_WAITING

    @property
    def is_full(self) -> bool:
        """True if the lane's limit on running tasks is reached."""
        return self.rule.at_most is not None and self.running >= self.rule.at_most


def rate_text(rate: float) -> str:
    """Return a rate as text, such as ``5/s`` or ``100/h``."""
    for seconds, unit in ((1, "s"), (60, "m"), (3600, "h"), (86400, "d")):
        number = round(rate * seconds, 6)
        if number >= 1 and number == int(number):
            return f"{int(number)}/{unit}"
    return f"{rate * 86400:.12g}/d"


def known_lanes(alias: str) -> list[str]:
    """Return the first names of lanes that have a row or waiting tasks."""
    rows = Lane.objects.using(alias).order_by("pk").values_list("pk", flat=True)[:MOST_LANES]
    found, _last = look(alias, "")
    return sorted({*rows, *(one.lane for one in found)})[:MOST_LANES]


def status_of_lanes(alias: str, names: Collection[str]) -> list[LaneStatus]:
    """Return the state of these lanes, sorted by name. It reads a bounded number of rows and locks none."""
    wanted = sorted(set(names))
    if not wanted:
        return []
    sql = statements.LOCK_LANES.replace("{skip_locked}", "")
    rows = {row.name: row for row in fetch_as(LaneRow, alias, sql, names=wanted)}
    people = {row.pk: row for row in Lane.objects.using(alias).filter(pk__in=wanted)}
    running, waiting = _running(alias, wanted), waiting_in(alias, wanted)
    return [
        _status(name, rows.get(name), people.get(name), running.get(name, 0), waiting[name])
        for name in wanted
    ]


def _running(alias: str, names: Collection[str]) -> dict[str, int]:
    claimed = Task.objects.using(alias).filter(status=Status.CLAIMED, lane__in=names, lane__gt="")
    return dict(claimed.values_list("lane").annotate(count=Count("id")).order_by())


def waiting_in(alias: str, names: Sequence[str], most: int = MOST_WAITING) -> dict[str, int]:
    """Count the waiting tasks of each lane, up to ``most``, in one statement."""
    if not names:
        return {}
    is_postgres = connections[alias].vendor == "postgresql"
    start = statements.POSTGRES_START_OF_LANE if is_postgres else statements.START_OF_LANE
    sql = statements.WAITING_IN_LANE.replace("<start>", start)
    params = {f"lane_{n}": name for n, name in enumerate(names)}
    counts = [
        sql.replace("<lane>", f"%({name})s").replace("<number>", str(n))
        for n, name in enumerate(params)
    ]
    rows = fetch(alias, " UNION ALL ".join(counts), limit=most, **params)
    return {names[int(number)]: int(count) for number, count in rows}


def _status(name: str, row: LaneRow | None, person: Any, running: int, waiting: int) -> LaneStatus:
    of_settings = get_config().lanes.find(name)
    rule = of_settings or LaneRule()
    opens_in = held_for = 0.0
    if row is not None:
        rule = rule.changed_by(row.override)
        held_for = lanes.held_for(row)
        if rule.rate is not None:
            opens_in = max(0.0, 1 - lanes.permits_now(row, rule)) / rule.rate
    return LaneStatus(
        name=name,
        rule=rule,
        is_known=of_settings is not None,
        running=running,
        waiting=waiting,
        opens_in=opens_in,
        held_for=held_for,
        paused_at=getattr(person, "paused_at", None),
        paused_by=getattr(person, "paused_by", ""),
        reason=getattr(person, "reason", ""),
    )
