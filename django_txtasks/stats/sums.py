"""The figures of all tasks together, and what processes cost the database: summed up by the database."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django_txtasks.database.execute import fetch, fetch_value
from django_txtasks.features.figures.tally import OF_PROCESSES, ROWS_WRITTEN, TRANSACTIONS
from django_txtasks.stats.reading import MAX_RAW_ROWS, NOW, width_for
from django_txtasks.stats.records import Sums

# As floats, because SQLite refuses a sum beyond 64 bits. A cleaner moves rows from one table to the other, so one
# statement reads both.
SUMS = """
    SELECT name, MIN(at), SUM(1.0 * succeeded), SUM(1.0 * died), SUM(1.0 * other)
      FROM (SELECT CASE WHEN queue_name = %(processes)s THEN task_name ELSE '' END AS name,
                   {seconds_of_at} AS at, succeeded, died, other
              FROM (SELECT starts_at AS at, queue_name, task_name, succeeded, died, other FROM txtasks_stat
                     WHERE width = %(width)s AND task_name > '' AND starts_at > {ago}
                     UNION ALL
                    SELECT * FROM (
                           SELECT at, queue_name, task_name, succeeded, died, other FROM txtasks_rawstat
                            WHERE at > {ago} LIMIT %(limit)s) AS raw) AS every_row) AS figures
     GROUP BY name
"""


def sums(span: timedelta, using: str = "default") -> Sums:
    """Return the figures of all tasks in the last ``span``.

    They are read from whole rows of 10 minutes, an hour or a day, so they begin up to one row earlier.

    Raises:
        InvalidOption: the span is no time for which figures are kept.
    """
    width = width_for(span)
    age = span.total_seconds() + width
    read = fetch(using, SUMS, width=width, age=age, limit=MAX_RAW_ROWS, processes=OF_PROCESSES)
    by_name = {name: [float(value or 0.0) for value in values] for name, *values in read}
    first = min((at for at, *_ in by_name.values()), default=0.0)
    now = float(fetch_value(using, NOW))
    _, succeeded, died, other = by_name.get("", _NONE)
    return Sums(
        seconds=min(age, max(1.0, now - first)),
        succeeded=succeeded,
        died=died,
        other=other,
        transactions=by_name.get(TRANSACTIONS, _NONE)[-1],
        rows_written=by_name.get(ROWS_WRITTEN, _NONE)[-1],
    )


_NONE: list[Any] = [0.0, 0.0, 0.0, 0.0]
