"""The effect of hints from the database itself, without RabbitMQ, and their cost.

    python benchmarks/nobroker.py [--databases postgresql,mariadb,sqlite] [--repeat 3]
        [--only latency,idle,commits] [--processes 4]

Latency: milliseconds from the return of the COMMIT to the first line of its task, with one task every 50
ms, and under a load of 100 a second; with RabbitMQ, for comparison. Idle: a worker's CPU in percent of one
core, and statements (PostgreSQL: transactions) per second, with nothing to do. Commits: transactions of one
task per second from 8 concurrent processes, and the CPU time of each (of the processes, the worker and the
database), beside a worker that receives the hints and serves another queue. On PostgreSQL, where the
enqueueing process sends the hints, the same processes turn them on and off every half second; on the other
databases, where workers look, runs take turns.
"""

from __future__ import annotations

import argparse
import os
import resource
import time
from typing import Any

import contest
import cpu
import figures
import psycopg
import records
from contest import Contender, Contest, Run, ours

CLIENTS = 8
SLICES, SLICE_SECONDS = 60, 0.5
CALM = 8
"""Seconds until what came with the start is over."""
TITLES = {"postgresql": "PostgreSQL", "mariadb": "MariaDB", "sqlite": "SQLite"}
STATEMENTS = {
    "postgresql": "SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = current_database()",
    "mariadb": "SELECT variable_value FROM information_schema.global_status WHERE variable_name = 'Questions'",
}
"""What counts those of all clients so far; nobody counts those of SQLite."""
OFF = {"broker_url": None, "database_hints": False}
ON = {"broker_url": None, "database_hints": True}
TURNS = {"on": ON, "off": OFF}


def main() -> None:
    """Print the tables."""
    arguments = _arguments()
    wanted = arguments.only.split(",")
    with contest.contest(mariadb="mariadb" in arguments.databases) as servers:
        _turn_off_autovacuum(servers.postgres.url)
        for name, measured in (("latency", _latencies), ("idle", _idleness), ("commits", _commits)):
            if name in wanted:
                print(measured(servers, arguments), flush=True)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--databases", type=_names, default=list(TITLES))
    parser.add_argument("--only", default="latency,idle,commits")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--tasks", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=10, help="of load, commits and idleness")
    parser.add_argument("--processes", type=int, default=1, help="of workers")
    return parser.parse_args()


def _turn_off_autovacuum(url: str) -> None:
    """Its visits would count as the worker's."""
    with psycopg.connect(url, autocommit=True) as session:
        session.execute("ALTER SYSTEM SET autovacuum = off")
        session.execute("SELECT pg_reload_conf()")


def _names(text: str) -> list[str]:
    return text.split(",")


def _contender(title: str, database: str, **settings: object) -> Contender:
    return ours(title, database, keep_finished=0, **settings)


# -- latency --------------------------------------------------------------------------------------


def _latencies(servers: Contest, arguments: argparse.Namespace) -> str:
    found: dict[tuple[str, str, str], list[list[float]]] = {}
    for _ in range(arguments.repeat):
        for database in arguments.databases:
            for title, settings in {**TURNS, "RabbitMQ": {}}.items():
                with (
                    servers.run(_contender(title, database, **settings)) as run,
                    run.worker(arguments.processes),
                ):
                    run.warm_up()
                    one_by_one = _waits(run, arguments.tasks, "pace", arguments.tasks, 0.05)
                    loaded = _waits(
                        run, int(arguments.seconds * 100), "flow", arguments.seconds, 100
                    )
                for kind, waits in (("one each 50 ms", one_by_one), ("100 a second", loaded)):
                    found.setdefault((TITLES[database], kind, title), []).append(waits)
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


def _idleness(servers: Contest, arguments: argparse.Namespace) -> str:
    found: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for _ in range(arguments.repeat):
        for database in arguments.databases:
            for title, settings in TURNS.items():
                with (
                    servers.run(_contender(title, database, **settings)) as run,
                    run.worker(arguments.processes) as worker,
                ):
                    run.warm_up()
                    time.sleep(CALM)
                    one = _idle(run, worker.pid, arguments)
                found.setdefault((TITLES[database], title), []).append(one)
    head = ["idle", "hints", "CPU % of one core", "statements/s"]
    return figures.table(
        head,
        [
            [*key, *(figures.figure(list(column)) for column in zip(*runs, strict=True))]
            for key, runs in found.items()
        ],
    )


