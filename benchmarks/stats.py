"""The cost of figures: drains with ``TXTASKS["stats"]`` on and off, in turns.

    python benchmarks/stats.py [--pairs 5] [--tasks 20000] [--rows 4000] [--threads 8]
        [--databases postgresql,mariadb,sqlite]

Each pair drains no-op tasks, and tasks that write one row each, with figures and without; the order changes from
pair to pair. Printed are the ratios of each pair, on by off: of tasks per second, where more is better, and of the
CPU time of worker and database per task, where less is better. Only ratios within one run count.
"""

from __future__ import annotations

import argparse
import math

import contest
import figures
import options
import real
from real import Case, Cost

KINDS = {"no-op": "idempotent", "row": "idempotent_row"}


def main() -> None:
    """Print the table."""
    arguments = _arguments()
    databases = arguments.databases.split(",")
    found: dict[tuple[str, str], list[tuple[Cost, Cost]]] = {}
    with contest.contest(mariadb="mariadb" in databases) as servers:
        for number in range(arguments.pairs):
            for database in databases:
                for kind in KINDS:
                    tasks = arguments.tasks if kind == "no-op" else arguments.rows
                    costs = {}
                    for stats in (True, False) if number % 2 else (False, True):
                        case = _case(database, kind, arguments.threads, stats=stats)
                        costs[stats] = real.measured(servers, case, tasks)
                        options.progress(f"{case.title}: {costs[stats]}")
                    found.setdefault((database, kind), []).append((costs[True], costs[False]))
    rows = [[f"{kind}, {database}", *_ratios(pairs)] for (database, kind), pairs in found.items()]
    print(figures.table(["on by off", "tasks/s", "worker CPU", "database CPU"], rows))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--tasks", type=int, default=20_000, help="no-op tasks of a drain")
    parser.add_argument("--rows", type=int, default=4000, help="tasks of a drain that write a row")
    parser.add_argument("--threads", type=int, default=8)
    parser.add_argument("--databases", default="postgresql")
    return parser.parse_args()


def _case(database: str, kind: str, threads: int, *, stats: bool) -> Case:
    title = f"{kind}, {database}, figures {'on' if stats else 'off'}"
    contender = contest.ours(
        title, database=database, keep_finished=0, broker_url=None, stats=stats
    )
    return Case(title, contender, 1, threads, KINDS[kind])


def _ratios(pairs: list[tuple[Cost, Cost]]) -> list[figures.Figure]:
    return [
        figures.figure([_ratio(on.rate, off.rate) for on, off in pairs]),
        figures.figure([_ratio(on.worker, off.worker) for on, off in pairs]),
        figures.figure([_ratio(on.database, off.database) for on, off in pairs]),
    ]


def _ratio(on: float, off: float) -> float:
    """Return the ratio; NaN if the divisor was too small to be measured, as SQLite's share always is."""
    return on / off if off else math.nan


if __name__ == "__main__":
    main()
