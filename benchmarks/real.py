"""The cost of tasks that do something: each writes one row by Django's ORM.

    python benchmarks/real.py [--tasks 4000] [--repeat 3] [--threads 8] [--processes 1]
        [--policies default,atomic,idempotent] [--databases postgresql,mariadb,sqlite] [--broker rabbitmq,none]
        [--no-op] [--peers dramatiq,celery --peers-python X/bin/python]

A drain, as by ``drain.py``, of tasks under each policy, on each database. For comparison in each round: the
same rows written by the same number of plain threads of a Django process, without a queue, on each database
("plain Django"), and other task queues, on PostgreSQL. CPU is milliseconds per task: of the worker with all
its processes, of the database, and of the broker. SQLite has no server: its work is part of the worker's.
Each key must have run exactly once, and the table must have one row for each. Only ratios within one run
count: "by plain" is the worker's CPU divided by that of plain Django on this database, "by first" the speed
divided by that of the first line.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import contest
import cpu
import drains
import figures
import options
import records
from contest import Contender, Contest, Run

PLAIN = Contender("plain", "plain Django")
PEERS = {
    "dramatiq": Contender("dramatiq_rows", "Dramatiq + RabbitMQ"),
    "celery": Contender("celery_rows", "Celery + RabbitMQ, 2 processes"),
}
ROWS = "SELECT count(*) FROM bench_row"


@dataclass(frozen=True, eq=False)
class Case:
    """A drain of one contender.

    Attributes:
        function: of ``bench.tasks``; None = the contender has but one.
    """

    title: str
    contender: Contender
    processes: int
    threads: int
    function: str | None = None


@dataclass(frozen=True)
class Cost:
    """Tasks per second, and CPU milliseconds per task."""

    rate: float
    worker: float
    database: float
    broker: float


def main() -> None:
    """Print the table."""
    arguments = _arguments()
    cases = list(_cases(arguments))
    found: dict[Case, list[Cost]] = {case: [] for case in cases}
    with contest.contest(mariadb="mariadb" in arguments.databases) as servers:
        for _ in range(arguments.repeat):
            for case in cases:
                one = measured(servers, case, arguments.tasks)
                options.progress(f"{case.title}: {one}")
                found[case].append(one)
    print(_table(found))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tasks", type=int, default=4000)
    parser.add_argument("--repeat", type=int, default=3)
    for name, default in {
        "threads": "8",
        "processes": "1",
        "policies": "default,atomic,idempotent",
        "databases": "postgresql",
        "broker": "rabbitmq",
        "peers": "",
    }.items():
        parser.add_argument(f"--{name}", type=_listed, default=_listed(default))
    parser.add_argument("--no-op", action="store_true", help="measure tasks that write no row, too")
    parser.add_argument("--peers-python", default=sys.executable, help="the Python that has them")
    return parser.parse_args()


def _listed(text: str) -> list[str]:
    return [one for one in text.split(",") if one]


def _cases(arguments: argparse.Namespace) -> Iterable[Case]:
    for processes, threads in itertools.product(
        map(int, arguments.processes), map(int, arguments.threads)
    ):
        size = f"{threads} threads" + (f" x {processes}" if processes > 1 else "")
        for name in arguments.peers:
            peer = PEERS[name]
            contender = Contender(peer.name, peer.title, python=arguments.peers_python)
            yield Case(f"{peer.title}, {size}", contender, processes, threads)
        for database in arguments.databases:
            plain = Contender(PLAIN.name, PLAIN.title, database=database)
            yield Case(f"{PLAIN.title}, {database}, {size}", plain, processes, threads)
            brokers = arguments.broker if database == "postgresql" else ["none"]
            for broker, policy, kind in itertools.product(
                brokers, arguments.policies, ["row", "no-op"] if arguments.no_op else ["row"]
            ):
                title = f"{policy}, {kind}, {database}{', no broker' if broker == 'none' else ''}, {size}"
                settings: dict[str, object] = {"keep_finished": 0}
                if broker == "none":
                    settings["broker_url"] = None
                contender = contest.ours(title, database=database, **settings)
                function = f"{policy}_row" if kind == "row" else policy
                yield Case(title, contender, processes, threads, function)


def measured(servers: Contest, case: Case, tasks: int) -> Cost:
    """Return what one drain cost."""
    with servers.run(case.contender) as run:
        run.do("enqueue", tasks, *([case.function] if case.function else []))
        servers.settle()
        return _drained(servers, run, case, tasks)


def _drained(servers: Contest, run: Run, case: Case, tasks: int) -> Cost:
    with run.worker(case.processes, f"--threads={case.threads}") as worker:
        run.wait_for(1)
        start, before = records.count(run.records), _used(servers, case, worker.pid)
        run.wait_for(tasks)
        time.sleep(drains.SETTLE)
        after = _used(servers, case, worker.pid)
    run.check(range(tasks))
    if case.function is None or case.function.endswith("_row"):
        rows = run.ask(ROWS)
        assert rows == tasks, f"{case.title}: {rows} rows of {tasks} tasks"
    used = (
        1000 * (late - early) / (tasks - start) for early, late in zip(before, after, strict=True)
    )
    return Cost(drains.speed(records.read(run.records), case.processes), *used)


def _used(servers: Contest, case: Case, worker: int) -> tuple[float, float, float]:
    """Return CPU seconds of the worker, of the database, and of the broker."""
    return (
        cpu.seconds_below(worker, itself=True),
        servers.databases[case.contender.database].cpu_seconds(),
        sum(cpu.seconds_below(pid, itself=True) for pid in servers.rabbitmq.home.pids),
    )


def _table(found: dict[Case, list[Cost]]) -> str:
    first = next(iter(found.values()))
    plain: dict[tuple[str, int, int], Sequence[Cost]] = {
        _place(case): costs for case, costs in found.items() if case.contender.name == PLAIN.name
    }
    rows = []
    for case, costs in found.items():
        base = plain[_place(case)]
        columns = [
            [one.rate for one in costs],
            [one.rate / other.rate for one, other in zip(costs, first, strict=True)],
            [one.worker for one in costs],
            [one.worker / other.worker for one, other in zip(costs, base, strict=True)],
            [one.database for one in costs],
            [one.broker for one in costs],
        ]
        rows.append([case.title, *map(figures.figure, columns)])
    head = [
        "",
        "tasks/s",
        "by first",
        "worker CPU ms",
        "by plain",
        "database CPU ms",
        "broker CPU ms",
    ]
    return figures.table(head, rows)


def _place(case: Case) -> tuple[str, int, int]:
    return case.contender.database, case.processes, case.threads


if __name__ == "__main__":
    main()
