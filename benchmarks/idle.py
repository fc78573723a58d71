"""The resources of a worker that has nothing to do.

    python benchmarks/idle.py [--seconds 60] [--processes 2] [--broker none] [--chart idle.svg]
        [--peers pgqueuer,dramatiq,celery,procrastinate,django_tasks_db --peers-python X/bin/python]

After a warm-up with a few tasks, during ``--seconds``, for each worker process: transactions per second of
its database without autovacuum, and CPU in percent of one core, including parents and helpers. Memory is
the proportional share (PSS) of each process in MB; supervisors come last.
"""

from __future__ import annotations

import argparse
import statistics
import time
from dataclasses import dataclass

import contest
import cpu
import figures
import options
import psycopg
import records
from contest import Contender, Contest, Run

WARM_UP = 10
"""Tasks."""
CALM = 15
"""Seconds until what came with the start is over, and told by PostgreSQL's statistics."""


@dataclass(frozen=True)
class Idle:
    """One stretch of idleness, for one worker process."""

    transactions: float
    cpu_percent: float
    megabytes: float
    beside: list[float]


def main() -> None:
    """Print the table."""
    arguments = _arguments()
    found: dict[str, list[Idle]] = {}
    with contest.contest() as servers:
        _stop_autovacuum(servers)
        for contender in options.contenders(arguments):
            found[contender.title] = [
                _measured(servers, contender, arguments) for _ in range(arguments.repeat)
            ]
    head = ["idle", "transactions/s", "CPU %", "PSS MB of a worker process", "of others"]
    print(figures.table(head, [[title, *_row(idles)] for title, idles in found.items()]))
    if arguments.chart:
        bars = [
            (title, figures.figure([one.megabytes for one in idles]))
            for title, idles in found.items()
        ]
        figures.chart(arguments.chart, "PSS in MB of an idle worker process", bars)


def _arguments() -> argparse.Namespace:
    parser = options.parser(__doc__)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--processes", type=int, default=1)
    parser.set_defaults(repeat=1)
    return parser.parse_args()


def _measured(servers: Contest, contender: Contender, arguments: argparse.Namespace) -> Idle:
    more = options.working(contender, arguments)
    with servers.run(contender) as run, run.worker(arguments.processes, *more) as worker:
        run.do("pace", WARM_UP * arguments.processes, 0.1)
        run.wait_for(WARM_UP * arguments.processes)
        time.sleep(CALM)
        before, used = _transactions(servers, run), cpu.seconds_below(worker.pid, itself=True)
        time.sleep(arguments.seconds)
        transactions = _transactions(servers, run) - before
        used = cpu.seconds_below(worker.pid, itself=True) - used
        memory = {
            pid: cpu.proportional_megabytes(pid)
            for pid in [worker.pid, *cpu.descendants(worker.pid)]
        }
        ran = {record.pid for record in records.read(run.records)}
    per_process = 1 / arguments.seconds / arguments.processes
    return Idle(
        transactions=transactions * per_process,
        cpu_percent=100 * used * per_process,
        megabytes=max(memory[pid] for pid in ran),
        beside=sorted(size for pid, size in memory.items() if pid not in ran),
    )


def _stop_autovacuum(servers: Contest) -> None:
    """Its visits, some transactions once a minute, would count as the worker's."""
    with psycopg.connect(servers.postgres.url, autocommit=True) as connection:
        connection.execute("ALTER SYSTEM SET autovacuum = off")
        connection.execute("SELECT pg_reload_conf()")


def _transactions(servers: Contest, run: Run) -> int:
    """Return how many transactions the run's database has seen; asked through another one."""
    with psycopg.connect(servers.postgres.url, autocommit=True) as connection:
        row = connection.execute(
            "SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = %s",
            [run.directory.name],
        ).fetchone()
    return int(row[0]) if row else 0


def _row(idles: list[Idle]) -> list[str]:
    figure = figures.figure
    columns = [
        figure([one.transactions for one in idles]),
        figure([one.cpu_percent for one in idles]),
        figure([one.megabytes for one in idles]),
    ]
    beside = [
        statistics.median(sizes) for sizes in zip(*(one.beside for one in idles), strict=True)
    ]
    return [*map(str, columns), ", ".join(map(figures.short, beside)) or "none"]


if __name__ == "__main__":
    main()
