"""The lateness of a task that is due at a set time.

    python benchmarks/on_time.py [--tasks 10000] [--seconds 60] [--processes 2] [--waiting 1000000] [--kill]
        [--repeat 1] [--broker none] [--peers celery,procrastinate --peers-python X/bin/python]

The tasks are enqueued beforehand, in bulk, for random times within ``--seconds``; the first is due 12
seconds later, so that no hint of a commit announces it. Lateness is the time from the due time to the
record that the task writes, by clocks of one machine; less than zero is too early. --waiting fills the
queue with rows that are due tomorrow. --kill ends the worker process that ran the last task with SIGKILL,
half-way: the tasks that it had claimed do not run, because no cleaner runs, and their number is printed.
For comparison, the time that a worker without load needs from a commit to a start is printed, too
(``latency.py``). Only figures of one run compare.
"""

from __future__ import annotations

import argparse
import os
import signal
import time

import contest
import cpu
import figures
import latency
import options
import records
from contest import Contender, Contest, Run

AHEAD = 12.0
"""Seconds from now to the first instant."""


def main() -> None:
    """Print the table."""
    arguments = _arguments()
    found: dict[str, list[tuple[list[float], float]]] = {}
    base: list[float] = []
    with contest.contest() as servers:
        for contender in options.contenders(arguments) * arguments.repeat:
            if contender.name == "txtasks":
                with servers.run(contender) as run, run.worker(1, f"--threads={arguments.threads}"):
                    base += latency.waits(run, 200, 0.05)
            one = _measured(servers, contender, arguments)
            found.setdefault(contender.title, []).append(one)
    print(_table(found))
    print(f"\nfrom a commit to a start, without load: p50 {figures.percentile(base, 50):.1f} ms")


def _arguments() -> argparse.Namespace:
    parser = options.parser(__doc__, tasks=10_000)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--waiting", type=int, default=0)
    parser.add_argument("--kill", action="store_true")
    parser.set_defaults(repeat=1)
    return parser.parse_args()


def _measured(
    servers: Contest, contender: Contender, arguments: argparse.Namespace
) -> tuple[list[float], float]:
    """Return the milliseconds by which each task was late, and the CPU milliseconds per task."""
    tasks = options.tasks(contender, arguments)
    with servers.run(contender) as run:
        if arguments.waiting and contender.name != "celery":
            run.do("later", arguments.waiting)
            servers.settle()
        with run.worker(arguments.processes, *options.working(contender, arguments)):
            run.warm_up()
            run.do("appoint", tasks, AHEAD, arguments.seconds)
            set_for = {record.key: record.ns for record in records.read(run.others)}
            _sleep_until(min(set_for.values()))
            used = cpu.seconds_below(os.getpid())
            if arguments.kill:
                _sleep_until((min(set_for.values()) + max(set_for.values())) // 2)
                os.kill(records.read(run.records)[-1].pid, signal.SIGKILL)
                _sleep_until(max(set_for.values()) + 5 * 10**9)
            else:
                run.wait_for(tasks)
            used = cpu.seconds_below(os.getpid()) - used
        late = _late(run, set_for)
    options.progress(f"{contender.title}: p50 {figures.percentile(late, 50):.2f} ms")
    return late, 1000 * used / tasks


def _sleep_until(ns: int) -> None:
    time.sleep(max(0.0, (ns - time.monotonic_ns()) / 1e9))


def _late(run: Run, set_for: dict[int, int]) -> list[float]:
    began = {record.key: record.ns for record in records.read(run.records)}
    if left := set_for.keys() - began.keys():
        options.progress(f"{len(left)} of {len(set_for)} did not run")
    return [(began[key] - at) / 1e6 for key, at in set_for.items() if key in began]


def _table(found: dict[str, list[tuple[list[float], float]]]) -> str:
    head = ["worker", "earliest ms", "p50", "p99", "latest", "CPU ms/task"]
    rows = []
    for title, runs in found.items():
        cells = [figures.figure([min(late) for late, _ in runs])]
        cells += [
            figures.figure([figures.percentile(late, q) for late, _ in runs]) for q in (50, 99)
        ]
        cells += [figures.figure([max(late) for late, _ in runs])]
        cells += [figures.figure([used for _, used in runs])]
        rows.append([title, *cells])
    return figures.table(head, rows)


if __name__ == "__main__":
    main()
