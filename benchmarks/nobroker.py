"""What hints from the database itself do, where there is no RabbitMQ, and what they cost.

    python benchmarks/nobroker.py [--databases postgresql,mariadb,sqlite] [--repeat 3]
        [--only latency,idle,commits] [--processes 4]

Latency: milliseconds from the return of the COMMIT to the first line of its task, with one task every 50 ms, and
under a load of 100 a second; with RabbitMQ, for comparison. Idle: a worker's CPU in percent of one core, and
statements (PostgreSQL: transactions) per second, with nothing to do. Commits: how many transactions of one task 8
processes commit at once, and the CPU time of each (theirs, the worker's and the database's), beside a worker that
hears of them and serves another queue. Hints on and off take turns.
"""

from __future__ import annotations

import argparse
import os
import resource
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import cpu
import figures
import psycopg
import records
from contest import Contender, Run, ours
from processes import Guard
from servers import MariaDB, Postgres, RabbitMQ

CLIENTS = 8
CALM = 8
"""Seconds until what came with the start is over."""
OFF = ours("off", broker_url=None, database_hints=False, keep_finished=0)
ON = ours("on", broker_url=None, database_hints=True, keep_finished=0)
TURNS = (ON, OFF)
RABBITMQ = ours("RabbitMQ", keep_finished=0)


class Database(NamedTuple):
    """A kind of server.

    Attributes:
        new: makes an empty database; returns its URL.
        statements: counts those of all clients so far; None = nobody counts them.
        pid: of the server; None = there is none.
    """

    name: str
    new: Callable[[str], str]
    statements: Callable[[str], int] | None
    pid: Callable[[], int] | None = None


def main() -> None:
    """Print the tables."""
    arguments = _arguments()
    wanted = arguments.only.split(",")
    with ExitStack() as stack:
        directory = Path(tempfile.mkdtemp(prefix="benchmark-"))
        os.environ["BENCHMARK"] = mark = str(uuid.uuid4())
        stack.enter_context(Guard(directory, mark=f"BENCHMARK={mark}"))
        databases = [
            stack.enter_context(KINDS[name](directory)) for name in arguments.databases.split(",")
        ]
        if "latency" in wanted:
            broker = stack.enter_context(RabbitMQ()).url
            print(_latencies(databases, arguments, directory, broker), flush=True)
        if "idle" in wanted:
            print(_idleness(databases, arguments, directory), flush=True)
        if "commits" in wanted:
            print(_commits(databases, arguments, directory), flush=True)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--databases", default=",".join(KINDS))
    parser.add_argument("--only", default="latency,idle,commits")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--tasks", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=10, help="of load, commits and idleness")
    parser.add_argument("--processes", type=int, default=1, help="of workers")
    return parser.parse_args()


# -- latency --------------------------------------------------------------------------------------


def _latencies(
    databases: list[Database], arguments: argparse.Namespace, directory: Path, broker: str
) -> str:
    found: dict[tuple[str, str, str], list[list[float]]] = {}
    for _ in range(arguments.repeat):
        for database in databases:
            for contender in (*TURNS, RABBITMQ):
                with (
                    _run(database, contender, directory, broker) as run,
                    run.worker(arguments.processes),
                ):
                    run.warm_up()
                    one_by_one = _waits(run, arguments.tasks, "pace", arguments.tasks, 0.05)
                    loaded = _waits(
                        run, int(arguments.seconds * 100), "flow", arguments.seconds, 100
                    )
                for kind, waits in (("one each 50 ms", one_by_one), ("100 a second", loaded)):
                    found.setdefault((database.name, kind, contender.title), []).append(waits)
    head = ["database", "tasks", "hints", "p50 ms: min / median / max", "p99 ms", "slowest"]
    return figures.table(
        head,
        [
            [*key, _of_each(runs, 50), _of_each(runs, 99), figures.short(max(map(max, runs)))]
            for key, runs in found.items()
        ],
    )


def _waits(run: Run, count: int, verb: str, *more: object) -> list[float]:
    """Return the milliseconds of each task."""
    for file in (run.records, run.others):
        os.truncate(file, 0)
    run.do(verb, *more)
    run.wait_for(count)
    began = {record.key: record.ns for record in records.read(run.records)}
    return [(began[one.key] - one.ns) / 1e6 for one in records.read(run.others)]


def _of_each(runs: list[list[float]], percent: float) -> figures.Figure:
    return figures.figure([figures.percentile(run, percent) for run in runs])


# -- idleness -------------------------------------------------------------------------------------


def _idleness(databases: list[Database], arguments: argparse.Namespace, directory: Path) -> str:
    found: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for _ in range(arguments.repeat):
        for database in databases:
            for contender in TURNS:
                with (
                    _run(database, contender, directory) as run,
                    run.worker(arguments.processes) as worker,
                ):
                    run.warm_up()
                    time.sleep(CALM)
                    one = _idle(database, run, worker.pid, arguments)
                found.setdefault((database.name, contender.title), []).append(one)
    head = ["idle", "hints", "CPU % of one core", "statements/s"]
    return figures.table(
        head,
        [
            [*key, *(figures.figure(list(column)) for column in zip(*runs, strict=True))]
            for key, runs in found.items()
        ],
    )


