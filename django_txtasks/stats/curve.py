"""The figures of a queue over time."""

from __future__ import annotations

from collections import defaultdict
from datetime import timedelta
from typing import Any, NamedTuple

from django_txtasks.database.execute import fetch_value
from django_txtasks.features.figures.adding_up import DAY, EPOCH, HOUR, MINUTE, TEN_MINUTES
from django_txtasks.stats.reading import NOW, RAW_SINCE, Row, check_span, rows
from django_txtasks.stats.records import Chart, Point


class _Scale(NamedTuple):
    """How a chart is read: from rows of this width, added up to steps of ``step`` seconds."""

    longest: timedelta
    width: int
    step: int


SCALES = (
    _Scale(timedelta(hours=2), MINUTE, MINUTE),
    _Scale(timedelta(days=1), MINUTE, TEN_MINUTES),
    _Scale(timedelta(days=7), HOUR, HOUR),
    _Scale(timedelta(days=400), DAY, DAY),
)
SINCE = "AND task_name = '' AND queue_name > '' AND starts_at > {ago}"
OF_QUEUE = " AND queue_name = %(queue)s"


def chart(queue: str | None, span: timedelta, using: str = "default") -> Chart:
    """Return the figures of a queue in the last ``span``; None = of all queues together.

    A point is 1 minute long up to a span of 2 hours, 10 minutes up to a day, 1 hour up to 7 days, then a day.

    Raises:
        InvalidOption: the span is no time for which figures are kept.
    """
    only, params = ("", {}) if queue is None else (OF_QUEUE, {"queue": queue})
    read = _read(span, using, only, **params)
    return read.chart_of(queue, [one for one in read.rows if queue in (None, one.queue)])


def charts(span: timedelta, using: str = "default") -> dict[str | None, Chart]:
    """Return the charts of all queues that have figures, by queue, read at once; None = all queues together.

    Raises:
        InvalidOption: the span is no time for which figures are kept.
    """
    read = _read(span, using, "")
    by_queue: dict[str, list[Row]] = defaultdict(list)
    for one in read.rows:
        by_queue[one.queue].append(one)
    found: dict[str | None, Chart] = {None: read.chart_of(None, read.rows)}
    return found | {
        queue: read.chart_of(queue, by_queue[queue]) for queue in sorted(by_queue) if queue
    }


class _Read(NamedTuple):
    """The rows of a span, and the start of each step in seconds since 1970."""

    rows: list[Row]
    starts: range
    is_behind: bool

    def chart_of(self, queue: str | None, found: list[Row]) -> Chart:
        """Return the chart of one queue from its rows; None = of all queues together."""
        step, last = self.starts.step, self.starts[-1]
        by_start: dict[int, list[Row]] = defaultdict(list)
        for one in found:
            by_start[min(last, _start(float(one.at), step))].append(one)
        points = tuple(_point(start, by_start[start]) for start in self.starts)
        return Chart(queue, step, points, self.is_behind)


def _read(span: timedelta, using: str, only: str, **params: Any) -> _Read:
    check_span(span)
    scale = next(one for one in SCALES if span <= one.longest)
    params |= {"width": scale.width, "age": span.total_seconds() + scale.step}
    read, is_behind = rows(using, added_up=SINCE + only, raw=RAW_SINCE + only, **params)
    found = [one for one in read if one.is_of_tasks]
    now = float(fetch_value(using, NOW))
    first, last = _start(now - span.total_seconds(), scale.step), _start(now, scale.step)
    return _Read(found, range(first, last + 1, scale.step), is_behind)


def _start(seconds: float, step: int) -> int:
    # SQLite's times are floats of days, a few microseconds beside the second that was meant
    return int(seconds + 0.001) // step * step


def _point(start: int, found: list[Row]) -> Point:
    due, oldest = _backlog(found)
    return Point(
        starts_at=EPOCH + timedelta(seconds=start),
        succeeded=sum(one.counts.succeeded for one in found),
        failed=sum(one.counts.failed for one in found),
        died=sum(one.counts.died for one in found),
        other=sum(one.counts.other for one in found),
        due=due,
        oldest=oldest,
    )


def _backlog(found: list[Row]) -> tuple[int | None, float | None]:
    """Return the last noted backlog of each queue, together."""
    last: dict[str, Row] = {}
    for one in sorted(found, key=lambda one: float(one.at)):
        if one.due is not None:
            last[one.queue] = one
    if not last:
        return None, None
    return sum(one.due or 0 for one in last.values()), max(
        one.oldest or 0.0 for one in last.values()
    )
