"""The figures of a longer time than the last hour, for a chart that a person chooses."""

from __future__ import annotations

import time
from datetime import timedelta

from django_txtasks import stats
from django_txtasks.database.transactions import is_in_test_case
from django_txtasks.overview.figures import Figures, Overview

DAY, MONTH = "day", "month"
SPANS = {DAY: timedelta(days=1), MONTH: timedelta(days=31)}
DAY_BY_HOURS = timedelta(days=1, minutes=1)
"""A little more than a day is read from rows of an hour."""
MOST_ROWS = 10_000
"""Rows of a minute that a chart of a day reads. Of more queues it reads rows of an hour, without the backlog."""
MAX_AGE_SECONDS = 60.0
_kept: dict[tuple[str, str], tuple[float, Figures]] = {}


def figures_of(found: Overview, name: str) -> Figures:
    """Return chart and releases of the last day or month, which a process reads once in ``MAX_AGE_SECONDS``.

    Args:
        found: an overview of the same database, which knows the number of queues.
        name: a key of ``SPANS``.
    """
    key, now = (found.database, name), time.monotonic()
    at, figures = _kept.get(key, (0.0, None))
    if figures is None or now - at >= MAX_AGE_SECONDS or is_in_test_case(found.database):
        figures = _read(found, name)
        _kept[key] = (now, figures)
    return figures


def forget() -> None:
    """Forget all figures."""
    _kept.clear()


def _read(found: Overview, name: str) -> Figures:
    span = SPANS[name]
    queues = len(found.queues) + found.more_queues
    if name == DAY and queues * span.total_seconds() / 60 > MOST_ROWS:
        span = DAY_BY_HOURS
    return with_releases(stats.chart(None, span, found.database), found.database)


def with_releases(chart: stats.Chart, alias: str) -> Figures:
    """Return a chart with the releases whose first worker started in its time."""
    begin = chart.points[0].starts_at
    deploys = tuple(one for one in stats.deploys(alias) if one.first_seen >= begin)
    return Figures(is_on=True, chart=chart, deploys=deploys)
