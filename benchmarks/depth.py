"""The speed of tasks that are due now, while many rows are due later.

    python benchmarks/depth.py [--later 500000,2000000] [--tasks 20000] [--repeat 1] [--chart depth.svg]
        [--peers pgqueuer,procrastinate,django_tasks_db --peers-python X/bin/python]

A drain of drain.py in a table with rows that are due from tomorrow on: none, then ``--later`` rows of the
same priority, then half of them of a higher priority, with a broker and without. The table was vacuumed and
analyzed before. Peers get the first number of rows, with and without higher priorities.
"""

from __future__ import annotations

import argparse
import functools
from collections.abc import Iterator

import drains
import options
from contest import Contender, Run
from drains import Case

HIGHER = 50


def main() -> None:
    """Print the table."""
    parser = options.parser(__doc__)
    parser.add_argument("--later", default="500000,2000000")
    parser.set_defaults(repeat=1)
    arguments = parser.parse_args()
    cases = list(_cases(arguments))
    drains.report(cases, drains.measured(cases, arguments), arguments)


def _cases(arguments: argparse.Namespace) -> Iterator[Case]:
    counts = [int(count) for count in arguments.later.split(",")]
    for broker in ("rabbitmq", "none"):
        yield from _cases_of(options.own(arguments, broker=broker), counts)
    for peer in options.peers(arguments):
        yield from _cases_of(peer, counts[:1])


def _cases_of(contender: Contender, counts: list[int]) -> Iterator[Case]:
    title = contender.title
    yield Case(title, contender)
    for count in counts:
        for priority, words in (0, "later"), (HIGHER, "later, half of higher priority"):
            before = functools.partial(_fill, count=count, priority=priority)
            yield Case(f"{title}, {count:,} {words}", contender, before=before, base=title)


def _fill(run: Run, count: int, priority: int) -> None:
    run.do("later", count, priority)


if __name__ == "__main__":
    main()
