"""The cost of the indexes of failed rows for MariaDB: its CPU time for a row that never fails.

    python benchmarks/row.py [--rounds 30] [--rows 3000]

INSERT, claim and DELETE, 100 rows in a statement, until the server has removed the deleted rows, too. Tables in
turns: without an index of causes; as the migrations make it; with indexes that begin with the status itself.
Printed is the mean of the fastest quarter of each, because other work on the machine only makes it slower, and its
ratio to the first one: more is better. Only ratios within one run count.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import time
import uuid
from collections.abc import Iterator
from typing import Any

import stage  # isort: skip -- it says where the next ones are
import figures
import services

SIZE, BEFORE_CLAIM = 100, 5
"""Rows of a statement, and the number of statements by which the inserts are ahead of the claims."""
MOST_LEFT = 20
"""Transactions whose deleted rows the server has not removed yet, at the end of a round."""
STOPPED = "ADD INDEX txtasks_stopped (status, run_after)"
TABLES = {
    "no index of causes": f"DROP INDEX txtasks_cause, DROP INDEX txtasks_stopped, {STOPPED}, DROP failed_status",
    "computed column": "COMMENT ''",
    "status": "DROP INDEX txtasks_cause, DROP INDEX txtasks_stopped, DROP failed_status, "
    f"{STOPPED}, ADD INDEX txtasks_cause (status, queue_name, cause, run_after, id)",
}


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--rows", type=int, default=3000, help="for each table and round")
    arguments = parser.parse_args()
    with services.MariaDB(durable=True) as server:
        os.environ["TXTASKS_DATABASE_URL"] = server.url
        with stage.project(broker=False):
            measured = Measured()
            for number in range(arguments.rounds + 1):
                for name in random.sample([*TABLES], len(TABLES)):
                    seconds = measured.cpu_of(name, arguments.rows)
                    if number:  # the first round warms up
                        measured.seconds[name].append(seconds)
            fastest = {name: _fastest(of) for name, of in measured.seconds.items()}
            first = fastest[next(iter(TABLES))]
            rows = [
                [name, f"{1e6 * one / arguments.rows:.0f}", f"{first / one:.2f}"]
                for name, one in fastest.items()
            ]
    print(figures.table(["MariaDB", "CPU, µs per row", "ratio"], rows))


def _fastest(seconds: list[float]) -> float:
    return statistics.mean(sorted(seconds)[: max(1, len(seconds) // 4)])


class Measured:
    """The tables, and what each round of one has taken."""

    def __init__(self) -> None:
        self.seconds: dict[str, list[float]] = {name: [] for name in TABLES}
        self._tables = {name: f"row_{number}" for number, name in enumerate(TABLES)}
        for name, table in self._tables.items():
            self._execute(f"CREATE TABLE {table} LIKE txtasks_task")
            self._execute(f"ALTER TABLE {table} {TABLES[name]}")
        (path,) = self._execute("SELECT @@pid_file")[0]
        with open(path) as file:
            self._clock = (~int(file.read()) << 3) | 2  # of all threads of that process

    def cpu_of(self, name: str, rows: int) -> float:
        """Return the CPU seconds that the server takes for these rows."""
        begin = time.clock_gettime(self._clock)
        waiting: list[list[str]] = []
        for ids in _ids(rows):
            self._insert(self._tables[name], ids)
            waiting.append(ids)
            if len(waiting) > BEFORE_CLAIM:
                self._run(self._tables[name], waiting.pop(0))
        for ids in waiting:
            self._run(self._tables[name], ids)
        while self._history() > MOST_LEFT:
            time.sleep(0.1)
        return time.clock_gettime(self._clock) - begin

    def _insert(self, table: str, ids: list[str]) -> None:
        row = "(%s, 'shop.tasks.send_receipt', '{\"order_id\": 123456}')"
        values = ", ".join([row] * len(ids))
        self._execute(f"INSERT INTO {table} (id, task_name, kwargs) VALUES {values}", ids)

    def _run(self, table: str, ids: list[str]) -> None:
        chosen = f"id IN ({', '.join(['%s'] * len(ids))}) AND TRIM(status) ="
        claim = (
            "status = 'claimed', attempt = attempt + 1, worker = %s, claimed_at = UTC_TIMESTAMP(6)"
        )
        worker = uuid.UUID(int=1).hex
        self._execute(f"UPDATE {table} SET {claim} WHERE {chosen} 'pending'", [worker, *ids])
        self._execute(f"DELETE FROM {table} WHERE {chosen} 'claimed'", ids)

    def _history(self) -> int:
        sql = "SHOW GLOBAL STATUS LIKE 'Innodb_history_list_length'"
        return int(self._execute(sql)[0][1])

    def _execute(self, sql: str, parameters: list[str] | None = None) -> Any:
        from django.db import connection

        with connection.cursor() as cursor:
            cursor.execute(sql, parameters)
            return cursor.fetchall() if cursor.description else None


def _ids(rows: int) -> Iterator[list[str]]:
    """Yield ids as this package makes them: they grow with the time."""
    for _ in range(rows // SIZE):
        now = int(time.time() * 1000) << 80
        yield [uuid.UUID(int=now | uuid.uuid4().int & (1 << 80) - 1).hex for _ in range(SIZE)]


if __name__ == "__main__":
    main()
