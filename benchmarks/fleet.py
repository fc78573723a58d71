"""The database's CPU time for each task and each idle worker, by the number of workers and of databases.

    python benchmarks/fleet.py [--workers 1,2,4,8,16,32] [--aliases 1,2] [--tasks 20000] [--rate 200]
        [--seconds 20] [--threads 4] [--history on] [--broker none]

For each number of worker processes: ``--seconds`` of idleness; a flow of ``--rate`` no-ops each second, one in a
transaction, for ``--seconds``; a backlog of ``--tasks`` no-ops. With two aliases, each of two databases on one
server has half of the workers, the backlog and the flow.

CPU is that of all processes of PostgreSQL; that of the flow's INSERTs, measured without workers, is subtracted.
More workers than cores share these cores, so their rate does not grow: only the CPU time of a task tells what they
would need.
"""

from __future__ import annotations

import argparse
import time
from contextlib import ExitStack
from dataclasses import dataclass

import contest
import cpu
import drains
import figures
import options
import records
from contest import Contest, Run

CALM_SECONDS = 3.0


@dataclass
class Fleet:
    """Costs of a number of workers: CPU in microseconds, of a task or of an idle worker's second."""

    workers: int
    aliases: int
    idle: float = 0.0
    rate: float = 0.0
    backlog: float = 0.0
    backlog_workers: float = 0.0
    flow: float = 0.0
    flow_workers: float = 0.0
    flow_commits: float = 0.0

    @property
    def row(self) -> list[object]:
        """The line of the table."""
        costs = (self.idle, self.rate, self.backlog, self.backlog_workers)
        more = (self.flow, self.flow_workers, self.flow_commits)
        return [self.workers, self.aliases, *map(figures.short, (*costs, *more))]


def main() -> None:
    """Print the table."""
    parser = options.parser(__doc__)
    parser.add_argument("--workers", default="1,2,4,8,16,32")
    parser.add_argument("--aliases", default="1,2")
    parser.add_argument("--rate", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=20)
    arguments = parser.parse_args()
    fleets = [
        Fleet(workers, aliases)
        for workers in map(int, arguments.workers.split(","))
        for aliases in map(int, arguments.aliases.split(","))
        if workers % aliases == 0
    ]
    with contest.contest() as servers:
        inserts = _inserts(servers, arguments)
        options.progress(f"enqueueing one task in a transaction: {inserts:.0f} us of the database")
        for one in fleets:
            _measure(servers, one, arguments, inserts)
            options.progress(str(one))
    head = [
        "workers", "databases", "idle: us/s per worker", "backlog: tasks/s", "database us/task", "workers us/task",
        "flow: database us/task", "workers us/task", "commits/task",
    ]  # fmt: skip
    print(figures.table(head, [one.row for one in fleets]))


def _inserts(servers: Contest, arguments: argparse.Namespace) -> float:
    """Return the database's CPU microseconds for the INSERT of one task."""
    with servers.run(options.own(arguments)) as run:
        meter = _Meter(servers, [run])
        run.do("pace", int(arguments.rate * arguments.seconds), 1 / arguments.rate)
        return meter.read()[0] / (arguments.rate * arguments.seconds)


def _measure(servers: Contest, fleet: Fleet, arguments: argparse.Namespace, inserts: float) -> None:
    with ExitStack() as stack:
        runs = [
            stack.enter_context(servers.run(options.own(arguments))) for _ in range(fleet.aliases)
        ]
        each = fleet.workers // fleet.aliases
        for run in runs:
            stack.enter_context(run.worker(each, f"--threads={arguments.threads}"))
        for run in runs:
            while run.ask("SELECT count(*) FROM txtasks_worker") < each:
                time.sleep(0.1)
            run.warm_up()
        time.sleep(CALM_SECONDS)
        meter = _Meter(servers, runs)
        time.sleep(arguments.seconds)
        fleet.idle = meter.read()[0] / arguments.seconds / fleet.workers
        _flow(fleet, meter, runs, arguments, inserts)
        _backlog(fleet, servers, runs, arguments)


def _flow(
    fleet: Fleet, meter: _Meter, runs: list[Run], arguments: argparse.Namespace, inserts: float
) -> None:
    tasks = int(arguments.rate * arguments.seconds) // len(runs)
    meter.read()
    paces = [run.start("pace", tasks, len(runs) / arguments.rate) for run in runs]
    for pace, run in zip(paces, runs, strict=True):
        if pace.wait():
            raise RuntimeError(run.log())
        run.wait_for(tasks)
    time.sleep(1)
    database, workers, commits = meter.read()
    count = tasks * len(runs)
    fleet.flow, fleet.flow_workers = database / count - inserts, workers / count
    fleet.flow_commits = commits / count - 1


def _backlog(
    fleet: Fleet, servers: Contest, runs: list[Run], arguments: argparse.Namespace
) -> None:
    """Write the backlog while the queue is paused, and measure from the resumption on."""
    tasks = arguments.tasks // len(runs)
    for run in runs:
        run.ask("INSERT INTO txtasks_pausedqueue (queue_name) VALUES ('default')")
        run.do("enqueue", tasks, arguments.policy, 0)
        run.records.write_bytes(b"")
    servers.settle()
    meter = _Meter(servers, runs)
    for run in runs:
        run.ask("DELETE FROM txtasks_pausedqueue")
    for run in runs:
        run.wait_for(tasks)
    while any(run.left() for run in runs):
        time.sleep(0.05)
    database, workers, _ = meter.read()
    count = tasks * len(runs)
    each = fleet.workers // fleet.aliases
    fleet.rate = sum(drains.speed(records.read(run.records), each) for run in runs)
    fleet.backlog, fleet.backlog_workers = database / count, workers / count


class _Meter:
    """CPU microseconds of the database and of the workers, and commits, since the last reading."""

    def __init__(self, servers: Contest, runs: list[Run]) -> None:
        self._database, self._runs = servers.databases["postgresql"], runs
        self._last = self._now()

    def read(self) -> list[float]:
        before, self._last = self._last, self._now()
        return [now - one for now, one in zip(self._last, before, strict=True)]

    def _now(self) -> list[float]:
        pids = [run._worker.pid for run in self._runs if run._worker is not None]
        commits = "SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()"
        return [
            1e6 * self._database.cpu_seconds(),
            1e6 * sum(cpu.seconds_below(pid, itself=True) for pid in pids),
            float(sum(run.ask(commits) for run in self._runs)),
        ]


if __name__ == "__main__":
    main()
