"""Lanes that run as many tasks as they may while others wait, with the task that has run in each for longest."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from django.db.models import QuerySet
from django.db.models.functions import Coalesce

from django_txtasks.core.ground.wording import in_english, span
from django_txtasks.features.lanes.status import MOST_LANES, status_of_lanes
from django_txtasks.insight.finding import MAX_COUNTED_ROWS
from django_txtasks.models import Status, Task


def full_lanes(alias: str, tasks: QuerySet[Task], now: datetime) -> list[str]:
    """Return a text for each full lane in which tasks wait; a paused lane is left out."""
    with in_english():
        return list(_full_lanes(alias, tasks, now))


def _full_lanes(alias: str, tasks: QuerySet[Task], now: datetime) -> Iterator[str]:
    claimed = tasks.filter(status=Status.CLAIMED, lane__gt="").order_by("worker")
    claimed = claimed.annotate(since=Coalesce("started_at", "claimed_at"))
    rows = claimed.values_list("lane", "pk", "task_name", "since")[:MAX_COUNTED_ROWS]
    newest_first = sorted(rows, key=lambda row: row[3] or now, reverse=True)
    longest = {lane: task for lane, *task in newest_first}
    for one in status_of_lanes(alias, sorted(longest)[:MOST_LANES]):
        if one.is_full and one.waiting and one.paused_at is None:
            task_id, name, since = longest[one.name]
            more = "+" * one.may_have_more
            yield (
                f"{one.name} ({one.limits}): {one.waiting}{more} wait, {name} {task_id} has run for "
                f"{span(now - (since or now))}"
            )
