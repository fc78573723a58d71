"""The cost of unique keys, and the effect of many duplicates.

    python benchmarks/unique.py [--tasks 100000] [--repeat 3]

On each database: rows per second of enqueue_many(), 5,000 per transaction, without a key, with one key for
all, and with a key for each hundred. Then one worker drains them: seconds, the number of runs, and the
megabytes of the tables and their indexes on PostgreSQL at the end, before a VACUUM by hand. Only ratios
within one run count. There is no broker, and history has only merged tasks.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass

import contest
import figures
import options
from contest import Contest, ours

KINDS = {"idempotent": "no key", "keyed": "one key", "keyed_by_hundreds": "a key for each 100"}
RUNS = "SELECT count(*) FROM txtasks_finishedtask WHERE outcome = 'merged'"
SIZE = """
    SELECT (pg_total_relation_size('txtasks_task') + pg_total_relation_size('txtasks_finishedtask')) / 1e6
"""


@dataclass(frozen=True)
class Figures:
    """Rows per second, seconds of the drain, runs, megabytes."""

    rate: float
    seconds: float
    runs: int
    size: float | None


def main() -> None:
    """Print the table."""
    parser = options.parser(__doc__, tasks=100_000)
    parser.add_argument("--databases", default="postgresql,mariadb,sqlite")
    arguments = parser.parse_args()
    names = arguments.databases.split(",")
    with contest.contest(mariadb="mariadb" in names) as servers:
        measured: dict[tuple[str, str], list[Figures]] = {}
        for _ in range(arguments.repeat):
            for database in names:
                for kind in KINDS:
                    key = database, kind
                    measured.setdefault(key, []).append(_one(servers, arguments, *key))
    print(_table(measured))


def _one(servers: Contest, arguments: argparse.Namespace, database: str, kind: str) -> Figures:
    contender = ours(database=database, broker_url=None, keep_finished=0)
    with servers.run(contender) as run:
        servers.settle()
        rate = arguments.tasks / run.seconds("enqueue", arguments.tasks, kind)
        began = time.monotonic()
        with run.worker(1, f"--threads={arguments.threads}"):
            while run.left():
                time.sleep(0.05)
        seconds = time.monotonic() - began
        runs = arguments.tasks - int(run.ask(RUNS))
        size = float(run.ask(SIZE)) if database == "postgresql" else None
    return Figures(rate, seconds, runs, size)


def _table(measured: dict[tuple[str, str], list[Figures]]) -> str:
    rows = []
    for (database, kind), own in measured.items():
        base = measured[database, "idempotent"]
        shares = [one.rate / first.rate for one, first in zip(own, base, strict=True)]
        sizes = [one.size for one in own if one.size is not None]
        rows.append(
            [
                f"{database}, {KINDS[kind]}",
                figures.figure([one.rate for one in own]),
                figures.figure(shares),
                figures.figure([one.seconds for one in own]),
                figures.figure([one.runs for one in own]),
                figures.figure(sizes) if sizes else "",
            ]
        )
    titles = ["", "rows/s", "by no key", "drain s", "runs", "MB after"]
    return figures.table(titles, rows)


if __name__ == "__main__":
    main()
