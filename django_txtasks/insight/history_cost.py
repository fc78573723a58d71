"""The cost of history: the rows and bytes a day that each outcome adds to the table of finished tasks."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from django.db import connections

from django_txtasks.conf import get_config
from django_txtasks.database.execute import fetch, fetch_value

MOST_ROWS = 2_000
"""Number of the newest rows that are read."""
DAY_SECONDS = 86400.0
ROW_BYTES = 140
"""Bytes of a row's other columns and header, and of its entries in the indexes."""
_TEXTS = ("task_name", "queue_name", "args", "kwargs", "errors", "result")
_SIZE = {"postgresql": "pg_column_size({})", "mysql": "LENGTH({})", "sqlite": "LENGTH({})"}
_AGE = {
    "postgresql": "EXTRACT(EPOCH FROM {now} - MIN(finished_at))",
    "mysql": "TIMESTAMPDIFF(MICROSECOND, MIN(finished_at), {now}) / 1000000",
    "sqlite": "(julianday({now}) - julianday(MIN(finished_at))) * 86400.0",
}
_NEWEST = """
    SELECT outcome, COUNT(*), AVG({size}), {age_of_oldest}
      FROM (SELECT outcome, finished_at, {texts} FROM txtasks_finishedtask {by_finish}
             WHERE finished_at > {ago} ORDER BY finished_at DESC LIMIT %(limit)s) newest
     GROUP BY outcome
"""
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
    """An estimate from the newest rows.

    Attributes:
        outcomes: the cost by outcome, for the outcomes among the newest rows.
        seconds: the time within which these rows finished; at most a day.
        table_bytes: size of the table and its indexes now. On SQLite: of the database file.
    """

    outcomes: dict[str, OutcomeCost]
    seconds: float
    table_bytes: int

    @property
    def mb_a_day(self) -> float:
        """Megabytes that all outcomes add in a day."""
        return sum(one.mb_a_day for one in self.outcomes.values())

    def as_json(self) -> dict[str, Any]:
        """Return the estimate for machines."""
        return {**asdict(self), "mb_a_day": self.mb_a_day}


def history_cost(using: str = "default") -> HistoryCost:
    """Estimate what history costs, from at most ``MOST_ROWS`` rows of the last day.

    If more tasks finish in a day, the rows a day follow from the time within which the newest rows finished.

    Raises:
        DatabaseError: the database cannot be reached, or has no task tables.
    """
    vendor = connections[using].vendor
    size = " + ".join(f"COALESCE({_SIZE[vendor].format(name)}, 0)" for name in _TEXTS)
    sql = _NEWEST.replace("{size}", size).replace("{age_of_oldest}", _AGE[vendor])
    sql = sql.replace("{texts}", ", ".join(_TEXTS))
    rows = fetch(using, sql, limit=MOST_ROWS, age=DAY_SECONDS)
    count = sum(number for _, number, *_ in rows)
    is_all = count < MOST_ROWS
    seconds = DAY_SECONDS if is_all else max(1.0, *(float(age) for *_, age in rows))
    costs = {
        outcome: OutcomeCost(number * DAY_SECONDS / seconds, float(average) + ROW_BYTES)
        for outcome, number, average, _ in sorted(rows)
        if get_config().keeps(outcome)
    }
    return HistoryCost(costs, seconds, int(fetch_value(using, _TABLE_BYTES[vendor])))
