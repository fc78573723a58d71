"""How many no-op tasks a second a worker gets done, and what each costs.

    python benchmarks/drain.py [--tasks 20000] [--repeat 3] [--processes 1,2] [--threads 4]
        [--policy default] [--history on] [--broker none] [--chart drain.svg]
        [--peers pgqueuer,dramatiq,celery,procrastinate,django_tasks_db --peers-python X/bin/python]

The tasks are enqueued beforehand, in bulk; then a worker is started. Each run of a task appends a
record to a file. The speed is that from the first record to the last; with several processes, from
the first record of the last process to join. CPU is that of all processes together, the servers'
included, from the first record until half a second after the last. Each key must have run exactly
once, and no row may be left.

Right before each figure the limit is measured, on the same server and table: one process that claims
100 (500) rows in one statement, calls a no-op for each, and deletes them in one statement. Only
ratios within one run count. X comes from
`python -m venv X && X/bin/pip install -U pip && X/bin/pip install --group peers`.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass

import contest
import cpu
import figures
import options
import records
from contest import LIMIT, Contender, Contest, Run

SETTLE = 0.5
"""Seconds after the last record, in which what ended is written."""
ENOUGH = 20_000
"""Tasks of a limit at least: fewer are done before they can be timed."""


@dataclass(frozen=True)
class Drain:
    """One drain: its speed, its cost, and the limits right before it by their batch."""

    rate: float
    cpu_ms: float
    limits: dict[int, float]


def main() -> None:
    """Print the table."""
    arguments = _arguments()
    found: dict[tuple[str, int], list[Drain]] = {}
    with contest.contest() as servers:
        for processes in map(int, arguments.processes.split(",")):
            for contender in options.contenders(arguments):
                one = [
                    _measured(servers, contender, processes, arguments)
                    for _ in range(arguments.repeat)
                ]
                found[contender.title, processes] = one
    print(_table(found))
    if arguments.chart:
        bars = [
            (_label(*key), figures.figure([one.rate for one in drains]))
            for key, drains in found.items()
        ]
        figures.chart(arguments.chart, "Tasks per second", bars)


def _arguments() -> argparse.Namespace:
    parser = options.parser(__doc__)
    parser.add_argument("--processes", default="1,2", help="of the worker, one drain for each")
    return parser.parse_args()


def _measured(
    servers: Contest, contender: Contender, processes: int, arguments: argparse.Namespace
) -> Drain:
    limits = {batch: limit(servers, arguments.tasks, batch) for batch in (100, 500)}
    with servers.run(contender) as run:
        tasks = options.tasks(contender, arguments)
        run.do("enqueue", tasks, *options.enqueueing(contender, arguments))
        servers.settle()
        rate, cpu_ms = drain(run, tasks, processes, *options.working(contender, arguments))
    options.progress(
        f"{contender.title}, {processes}: {rate:,.0f}/s, {cpu_ms:.3f} ms, limits {limits}"
    )
    return Drain(rate, cpu_ms, limits)


def limit(servers: Contest, tasks: int, batch: int) -> float:
    """Return the tasks per second that the database allows by such batches."""
    tasks = max(tasks, ENOUGH)
    with servers.run(LIMIT) as run:
        run.do("enqueue", tasks)
        servers.settle()
        return drain(run, tasks, 1, f"--batch={batch}")[0]


def drain(run: Run, tasks: int, processes: int, *more: object) -> tuple[float, float]:
    """Have a worker run what is enqueued; return tasks per second and CPU milliseconds per task."""
    with run.worker(processes, *more):
        run.wait_for(1)
        start, used = records.count(run.records), cpu.seconds_below(os.getpid())
        run.wait_for(tasks)
        time.sleep(SETTLE)
        used = cpu.seconds_below(os.getpid()) - used
    run.check(range(tasks))
    return speed(records.read(run.records), processes), 1000 * used / (tasks - start)


def speed(runs: Sequence[records.Record], processes: int) -> float:
    """Return tasks per second from when the last process joined, if that was soon enough to tell."""
    joined: dict[int, int] = {}
    for run in sorted(runs, key=lambda run: run.ns):
        joined.setdefault(run.pid, run.ns)
    start = max(joined.values()) if len(joined) == processes else min(joined.values())
    counted = sum(run.ns > start for run in runs)
    if counted < len(runs) / 3:
        start, counted = min(joined.values()), len(runs) - 1
    return counted / (max(run.ns for run in runs) - start) * 1e9


def _table(found: dict[tuple[str, int], list[Drain]]) -> str:
    head = [
        "worker",
        "tasks/s: min / median / max",
        "of limit",
        "CPU ms/task",
        "limit 100",
        "limit 500",
    ]
    rows = []
    for key, drains in found.items():
        share = figures.figure([one.rate / one.limits[100] for one in drains])
        limits = [figures.figure([one.limits[batch] for one in drains]) for batch in (100, 500)]
        rates, used = [one.rate for one in drains], [one.cpu_ms for one in drains]
        rows.append([_label(*key), figures.figure(rates), share, figures.figure(used), *limits])
    return figures.table(head, rows)


def _label(title: str, processes: int) -> str:
    return f"{title}, {processes} process{'es' * (processes > 1)}"


if __name__ == "__main__":
    main()