def _idle(run: Run, pid: int, arguments: argparse.Namespace) -> tuple[float, float]:
    """Return CPU and statements of one worker process, its supervisor included."""
    before, used = _statements(run), cpu.seconds_below(pid, itself=True)
    time.sleep(arguments.seconds * 3)
    used = cpu.seconds_below(pid, itself=True) - used
    asked = _statements(run) - before
    share = arguments.seconds * 3 * arguments.processes
    return 100 * used / share, asked / share


def _statements(run: Run) -> int:
    sql = STATEMENTS.get(run.contender.database)
    return int(run.ask(sql)) if sql else 0


# -- commits --------------------------------------------------------------------------------------


def _commits(servers: Contest, arguments: argparse.Namespace) -> str:
    rows = []
    for database in arguments.databases:
        if database == "postgresql":
            rows.append(_commits_in_slices(servers, arguments))
        else:
            rows.extend(_commits_in_turns(servers, arguments, database))
    head = [f"{CLIENTS} processes that enqueue at once", "hints on", "off", "on / off"]
    return figures.table(head, rows)


def _commits_in_slices(servers: Contest, arguments: argparse.Namespace) -> list[Any]:
    """Return the row of PostgreSQL, where who enqueues sends the hints: the same processes, with and without."""
    rates: list[tuple[float, float]] = []
    contender = _contender("in slices", "postgresql", queues=["default", "other"], **ON)
    for _ in range(arguments.repeat):
        with servers.run(contender) as run, run.worker(arguments.processes, "--queue=other"):
            time.sleep(3)
            run.others.write_bytes(b"")
            run.do("rush", CLIENTS, SLICES * SLICE_SECONDS, SLICE_SECONDS)
            rates.append(_rates_of_slices(records.read(run.others)))
    on, off = ([one[index] for one in rates] for index in (0, 1))
    ratios = [one / other for one, other in rates]
    return ["PostgreSQL: commits/s", *map(figures.figure, (on, off, ratios))]


def _rates_of_slices(found: list[records.Record]) -> tuple[float, float]:
    """Return commits per second with hints and without them, of what all processes have recorded."""
    counts: dict[int, list[int]] = {}
    for one in found:
        counts.setdefault(one.pid, []).append(one.key)
    seconds = SLICES * SLICE_SECONDS / 2
    on, off = map(sum, zip(*counts.values(), strict=True))
    return on / seconds, off / seconds


def _commits_in_turns(
    servers: Contest, arguments: argparse.Namespace, database: str
) -> list[list[Any]]:
    """Return the rows of a database where only workers act on hints: runs with and without take turns."""
    rates: dict[str, list[float]] = {}
    costs: dict[str, list[float]] = {}
    for number in range(arguments.repeat):
        for title in TURNS if number % 2 == 0 else reversed(TURNS):
            contender = _contender(title, database, queues=["default", "other"], **TURNS[title])
            rate, cost = _commit_rate(servers, contender, arguments)
            rates.setdefault(title, []).append(rate)
            costs.setdefault(title, []).append(cost)
    rows = []
    for what, found in (("commits/s", rates), ("CPU ms of each", costs)):
        ratios = [on / off for on, off in zip(found["on"], found["off"], strict=True)]
        columns = map(figures.figure, (found["on"], found["off"], ratios))
        rows.append([f"{TITLES[database]}: {what}", *columns])
    return rows


def _commit_rate(
    servers: Contest, contender: Contender, arguments: argparse.Namespace
) -> tuple[float, float]:
    """Return the commits per second of all clients together, and the CPU milliseconds of each commit."""
    server = servers.databases[contender.database]
    with (
        servers.run(contender) as run,
        run.worker(arguments.processes, "--queue=other") as worker,
    ):
        time.sleep(3)
        run.others.write_bytes(b"")

        def used() -> float:
            own = cpu.seconds_below(worker.pid, itself=True)
            return own + server.cpu_seconds() + _of_ended_children()

        before = used()
        run.do("rush", CLIENTS, arguments.seconds)
        count = sum(one.key for one in records.read(run.others))
        return count / arguments.seconds, 1000 * (used() - before) / count


def _of_ended_children() -> float:
    return sum(resource.getrusage(resource.RUSAGE_CHILDREN)[:2])


if __name__ == "__main__":
    main()
