"""Lanes as people see them: their limits, what runs, what waits, and when the next task may start."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import Count

from django_txtasks.conf import get_config
from django_txtasks.lane_rules import LaneRule
from django_txtasks.lifecycle import lanes, statements
from django_txtasks.lifecycle.execute import fetch_as
from django_txtasks.lifecycle.lanes import LaneRow
from django_txtasks.models import Lane, Status, Task

MOST_LANES = 200
"""Lanes that are shown together."""
MOST_WAITING = 1_000
"""Waiting tasks of a lane that are counted; more are "1000 or more"."""


@dataclass(frozen=True)
class LaneStatus:
    """How things are in a lane.

    Attributes:
        rule: the limits that hold; those of the settings, but for what a person has changed.
        is_known: the settings have a rule for it.
        running: claimed tasks.
        waiting: pending tasks, due or not; up to ``MOST_WAITING``.
        due: some of them are due.
        opens_in: seconds until its rate or a hold lets the next one start; zero = now; None = not by time alone.
        paused_at: None = it is not paused.
    """

    name: str
    rule: LaneRule
    is_known: bool
    running: int
    waiting: int
    due: bool
    opens_in: float | None
    paused_at: datetime | None = None
    paused_by: str = ""
    reason: str = ""

    @property
    def limits(self) -> str:
        """Its limits, in a few words."""
        rule, words = self.rule, []
        if rule.at_most is not None:
            words.append(f"{rule.at_most} at once")
        if rule.rate is not None:
            words.append(rate_text(rule.rate))
        if rule.burst is not None:
            words.append(f"bursts of {rule.burst}")
        if rule.weight != 1:
            words.append(f"weight {rule.weight:g}")
        return ", ".join(words) or "none"

    @property
    def is_full(self) -> bool:
        """Whether as many run as may."""
        return self.rule.at_most is not None and self.running >= self.rule.at_most


def rate_text(rate: float) -> str:
    """Return a rate as people write it."""
    for seconds, unit in ((1, "s"), (60, "m"), (3600, "h"), (86400, "d")):
        number = round(rate * seconds, 6)
        if number >= 1 and number == int(number):
            return f"{int(number)}/{unit}"
    return f"{rate * 86400:g}/d"


def known_lanes(alias: str) -> list[str]:
    """Return names of lanes that have a row, or in which something waits: the first ones."""
    rows = Lane.objects.using(alias).order_by("pk").values_list("pk", flat=True)[:MOST_LANES]
    found, _ = lanes.look(alias, "")
    return sorted({*rows, *(one.lane for one in found)})[:MOST_LANES]


def status_of_lanes(alias: str, names: Collection[str]) -> list[LaneStatus]:
    """Return how things are in these lanes, sorted by name. It reads a bounded number of rows, and locks none."""
    wanted = sorted(set(names))
    if not wanted:
        return []
    sql = statements.LOCK_LANES.replace("{skip_locked}", "")
    rows = {row.name: row for row in fetch_as(LaneRow, alias, sql, names=wanted)}
    people = {row.pk: row for row in Lane.objects.using(alias).filter(pk__in=wanted)}
    running = _running(alias, wanted)
    return [
        _status(alias, name, rows.get(name), people.get(name), running.get(name, 0))
        for name in wanted
    ]


def _running(alias: str, names: Collection[str]) -> dict[str, int]:
    claimed = Task.objects.using(alias).filter(status=Status.CLAIMED, lane__in=names, lane__gt="")
    return dict(claimed.values_list("lane").annotate(count=Count("id")).order_by())


def _status(alias: str, name: str, row: LaneRow | None, person: Any, running: int) -> LaneStatus:
    of_settings = get_config().lanes.find(name)
    rule = of_settings or LaneRule()
    opens_in: float | None = 0.0
    if row is not None:
        rule = rule.changed_by(row.override)
        _, wait = lanes.allowed_now(row, rule, running)
        opens_in = None if wait == lanes.FULL else wait
    waiting = Task.objects.using(alias).filter(status=Status.PENDING, lane=name)
    return LaneStatus(
        name=name,
        rule=rule,
        is_known=of_settings is not None,
        running=running,
        waiting=waiting[:MOST_WAITING].count(),
        due=any(one.wait <= 0 for one in lanes.buckets_of(alias, name)),
        opens_in=opens_in,
        paused_at=getattr(person, "paused_at", None),
        paused_by=getattr(person, "paused_by", ""),
        reason=getattr(person, "reason", ""),
    )
