"""The rows that a database reads for statements."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.db import connection


@contextmanager
def explained() -> Iterator[list[tuple[int, str]]]:
    """The rows of our tables that each SELECT reads, by the plan that PostgreSQL carried out, and its text."""
    found: list[tuple[int, str]] = []

    def explain(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        if sql.lstrip().startswith(("SELECT", "WITH", "(")) and "txtasks_" in sql:
            with connection.cursor() as cursor, no_timeout(cursor.cursor):
                cursor.cursor.execute(f"EXPLAIN (ANALYZE, FORMAT JSON) {sql}", params)
                plan = cursor.cursor.fetchone()[0][0]["Plan"]
            found.append((rows_read(plan), f"{sql}\n{json.dumps(plan, indent=1)}"))
        return execute(sql, params, many, context)

    with connection.execute_wrapper(explain):
        yield found


@contextmanager
def no_timeout(cursor: Any) -> Iterator[None]:
    """Let statements of the open transaction take any time: to be explained, they take longer."""
    before = cursor.execute("SELECT current_setting('statement_timeout')").fetchone()[0]
    cursor.execute("SELECT set_config('statement_timeout', '0', true)")
    yield
    cursor.execute("SELECT set_config('statement_timeout', %s, true)", [before])


def rows_read(plan: dict[str, Any]) -> int:
    """Return the number of rows that the scans in a plan read, including rows that a filter dropped."""
    below = sum(rows_read(child) for child in plan.get("Plans", ()))
    if not str(plan.get("Relation Name", plan.get("Index Name", ""))).startswith("txtasks_"):
        return below
    each = [value for key, value in plan.items() if key.startswith("Rows Removed")]
    return below + int((plan["Actual Rows"] + sum(each)) * plan["Actual Loops"])


@contextmanager
def work_counted() -> Iterator[list[int]]:
    """How many rows MariaDB reads, or how many thousands of steps SQLite makes, in a block."""
    counted: list[int] = []
    if connection.vendor == "sqlite":
        steps = [0]

        def step() -> int:
            steps[0] += 1
            return 0

        connection.connection.set_progress_handler(step, 1000)
        yield counted
        connection.connection.set_progress_handler(None, 0)
        counted.append(steps[0])
        return
    before = handler_reads()
    yield counted
    counted.append(handler_reads() - before)


def handler_reads() -> int:
    with connection.cursor() as cursor:
        cursor.execute("SHOW SESSION STATUS LIKE 'Handler_read%'")
        return sum(int(value) for _name, value in cursor.fetchall())
