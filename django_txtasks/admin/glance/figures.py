"""The chart and the functions of the page *At a glance*."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import NamedTuple

from django.utils.formats import time_format
from django.utils.timezone import localtime
from django.utils.translation import gettext as _

from django_txtasks.admin import shown
from django_txtasks.admin.glance import charts
from django_txtasks.admin.glance.queues import bars_of
from django_txtasks.admin.glance.words import Links, number
from django_txtasks.models import Status
from django_txtasks.overview import Count, Overview
from django_txtasks.stats import Cause, FunctionStats, Histogram
from django_txtasks.stats.by_cause import MOST


class Mark(NamedTuple):
    """A release on the chart.

    Attributes:
        place: on the horizontal axis, in units of the view box; ``percent``: the same of the width.
        anchor: the end of the label that is at this place: ``start``, ``middle`` or ``end``.
    """

    place: str
    percent: str
    anchor: str
    label: str


class ShownChart(NamedTuple):
    """The chart of the last hour, with a sentence for people who do not see it."""

    bars: charts.Bars
    marks: list[Mark]
    first: str
    middle: str
    most: str
    most_due: str
    sentence: str
    is_behind: bool


class ShownCause(NamedTuple):
    """Why tasks have failed, with the list of these tasks."""

    exception: str
    task: str
    queue: str
    last_line: str
    since: str
    url: str
    cells: list[tuple[str, str]]


class ShownFunction(NamedTuple):
    """A task function by the time that it used."""

    name: str
    url: str
    percent: int
    cells: list[tuple[str, str]]


def chart(found: Overview) -> ShownChart | None:
    """Return the chart of the last hour; None if nothing is counted."""
    chart = found.figures.chart
    if chart is None:
        return None
    bars = bars_of(chart.points, [one.due for one in chart.points])
    starts = [one.starts_at for one in chart.points]
    marks = [
        _mark(place, bars.width, one.release)
        for one in found.figures.deploys
        if (place := charts.place_of(one.first_seen, starts, chart.step)) is not None
    ]
    done = sum(one.succeeded for one in chart.points)
    failed = sum(one.failed + one.died for one in chart.points)
    sentence = _("In the last hour %(done)s attempts succeeded and %(failed)s failed.") % {
        "done": number(done),
        "failed": number(failed),
    }
    return ShownChart(
        bars=bars,
        marks=marks,
        first=_hour(starts[0]),
        middle=_hour(starts[len(starts) // 2]),
        most=number(bars.most),
        most_due=number(bars.most_of_line),
        sentence=sentence,
        is_behind=chart.is_behind,
    )


def cause(one: Cause, now: datetime, links: Links) -> ShownCause:
    """Return a cause. Its first and last time are those at which its tasks were due."""
    filters = {"queue": one.queue} | (
        {"cause": str(one.fingerprint)} if one.fingerprint is not None else {"state": Status.DEAD}
    )
    return ShownCause(
        exception=one.exception.removeprefix("builtins.") or _("unknown error"),
        task=one.task,
        queue=one.queue,
        last_line=shown.line(one.last_line),
        since=one.since,
        url=links.tasks(**filters),
        cells=[
            (_("Dead"), _number(one.dead)),
            (_("Retrying"), _number(one.retrying)),
            (_("First due"), shown.age(one.first, now)),
            (_("Last due"), shown.age(one.last, now)),
        ],
    )


def _mark(place: float, width: int, release: str) -> Mark:
    percent = 100 * place / width
    anchor = "start" if percent < 20 else "end" if percent > 80 else "middle"
    label = _("release %(name)s") % {"name": release}
    return Mark(f"{place:.1f}", f"{percent:.1f}", anchor, label)


def _number(tasks: int) -> str:
    return number(Count(tasks, tasks >= MOST)) if tasks else "·"


def _hour(moment: datetime) -> str:
    return time_format(localtime(moment), "H:i")


def functions(found: Overview, links: Links) -> list[ShownFunction]:
    functions = found.figures.functions
    most = max((one.run_seconds for one in functions), default=0.0)
    return [
        ShownFunction(
            name=one.task,
            url=links.tasks(task=one.task),
            percent=round(100 * one.run_seconds / most) if most else 0,
            cells=_cells_of_function(one),
        )
        for one in functions
    ]


def _cells_of_function(one: FunctionStats) -> list[tuple[str, str]]:
    failed = one.failed + one.died
    runs = one.succeeded + failed + one.other
    return [
        (_("Attempts"), number(runs)),
        (_("Failed"), shown.percent(failed / runs) if runs else shown.EMPTY),
        (_("Wait, 95 %"), _quantile(one.wait, 0.95)),
        (_("Run, 50 %"), _quantile(one.run, 0.5)),
        (_("Run, 95 %"), _quantile(one.run, 0.95)),
    ]


def _quantile(histogram: Histogram, share: float) -> str:
    seconds = histogram.quantile(share)
    if seconds is None:
        return shown.EMPTY
    return f"≤ {shown.short_span(timedelta(seconds=seconds))}"
