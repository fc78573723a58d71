"""Common parts of all drains: cases that take turns, each right after its limit, and their table."""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Sequence
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
class Case:
    """A drain under one condition.

    Attributes:
        before: content of the table before the tasks are enqueued.
        size: bytes of arguments of each task; for this package only.
        base: title of the case with which this one is compared.
    """

    title: str
    contender: Contender
    processes: int = 1
    before: Callable[[Run], object] | None = None
    size: int = 0
    base: str = ""


@dataclass(frozen=True)
class Drain:
    """One drain: its speed, its cost, and the limits right before it by their batch."""

    rate: float
    cpu_ms: float
    limits: dict[int, float]


Found = dict[str, list[Drain]]


def measured(cases: Sequence[Case], arguments: argparse.Namespace) -> Found:
    """Return what each case did, in rounds in which they take turns."""
    found: Found = {case.title: [] for case in cases}
    with contest.contest() as servers:
        for _ in range(arguments.repeat):
            for case in cases:
                one = _measured(servers, case, arguments)
                options.progress(f"{case.title}: {one}")
                found[case.title].append(one)
    return found


def report(cases: Sequence[Case], found: Found, arguments: argparse.Namespace) -> None:
    """Print the table; draw the chart if one is asked for."""
    head = ["worker", "tasks/s", "of limit", "CPU ms/task", "limit 100", "limit 500"]
    compared = any(case.base for case in cases)
    rows = [[case.title, *_row(found[case.title])] for case in cases]
    if compared:
        head.insert(2, "of its first")
        for row, case in zip(rows, cases, strict=True):
            row.insert(2, str(_share(found[case.title], found[case.base or case.title])))
    print(figures.table(head, rows))
    if arguments.chart:
        bars = [
            (title, figures.figure([one.rate for one in drains])) for title, drains in found.items()
        ]
        figures.chart(arguments.chart, "Tasks per second", bars)


def _row(drains: Sequence[Drain]) -> list[str]:
    columns = [
        [one.rate for one in drains],
        [one.rate / one.limits[100] for one in drains],
        [one.cpu_ms for one in drains],
        *([one.limits[batch] for one in drains] for batch in (100, 500)),
    ]
    return [str(figures.figure(column)) for column in columns]


def _share(drains: Sequence[Drain], bases: Sequence[Drain]) -> figures.Figure:
    return figures.figure([one.rate / base.rate for one, base in zip(drains, bases, strict=True)])


def _measured(servers: Contest, case: Case, arguments: argparse.Namespace) -> Drain:
    limits = {batch: limit(servers, arguments.tasks, batch) for batch in (100, 500)}
    tasks = options.tasks(case.contender, arguments)
    with servers.run(case.contender) as run:
        if case.before is not None:
            case.before(run)
        kept = run.left()
        run.do("enqueue", tasks, *options.enqueueing(case.contender, arguments, case.size))
        servers.settle()
        options_of_worker = options.working(case.contender, arguments)
        rate, cpu_ms = drain(run, tasks, case.processes, *options_of_worker, kept=kept)
    return Drain(rate, cpu_ms, limits)


def limit(servers: Contest, tasks: int, batch: int) -> float:
    """Return the tasks per second that the database allows by such batches."""
    tasks = max(tasks, ENOUGH)
    with servers.run(LIMIT) as run:
        run.do("enqueue", tasks)
        servers.settle()
        return drain(run, tasks, 1, f"--batch={batch}")[0]


def drain(
    run: Run, tasks: int, processes: int, *more: object, kept: int = 0
) -> tuple[float, float]:
    """Have a worker run the enqueued tasks; return tasks per second and CPU milliseconds per task.

    Fail unless each task ran exactly once and no rows are left except those to be ``kept``.
    """
    with run.worker(processes, *more):
        run.wait_for(1)
        start, used = records.count(run.records), cpu.seconds_below(os.getpid())
        run.wait_for(tasks)
        time.sleep(SETTLE)
        used = cpu.seconds_below(os.getpid()) - used
    run.check(range(tasks), kept)
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