def _idle(
    database: Database, run: Run, pid: int, arguments: argparse.Namespace
) -> tuple[float, float]:
    """Return CPU and statements of one worker process, its supervisor included."""
    count = database.statements or (lambda url: 0)
    before, used = count(run.url), cpu.seconds_below(pid, itself=True)
    time.sleep(arguments.seconds * 3)
    used = cpu.seconds_below(pid, itself=True) - used
    asked = count(run.url) - before
    share = arguments.seconds * 3 * arguments.processes
    return 100 * used / share, asked / share


# -- commits --------------------------------------------------------------------------------------


def _commits(databases: list[Database], arguments: argparse.Namespace, directory: Path) -> str:
    rows = []
    for database in databases:
        rates: dict[str, list[float]] = {}
        costs: dict[str, list[float]] = {}
        for _ in range(arguments.repeat):
            for contender in TURNS:
                rate, cost = _commit_rate(database, contender, arguments, directory)
                rates.setdefault(contender.title, []).append(rate)
                costs.setdefault(contender.title, []).append(cost)
        for what, found in (("commits/s", rates), ("CPU ms of each", costs)):
            ratios = [on / off for on, off in zip(found["on"], found["off"], strict=True)]
            columns = map(figures.figure, (found["on"], found["off"], ratios))
            rows.append([f"{database.name}: {what}", *columns])
    head = [f"{CLIENTS} processes that enqueue at once", "hints on", "off", "on / off"]
    return figures.table(head, rows)


def _commit_rate(
    database: Database, contender: Contender, arguments: argparse.Namespace, directory: Path
) -> tuple[float, float]:
    """Return the commits per second of all clients together, and the CPU milliseconds of each commit."""
    queues = {**contender.settings, "queues": ["default", "other"]}
    with (
        _run(database, ours(contender.title, **queues), directory) as run,
        run.worker(arguments.processes, "--queue=other") as worker,
    ):
        time.sleep(3)
        pids = [worker.pid, *filter(None, [database.pid and database.pid()])]
        used = sum(cpu.seconds_below(pid, itself=True) for pid in pids)
        used += _of_ended_children()
        run.do("rush", CLIENTS, arguments.seconds)
        used -= _of_ended_children() + sum(cpu.seconds_below(pid, itself=True) for pid in pids)
        count = sum(one.key for one in records.read(run.others))
        return count / arguments.seconds, -1000 * used / count


def _of_ended_children() -> float:
    return sum(resource.getrusage(resource.RUSAGE_CHILDREN)[:2])


# -- databases ------------------------------------------------------------------------------------


@contextmanager
def _run(
    database: Database, contender: Contender, directory: Path, broker: str = ""
) -> Iterator[Run]:
    """A run on an empty database."""
    name = f"run{uuid.uuid4().hex[:8]}"
    place = directory / name
    place.mkdir()
    run = Run(contender, database.new(name), broker, place)
    run.others.touch()
    run.do("prepare")
    yield run


@contextmanager
def _postgresql(directory: Path) -> Iterator[Database]:
    with Postgres(durable=True) as server:

        def ask(sql: str) -> Any:
            with psycopg.connect(server.url, autocommit=True) as connection:
                cursor = connection.execute(sql)
                return cursor.fetchone()[0] if cursor.description else None

        def new(name: str) -> str:
            ask(f"CREATE DATABASE {name}")
            return server.url.removesuffix("postgres") + name

        def statements(url: str) -> int:
            name = url.rpartition("/")[2]
            return int(
                ask(
                    "SELECT xact_commit + xact_rollback FROM pg_stat_database"
                    f" WHERE datname = '{name}'"
                )
            )

        ask("ALTER SYSTEM SET autovacuum = off")  # its visits would count as the worker's
        ask("SELECT pg_reload_conf()")
        yield Database("PostgreSQL", new, statements, lambda: server.home.pids[0])


@contextmanager
def _mariadb(directory: Path) -> Iterator[Database]:
    import pymysql

    with MariaDB() as server:
        session = pymysql.connect(host="127.0.0.1", port=server.port, user="root", autocommit=True)

        def ask(sql: str) -> Any:
            with session.cursor() as cursor:
                cursor.execute(sql)
                return cursor.fetchone()

        def new(name: str) -> str:
            ask(f"CREATE DATABASE {name}")
            return server.url.removesuffix("test") + name

        yield Database(
            "MariaDB",
            new,
            lambda url: int(ask("SHOW GLOBAL STATUS LIKE 'Questions'")[1]),
            lambda: server.home.pids[0],
        )
        session.close()


@contextmanager
def _sqlite(directory: Path) -> Iterator[Database]:
    yield Database("SQLite", lambda name: f"sqlite:///{directory}/{name}.sqlite3?timeout=5", None)


KINDS: Mapping[str, Any] = {"postgresql": _postgresql, "mariadb": _mariadb, "sqlite": _sqlite}


if __name__ == "__main__":
    main()
