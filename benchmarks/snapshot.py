"""The lateness of tasks while a dump holds its snapshot, at the default lease.

    python benchmarks/snapshot.py [--minutes 10] [--rate 1000] [--around 60] [--broker none]

A steady flow of no-ops, about ten per transaction, to one worker process. A REPEATABLE READ session that
sees all of them, like that of pg_dump, begins ``--around`` seconds after the flow and ends ``--around``
seconds before it. Milliseconds from the return of the COMMIT to the record that the task writes, by one
clock, of the tasks committed before, during (first minute, last minute, all of it) and after. Autovacuum is
on, with its default settings.
"""

from __future__ import annotations

import argparse
import threading
import time
from collections.abc import Iterable

import contest
import figures
import options
import psycopg
import records
from contest import Run


def main() -> None:
    """Print the table."""
    arguments = _arguments()
    with (
        contest.contest() as servers,
        servers.run(options.own(arguments)) as run,
        run.worker(1, f"--threads={arguments.threads}"),
    ):
        begin, end = _dump_during_a_flow(run, arguments)
        started = {record.key: record.ns for record in records.read(run.records)}
        committed = records.read(run.others)
    minute = 60 * 10**9
    phases = {
        "before": (0, begin),
        "during, first minute": (begin, min(end, begin + minute)),
        "during, last minute": (max(begin, end - minute), end),
        "during": (begin, end),
        "after": (end, committed[-1].ns + 1),
    }
    rows = []
    for phase, (first, last) in phases.items():
        waits = [
            (started[record.key] - record.ns) / 1e6
            for record in committed
            if first <= record.ns < last
        ]
        rows.append([phase, *_row(waits)])
    print(figures.table(["committed", "tasks", "p50 ms", "p99 ms", "slowest"], rows))


def _arguments() -> argparse.Namespace:
    parser = options.parser(__doc__)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--rate", type=int, default=1000, help="tasks a second, in hundreds")
    parser.add_argument("--around", type=float, default=60, help="seconds before and after")
    return parser.parse_args()


def _dump_during_a_flow(run: Run, arguments: argparse.Namespace) -> tuple[int, int]:
    """Return when the snapshot began and ended, after all tasks have run."""
    run.warm_up()
    seconds = 2 * arguments.around + 60 * arguments.minutes
    flow = threading.Thread(target=run.do, args=["flow", seconds, arguments.rate])
    flow.start()
    while not records.count(run.others):
        time.sleep(0.01)
    time.sleep(arguments.around)
    with psycopg.connect(run.url) as connection:
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        connection.execute("SELECT count(*) FROM pg_class")
        begin = time.monotonic_ns()
        time.sleep(60 * arguments.minutes)
    end = time.monotonic_ns()
    flow.join()
    run.wait_for(records.count(run.others))
    return begin, end


def _row(waits: Iterable[float]) -> list[object]:
    waits = list(waits)
    shown = [figures.percentile(waits, 50), figures.percentile(waits, 99), max(waits)]
    return [f"{len(waits):,}", *map(figures.short, shown)]


if __name__ == "__main__":
    main()
