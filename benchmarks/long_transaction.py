"""The speed of a queue while another session keeps a transaction open: drains under an old snapshot.

    python benchmarks/long_transaction.py [--minutes 5] [--tasks 20000] [--peer-tasks 2000]
        [--peers pgqueuer,procrastinate,django_tasks_db --peers-python X/bin/python]

One drain without the snapshot; then one drain after another under it, for ``--minutes``, at least two. No
dead row can be removed meanwhile, so each drain leaves its dead rows to the next ones. The table shows the
first and second drain under the snapshot, and the last one, beside the one before it. The limit is measured
before and after, in a database of its own, because the machine may have become slower meanwhile.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager

import contest
import drains
import figures
import options
import psycopg
from contest import Contender, Contest, Run


def main() -> None:
    """Print the table."""
    arguments = _arguments()
    with contest.contest() as servers:
        contenders = [options.own(arguments), options.own(arguments, broker="none")]
        contenders += options.peers(arguments)
        found = {one.title: _rates(servers, one, arguments) for one in contenders}
    head = [
        "tasks/s",
        "before",
        "1st under it",
        "2nd",
        "last",
        "last / before",
        "of limit: last / before",
        "drains",
        "limit 100, before",
        "after",
    ]
    print(figures.table(head, [[title, *_row(*rates)] for title, rates in found.items()]))
    if arguments.chart:
        bars = [(title, figures.figure(rates[-1:])) for title, (_, rates) in found.items()]
        figures.chart(arguments.chart, "Tasks per second, last drain under an old snapshot", bars)


def _arguments() -> argparse.Namespace:
    parser = options.parser(__doc__)
    parser.add_argument("--minutes", type=float, default=5)
    return parser.parse_args()


def _rates(
    servers: Contest, contender: Contender, arguments: argparse.Namespace
) -> tuple[list[float], list[float]]:
    """Return the limits before and after, and the rates of a drain before the snapshot and of those under it."""
    limits = [drains.limit(servers, arguments.tasks, 100)]
    with servers.run(contender) as run:
        rates = [_drain(servers, run, arguments)]
        with _snapshot(run.url):
            end = time.monotonic() + 60 * arguments.minutes
            while len(rates) < 3 or time.monotonic() < end:
                rates.append(_drain(servers, run, arguments))
    return [*limits, drains.limit(servers, arguments.tasks, 100)], rates


def _drain(servers: Contest, run: Run, arguments: argparse.Namespace) -> float:
    os.truncate(run.records, 0)
    tasks = options.tasks(run.contender, arguments)
    run.do("enqueue", tasks, *options.enqueueing(run.contender, arguments))
    servers.settle()
    rate, _ = drains.drain(run, tasks, 1, *options.working(run.contender, arguments))
    options.progress(f"{run.contender.title}: {rate:,.0f}/s")
    return rate


@contextmanager
def _snapshot(url: str) -> Iterator[None]:
    """A session that can still see everything that is deleted meanwhile."""
    with psycopg.connect(url) as connection:
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        connection.execute("SELECT count(*) FROM pg_class")
        yield


def _row(limits: list[float], rates: list[float]) -> list[str]:
    before, first, second, *_ = rates
    ratio = rates[-1] / before
    of_limit = ratio * limits[0] / limits[1]
    shown = [before, first, second, rates[-1], ratio, of_limit, len(rates) - 1, *limits]
    return [figures.short(value) for value in shown]


if __name__ == "__main__":
    main()
