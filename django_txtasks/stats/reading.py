"""Figures from rows that are added up and rows that are not added up yet, in one statement."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Any, NamedTuple

from django_txtasks.conf import get_config
from django_txtasks.database.execute import fetch
from django_txtasks.exceptions import InvalidOption
from django_txtasks.features.figures.adding_up import DAY, EVER, HOUR, TEN_MINUTES
from django_txtasks.features.figures.places import Places
from django_txtasks.features.figures.tally import (
    OF_PROCESSES,
    ROWS_WRITTEN,
    TRANSACTIONS,
    Columns,
    Counts,
    Name,
)
from django_txtasks.stats.records import Functions, FunctionStats, Histogram, QueueTimes, Totals

MAX_RAW_ROWS = 10_000
"""Number of rows not added up that a reader adds. If there are more, no cleaner has added up for minutes."""
LONGEST_SPAN = timedelta(days=400)

# A cleaner C moves rows from one table to the other. Two statements could see a row in both or in none.
ROWS = """
    SELECT is_raw, {seconds_of_at}, queue_name, task_name, due, oldest,
           succeeded, failed, died, other, run_ms, wait, run
      FROM (SELECT 0 AS is_raw, starts_at AS at, queue_name, task_name, due, oldest,
                   succeeded, failed, died, other, run_ms, wait, run
              FROM txtasks_stat WHERE width = %(width)s <added_up>
             UNION ALL
            SELECT 1 AS is_raw, at, queue_name, task_name, NULL, NULL,
                   succeeded, failed, died, other, run_ms, wait, run
              FROM (SELECT * FROM txtasks_rawstat WHERE 1 = 1 <raw> LIMIT %(limit)s) AS raw) AS figures
"""
NOW = "SELECT {seconds_of_at} FROM (SELECT {now} AS at) AS clock"
LONGEST_OF_WIDTH = {TEN_MINUTES: timedelta(hours=3), HOUR: timedelta(days=7)}
"""Longest span that is read from rows of each width, so that few rows are read. Longer ones are read from days."""
OF_FUNCTIONS = "AND task_name > '' AND starts_at > {ago}"
RAW_SINCE = "AND at > {ago}"


class Row(NamedTuple):
    """A row of figures.

    Attributes:
        is_raw: whether it is not added up yet.
        at: start of its span, or the time at which it was appended, in seconds since 1970.
        counts: the values that are added.
    """

    is_raw: Any
    at: Any
    queue: str
    task: str
    due: int | None
    oldest: float | None
    counts: Columns

    @property
    def is_of_tasks(self) -> bool:
        """False for the row that a cleaner locks, and for what processes cost the database."""
        return self.queue not in ("", OF_PROCESSES)


def functions(span: timedelta, using: str = "default") -> Functions:
    """Return the figures of each task function in the last ``span``.

    It is read from whole rows of 10 minutes, an hour or a day, so it begins up to one row earlier.

    Raises:
        InvalidOption: the span is no time for which figures are kept.
    """
    width = width_for(span)
    age = span.total_seconds() + width
    found, is_behind = rows(using, added_up=OF_FUNCTIONS, raw=RAW_SINCE, width=width, age=age)
    stats = [function_stats(name, counts) for name, counts in by_name(found).items()]
    stats.sort(key=lambda one: (-one.run_seconds, one.queue, one.task))
    return Functions(tuple(stats), is_behind)


def totals(using: str = "default") -> Totals:
    """Return the figures of each task function, and the times of each queue, since the first attempt.

    The first 1,000 pairs of queue and function, in the first 100 queues, are counted apart, all others as
    ``(others)``, so that the answer stays short whatever names the code makes. In a queue that other systems
    serve, 100 functions are counted apart.
    """
    found, is_behind = rows(using, added_up="", raw="", width=EVER)
    sums = by_name(found, _places(found).take)
    queues: dict[str, Counts] = {}
    for name, counts in sorted(sums.items()):
        queues.setdefault(name.queue, Counts()).add(counts.columns())
    return Totals(
        functions=tuple(function_stats(name, counts) for name, counts in sorted(sums.items())),
        queues=tuple(_times(queue, counts) for queue, counts in queues.items()),
        is_behind=is_behind,
        transactions=_of_processes(found, TRANSACTIONS),
        rows_written=_of_processes(found, ROWS_WRITTEN),
    )


def _of_processes(found: list[Row], name: str) -> int:
    names = (OF_PROCESSES, name)
    return sum(
        one.counts.other for one in found if (one.queue, one.task) == names and one.counts.are_valid
    )


def _places(found: list[Row]) -> Places:
    """Give places to the names that a cleaner has added up, and then to the new ones, in each process the same."""
    named = sorted((one.is_raw, one.queue, one.task) for one in found if one.is_of_tasks)
    names = (Name(queue, task) for _is_raw, queue, task in named)
    return Places(names, get_config().queues_elsewhere)


def _times(queue: str, counts: Counts) -> QueueTimes:
    return QueueTimes(
        queue=queue,
        run_seconds=counts.run_ms / 1000.0,
        wait=Histogram(tuple(counts.wait)),
        run=Histogram(tuple(counts.run)),
    )


def rows(alias: str, *, added_up: str, raw: str, **params: Any) -> tuple[list[Row], bool]:
    """Return the rows, and whether more rows than ``MAX_RAW_ROWS`` are not added up.

    Args:
        added_up, raw: conditions for the rows of each table, which begin with AND.
        params: ``width`` and the other values of the statement.
    """
    sql = ROWS.replace("<added_up>", added_up).replace("<raw>", raw)
    read = fetch(alias, sql, limit=MAX_RAW_ROWS + 1, **params)
    found = [
        Row(is_raw, at, queue, task, due, oldest, Columns(*counts))
        for is_raw, at, queue, task, due, oldest, *counts in read
    ]
    return found, sum(1 for one in found if one.is_raw) > MAX_RAW_ROWS


def by_name(
    found: Iterable[Row], counted_as: Callable[[Name], Name] = lambda name: name
) -> dict[Name, Counts]:
    """Return the sums by queue and task function, each under the name that ``counted_as`` returns."""
    sums: dict[Name, Counts] = {}
    for one in found:
        if one.is_of_tasks:
            sums.setdefault(counted_as(Name(one.queue, one.task)), Counts()).add(one.counts)
    return sums


def function_stats(name: Name, counts: Counts) -> FunctionStats:
    """Return the figures of one task function."""
    return FunctionStats(
        queue=name.queue,
        task=name.task,
        succeeded=counts.succeeded,
        failed=counts.failed,
        died=counts.died,
        other=counts.other,
        run_seconds=counts.run_ms / 1000.0,
        wait=Histogram(tuple(counts.wait)),
        run=Histogram(tuple(counts.run)),
    )


def width_for(span: timedelta) -> int:
    """Return the width of the rows from which the figures of task functions are read.

    Raises:
        InvalidOption: the span is no time for which figures are kept.
    """
    check_span(span)
    return next((width for width, longest in LONGEST_OF_WIDTH.items() if span <= longest), DAY)


def check_span(span: timedelta) -> None:
    """Raise InvalidOption unless figures are kept for this time."""
    given: object = span
    if not isinstance(given, timedelta) or not timedelta(0) < given <= LONGEST_SPAN:
        raise InvalidOption(
            f"span is {span!r}: it must be a datetime.timedelta above zero, of {LONGEST_SPAN.days} days at most, "
            "because figures are kept for that time."
        )
