"""The time from a commit to the first line of its task.

    python benchmarks/latency.py [--tasks 200] [--every 0.05] [--repeat 3] [--chart latency.svg]
        [--peers pgqueuer,dramatiq,celery,procrastinate,django_tasks_db --peers-python X/bin/python]

One task every 50 ms, while one worker process is idle: milliseconds from the return of the COMMIT that
enqueued it to the task's record, by one clock. A figure below 0 means that the task began before its sender
knew of the commit. The first 20 tasks of each sender are not counted, because it connects with them. With a
broker and without one; without, a scan finds the task, every poll_interval (1 s). Only ratios within one
run count.
"""

from __future__ import annotations

import argparse

import contest
import figures
import options
import records
from contest import Contender, Contest, Run, ours

NOT_COUNTED = 20
"""Tasks with which a sender connects."""


def main() -> None:
    """Print the table."""
    arguments = _arguments()
    found: dict[str, list[list[float]]] = {}
    with contest.contest() as servers:
        for contender in _contenders(arguments) * arguments.repeat:  # they take turns
            one = _measured(servers, contender, arguments)
            found.setdefault(contender.title, []).append(one)
    print(_table(found))
    if arguments.chart:
        bars = [(title, _of_each(runs, 50)) for title, runs in found.items()]
        figures.chart(arguments.chart, "Milliseconds from commit to start, p50", bars)


def _arguments() -> argparse.Namespace:
    parser = options.parser(__doc__, tasks=200)
    parser.add_argument("--every", type=float, default=0.05, help="seconds")
    return parser.parse_args()


def _contenders(arguments: argparse.Namespace) -> list[Contender]:
    own = [ours(), ours("django-txtasks, no broker", broker_url=None)]
    return [*own, *options.peers(arguments)]


def _measured(servers: Contest, contender: Contender, arguments: argparse.Namespace) -> list[float]:
    with servers.run(contender) as run, run.worker(1, *options.working(contender, arguments)):
        found = waits(run, arguments.tasks, arguments.every)
    options.progress(f"{contender.title}: p50 {figures.percentile(found, 50):.2f} ms")
    return found


def waits(run: Run, tasks: int, every: float) -> list[float]:
    """Return the milliseconds of each task."""
    run.warm_up()
    tasks += NOT_COUNTED
    run.do("pace", tasks, every)
    run.wait_for(tasks)
    began = {record.key: record.ns for record in records.read(run.records)}
    assert len(began) == tasks, f"{len(began)} of {tasks} tasks ran"
    return [
        (began[record.key] - record.ns) / 1e6
        for record in records.read(run.others)
        if record.key >= NOT_COUNTED
    ]


def _table(found: dict[str, list[list[float]]]) -> str:
    head = ["worker", "p50 ms: min / median / max", "p99 ms", "slowest"]
    rows = [
        [title, _of_each(runs, 50), _of_each(runs, 99), figures.short(max(map(max, runs)))]
        for title, runs in found.items()
    ]
    return figures.table(head, rows)


def _of_each(runs: list[list[float]], percent: float) -> figures.Figure:
    return figures.figure([figures.percentile(one, percent) for one in runs])


if __name__ == "__main__":
    main()
