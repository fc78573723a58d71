"""The cost of history: the rows and bytes that each outcome has added to the table of finished tasks in a day.

The newest rows tell how large a row is. They do not tell how many rows a day brings: 2,000 tasks of a minute would
be 2,880,000 a day. The figures that workers have counted do.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import timedelta
from typing import Any

from django.db import connections

from django_txtasks.conf import get_config
from django_txtasks.database.execute import fetch, fetch_value
from django_txtasks.models import Outcome
from django_txtasks.stats import sums

MOST_ROWS = 2_000
"""Number of the newest rows that are read."""
DAY = timedelta(days=1)
ROW_BYTES = 140
"""Bytes of a row's other columns and header, and of its entries in the indexes."""
_TEXTS = ("task_name", "queue_name", "args", "kwargs", "errors", "result")
_SIZE = {"postgresql": "pg_column_size({})", "mysql": "LENGTH({})", "sqlite": "LENGTH({})"}
_NEWEST = """
    SELECT outcome, COUNT(*), AVG({size})
      FROM (SELECT outcome, finished_at, {texts} FROM txtasks_finishedtask {by_finish}
             WHERE finished_at > {ago} ORDER BY finished_at DESC LIMIT %(limit)s) newest
     GROUP BY outcome
"""
_ALL = "SELECT outcome, COUNT(*) FROM txtasks_finishedtask {by_finish} WHERE finished_at > {ago} GROUP BY outcome"
_TABLE_BYTES = {
    "postgresql": "SELECT pg_total_relation_size(CAST('txtasks_finishedtask' AS regclass))",
    "mysql": """
        SELECT COALESCE(SUM(data_length + index_length), 0) FROM information_schema.tables
         WHERE table_schema = DATABASE() AND table_name = 'txtasks_finishedtask'
    """,
    "sqlite": "SELECT page_count * page_size FROM pragma_page_count(), pragma_page_size()",
}


@dataclass(frozen=True)
class OutcomeCost:
    """Rows and bytes that one outcome adds to history.

    Attributes:
        rows_a_day: number of rows.
        bytes_a_row: bytes with the entries in the indexes.
    """

    rows_a_day: float
    bytes_a_row: float

    @property
    def mb_a_day(self) -> float:
        """Megabytes that these rows take."""
        return self.rows_a_day * self.bytes_a_row / 1e6


@dataclass(frozen=True)
class HistoryCost:
    """The cost of the last day.

    Attributes:
        outcomes: the cost by outcome, for the outcomes among the newest rows.
        table_bytes: size of the table and its indexes now. On SQLite: of the database file.
    """

    outcomes: dict[str, OutcomeCost]
    table_bytes: int

    @property
    def mb_a_day(self) -> float:
        """Megabytes that all outcomes have added in the last day."""
        return sum(one.mb_a_day for one in self.outcomes.values())

    def as_json(self) -> dict[str, Any]:
        """Return the cost for machines."""
        return {**asdict(self), "mb_a_day": self.mb_a_day}


def history_cost(using: str = "default") -> HistoryCost:
    """Return what history has cost in the last day, from at most ``MOST_ROWS`` of its rows.

    If more tasks have finished in a day, the number of rows follows from the figures. Without figures (``TXTASKS``
    has ``stats=False``) all rows of the day are counted, which takes about a second per million.

    Raises:
        DatabaseError: the database cannot be reached, or has no task tables.
    """
    vendor = connections[using].vendor
    size = " + ".join(f"COALESCE({_SIZE[vendor].format(name)}, 0)" for name in _TEXTS)
    sql = _NEWEST.replace("{size}", size).replace("{texts}", ", ".join(_TEXTS))
    newest = sorted(fetch(using, sql, limit=MOST_ROWS, age=DAY.total_seconds()))
    rows = _rows_a_day({outcome: number for outcome, number, _ in newest}, using)
    costs = {
        outcome: OutcomeCost(rows[outcome], float(average) + ROW_BYTES)
        for outcome, _, average in newest
        if get_config().keeps(outcome)
    }
    return HistoryCost(costs, int(fetch_value(using, _TABLE_BYTES[vendor])))


def _rows_a_day(newest: dict[str, int], using: str) -> dict[str, float]:
    """Return the number of rows of the last day by outcome, for the outcomes among the newest rows."""
    if sum(newest.values()) < MOST_ROWS:
        return {**newest}
    if not get_config().stats:
        return dict(fetch(using, _ALL, age=DAY.total_seconds()))
    figures = sums(DAY, using)
    share = min(1.0, DAY.total_seconds() / figures.seconds)
    seen = newest.get(Outcome.SUCCEEDED, 0)
    succeeded = max(seen, share * figures.succeeded)
    others = sum(newest.values()) - seen
    rows: dict[str, float] = {}
    for outcome, number in newest.items():
        # ``other`` counts snoozes, too, and the newest rows may have other outcomes than the rows of the whole day
        like_the_newest = succeeded * number / seen if seen else float("inf")
        counted = share * figures.other * number / others if others else 0.0
        rows[outcome] = max(number, min(like_the_newest, counted))
    return rows | {Outcome.SUCCEEDED: succeeded}
