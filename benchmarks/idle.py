"""The resources of everything that a command keeps running while it has nothing to do.

    python benchmarks/idle.py [--seconds 60] [--processes 2] [--broker none] [--cleaner apart]
        [--peers pgqueuer,dramatiq,celery,procrastinate,django_tasks_db,dj_queue,django_ox]
        [--peers-python X/bin/python] [--chart idle.svg]

After a warm-up with a few tasks, during ``--seconds``, for all processes together: transactions per second
of their database without autovacuum, and CPU in percent of one core. Memory is the proportional share (PSS)
in MB: of all, of each process that ran tasks, of the command's first process if it ran none, and of each
other process. Of this package, the other process is the cleaner.

The Django projects are the same small example project, with its admin. PgQueuer, Dramatiq, Celery and
procrastinate run without Django.
"""

from __future__ import annotations

import argparse
import statistics
import time
from contextlib import nullcontext
from dataclasses import dataclass

import contest
import cpu
import figures
import options
import psycopg
import records
from contest import Contender, Contest, Run

WARM_UP = 10
"""Tasks of each worker process."""
CALM = 15
"""Seconds until what came with the start is over, and told by PostgreSQL's statistics."""


@dataclass(frozen=True)
class Idle:
    """One stretch of idleness of all processes."""

    transactions: float
    cpu_percent: float
    workers: list[float]
    supervisor: list[float]
    others: list[float]

    @property
    def megabytes(self) -> float:
        """Memory of all processes."""
        return sum([*self.workers, *self.supervisor, *self.others])


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
    head = ["idle", "transactions/s", "CPU %", "PSS MB", "workers", "supervisor", "others"]
    print(figures.table(head, [[title, *_row(idles)] for title, idles in found.items()]))
    if arguments.chart:
        bars = [
            (title, figures.figure([one.megabytes for one in idles]))
            for title, idles in found.items()
        ]
        figures.chart(arguments.chart, "PSS in MB of all idle processes", bars)


def _arguments() -> argparse.Namespace:
    parser = options.parser(__doc__)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument(
        "--cleaner",
        choices=["own", "apart"],
        default="own",
        help="of this package: started by runworkers, or a second command",
    )
    parser.set_defaults(repeat=1)
    return parser.parse_args()


def _measured(servers: Contest, contender: Contender, arguments: argparse.Namespace) -> Idle:
    more, is_apart = options.working(contender, arguments), False
    if contender.name == "txtasks":
        is_apart = arguments.cleaner == "apart"
        more += ["cleaner"] * (not is_apart)
    with (
        servers.run(contender) as run,
        run.worker(arguments.processes, *more) as worker,
        run.beside("clean") if is_apart else nullcontext() as cleaner,
    ):
        roots = [process.pid for process in (worker, cleaner) if process is not None]
        run.do("pace", WARM_UP * arguments.processes, 0.1)
        run.wait_for(WARM_UP * arguments.processes)
        time.sleep(CALM)
        before, used = _transactions(servers, run), _cpu_seconds(roots)
        time.sleep(arguments.seconds)
        transactions, used = _transactions(servers, run) - before, _cpu_seconds(roots) - used
        memory = {
            pid: cpu.proportional_megabytes(pid)
            for root in roots
            for pid in [root, *cpu.descendants(root)]
        }
        ran = {record.pid for record in records.read(run.records)}
    workers = {pid: memory.pop(pid) for pid in ran}
    supervisor = [memory.pop(worker.pid)] if worker.pid in memory else []
    return Idle(
        transactions=transactions / arguments.seconds,
        cpu_percent=100 * used / arguments.seconds,
        workers=sorted(workers.values()),
        supervisor=supervisor,
        others=sorted(memory.values()),
    )


def _cpu_seconds(roots: list[int]) -> float:
    return sum(cpu.seconds_below(root, itself=True) for root in roots)


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
    each = (
        [one.workers for one in idles],
        [one.supervisor for one in idles],
        [one.others for one in idles],
    )
    return [*map(str, columns), *map(_medians, each)]


def _medians(runs: list[list[float]]) -> str:
    medians = [statistics.median(sizes) for sizes in zip(*runs, strict=True)]
    return ", ".join(map(figures.short, medians)) or "none"


if __name__ == "__main__":
    main()
