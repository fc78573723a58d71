"""The figures of task functions in the last time."""

from __future__ import annotations

from datetime import timedelta

from django_txtasks.counts.adding_up import DAY, HOUR, TEN_MINUTES
from django_txtasks.stats.reading import by_name, check_span, function_stats, rows
from django_txtasks.stats.records import Functions

LONGEST = {TEN_MINUTES: timedelta(hours=3), HOUR: timedelta(days=7)}
"""Longest span that is read from rows of each width, so that few rows are read. Longer ones are read from days."""
SINCE = "AND task_name > '' AND starts_at > {ago}"
RAW_SINCE = "AND at > {ago}"


def functions(span: timedelta, using: str = "default") -> Functions:
    """Return the figures of each task function in the last ``span``.

    It is read from whole rows of 10 minutes, an hour or a day, so it begins up to one row earlier.

    Raises:
        InvalidOption: the span is no time for which figures are kept.
    """
    check_span(span)
    width = next((width for width, longest in LONGEST.items() if span <= longest), DAY)
    age = span.total_seconds() + width
    found, is_behind = rows(using, added_up=SINCE, raw=RAW_SINCE, width=width, age=age)
    stats = [function_stats(name, counts) for name, counts in by_name(found).items()]
    stats.sort(key=lambda one: (-one.run_seconds, one.queue, one.task))
    return Functions(tuple(stats), is_behind)
