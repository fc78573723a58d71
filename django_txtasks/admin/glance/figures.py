"""The chart and the functions of the page *At a glance*."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from math import isfinite
from typing import Any, NamedTuple

from django.utils.formats import date_format, time_format
from django.utils.timezone import localtime
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy as _lazy

from django_txtasks.admin import shown
from django_txtasks.admin.glance import charts
from django_txtasks.admin.glance.queues import bars_of
from django_txtasks.admin.glance.words import Links, number
from django_txtasks.features.figures.adding_up import DAY as DAY_SECONDS
from django_txtasks.features.figures.adding_up import HOUR as HOUR_SECONDS
from django_txtasks.features.figures.adding_up import MINUTE, TEN_MINUTES
from django_txtasks.features.figures.histogram import BOUNDS
from django_txtasks.models import Status
from django_txtasks.overview import Count, Overview, spans
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


class Span(NamedTuple):
    """A time that the chart can show.

    Attributes:
        title: of the chart; ``sentence``: its text for people who do not see it.
    """

    label: Any
    title: Any
    sentence: Any


HOUR = "hour"
SPANS = {
    HOUR: Span(
        _lazy("hour"),
        _lazy("Last hour"),
        _lazy("In the last hour %(done)s attempts succeeded and %(failed)s failed."),
    ),
    spans.DAY: Span(
        _lazy("day"),
        _lazy("Last day"),
        _lazy("In the last day %(done)s attempts succeeded and %(failed)s failed."),
    ),
    spans.MONTH: Span(
        _lazy("month"),
        _lazy("Last 31 days"),
        _lazy("In the last 31 days %(done)s attempts succeeded and %(failed)s failed."),
    ),
}
_IN_A_STEP = {
    MINUTE: _lazy("most in a minute: %(n)s"),
    TEN_MINUTES: _lazy("most in 10 minutes: %(n)s"),
    HOUR_SECONDS: _lazy("most in an hour: %(n)s"),
    DAY_SECONDS: _lazy("most in a day: %(n)s"),
}
MOST_ROWS_OF_LABELS = 3
PERCENT_PER_CHARACTER = 1.9
"""Width of a letter of a label on a phone, as a share of the chart."""


def chart(found: Overview, name: str = HOUR) -> dict[str, Any] | None:
    """Return the chart of a time, with a sentence for people who do not see it; None if nothing is counted.

    Args:
        name: a key of ``SPANS``; with any other name it is the last hour.
    """
    is_long = found.figures.is_on and name in spans.SPANS
    figures = spans.figures_of(found, name) if is_long else found.figures
    span, chart = SPANS[name if is_long else HOUR], figures.chart
    if chart is None:
        return None
    bars = bars_of(chart.points, [one.due for one in chart.points])
    starts = [one.starts_at for one in chart.points]
    marks = [
        _mark(place, bars.width, one.release)
        for one in figures.deploys
        if (place := charts.place_of(one.first_seen, starts, chart.step)) is not None
    ]
    done = sum(one.succeeded for one in chart.points)
    failed = sum(one.failed + one.died for one in chart.points)
    label = _date if chart.step >= DAY_SECONDS else _hour
    return {
        "title": span.title,
        "spans": [(one.label, key, one is span) for key, one in SPANS.items()],
        "bars": bars,
        "marks": marks,
        "labels": _in_rows(marks),
        "first": label(starts[0]),
        "middle": label(starts[len(starts) // 2]),
        "most": _IN_A_STEP[chart.step] % {"n": number(bars.most)},
        "most_due": number(bars.most_of_line),
        "sentence": span.sentence % {"done": number(done), "failed": number(failed)},
        "is_behind": chart.is_behind,
    }


def cause(one: Cause, now: datetime, links: Links) -> dict[str, Any]:
    """Return a cause. Its first and last time are those at which its tasks were due."""
    filters = {"queue": one.queue} | (
        {"cause": str(one.fingerprint)} if one.fingerprint is not None else {"state": Status.DEAD}
    )
    return {
        "exception": one.exception.removeprefix("builtins.") or _("unknown error"),
        "task": one.task,
        "queue": one.queue,
        "last_line": shown.line(one.error if one.differs else one.last_line),
        "since": one.since,
        "url": links.tasks(**filters),
        "cells": [
            (_("Dead"), _number(one.dead)),
            (_("Retrying"), _number(one.retrying)),
            (_("First due"), shown.age(one.first, now)),
            (_("Last due"), shown.age(one.last, now)),
        ],
    }


def _mark(place: float, width: int, release: str) -> Mark:
    percent = 100 * place / width
    anchor = "start" if percent < 20 else "end" if percent > 80 else "middle"
    label = _("release %(name)s") % {"name": release}
    return Mark(f"{place:.1f}", f"{percent:.1f}", anchor, label)


def _in_rows(marks: Sequence[Mark]) -> list[list[Mark]]:
    """Place labels into rows, so that they do not overlap on a phone. Old ones may have no room."""
    rows: list[list[Mark]] = []
    for mark in reversed(marks):
        room = [row for row in rows if not any(_touch(mark, other) for other in row)]
        if not room and len(rows) < MOST_ROWS_OF_LABELS:
            rows.append([])
            room = rows[-1:]
        if room:
            room[0].append(mark)
    return rows


def _touch(one: Mark, other: Mark) -> bool:
    (left, right), (other_left, other_right) = _extent(one), _extent(other)
    return left < other_right and other_left < right


def _extent(mark: Mark) -> tuple[float, float]:
    """Return where a label begins and ends, in percent."""
    width, place = PERCENT_PER_CHARACTER * len(mark.label), float(mark.percent)
    left = place - {"start": 0.0, "middle": width / 2, "end": width}[mark.anchor]
    return left, left + width


def _number(tasks: int) -> str:
    return number(Count(tasks, tasks >= MOST)) if tasks else "·"


def _hour(moment: datetime) -> str:
    return time_format(localtime(moment), "H:i")


def _date(moment: datetime) -> str:
    """Return the day. The figures of a day begin at midnight in UTC."""
    return date_format(moment, "MONTH_DAY_FORMAT")


def functions(found: Overview, links: Links) -> list[dict[str, Any]]:
    functions = found.figures.functions
    most = max((one.run_seconds for one in functions), default=0.0)
    return [
        {
            "name": one.task,
            "url": links.tasks(task=one.task),
            "percent": round(100 * one.run_seconds / most) if most else 0,
            "cells": _cells_of_function(one),
        }
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
    sign, end = ("≤", seconds) if isfinite(seconds) else (">", BOUNDS[-1])
    return f"{sign} {shown.short_span(timedelta(seconds=end))}"
