"""Counts what this process costs a database: the transactions that it began, and the rows that it wrote.

Only statements of this package count, and no statements of a task's own code. The INSERT of a task does not count,
because it belongs to the caller's transaction: pages that show the cost add one row for each task. A count is a
number in memory, so it costs a statement less than 1 % of its time, and a task that sends no statement nothing.
"""

from __future__ import annotations

import functools
import re
from typing import Any

_WRITE = re.compile(r"\b(?:INSERT|DELETE)\b|\{delete\}|\bUPDATE txtasks_")


class Cost:
    """The cost of one process for one database.

    Attributes:
        transactions: number of transactions. A transaction that only reads, or is rolled back, counts, too.
        rows: number of rows that were inserted, updated or deleted.
    """

    __slots__ = ("rows", "transactions")

    def __init__(self) -> None:
        self.transactions = self.rows = 0


_costs: dict[str, Cost] = {}


def of(alias: str) -> Cost:
    """Return the cost since the last ``take``, to be changed.

    Threads add without a lock: CPython does not change threads within such an addition, and elsewhere a figure may
    be a little too low.
    """
    found = _costs.get(alias)
    return _costs.setdefault(alias, Cost()) if found is None else found


def note(connection: Any, sql: str, reported: int) -> None:
    """Count a statement that was executed. Outside a transaction it is a transaction of its own.

    Args:
        sql: the statement, with or without the pieces of the dialect.
        reported: number of rows that the database has reported for it. A statement that moves rows to another
            table writes each of them twice.
    """
    cost = of(connection.alias)
    if not connection.in_atomic_block:
        cost.transactions += 1
    if writes := _writes(sql):
        cost.rows += writes * max(0, reported)


@functools.lru_cache(maxsize=500)
def _writes(sql: str) -> int:
    """Return how often a statement writes each row that it reports."""
    return len(_WRITE.findall(sql))


def take(alias: str) -> Cost:
    """Return the cost since the last call, and begin anew."""
    return _costs.pop(alias, None) or Cost()
