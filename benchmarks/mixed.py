"""The wait of quick tasks behind slow ones: half of all tasks sleep 50 ms, the others do nothing.

    python benchmarks/mixed.py [--tasks 2000] [--threads 4] [--processes 1] [--load 0.8] [--repeat 3]

In a random order, once all at the same time, and once as a stream that keeps the slots busy for the share
``--load`` of the time. Printed is the wait of the quick half for its start, beside the wait in a perfect
queue with the same number of slots: first come, first served, without a cost of its own. That ideal is
computed for the same tasks and times of arrival. Each repetition has another order, because in a stream a
few crowded moments decide.
"""

from __future__ import annotations

import argparse
import heapq
from collections.abc import Mapping, Sequence

import contest
import figures
import options
import records
from contest import Contest

NAP = 0.05
FIRST = 100
"""Tasks of a stream that are not counted: while the sender loads its modules, they come late, in a burst."""
Waits = dict[int, float]


def main() -> None:
    """Print the table."""
    arguments = _arguments()
    found: dict[str, list[tuple[float, float]]] = {}
    with contest.contest() as servers:
        for title, measure in ("all at once", _at_once), ("a stream", _stream):
            for seed in range(arguments.repeat):
                pair = measure(servers, arguments, seed)
                options.progress(f"{title}: {pair}")
                found.setdefault(title, []).append(pair)
    head = ["quick tasks among slow ones", "p99 wait ms", "ideal p99 ms", "times the ideal"]
    print(figures.table(head, [[title, *_row(pairs)] for title, pairs in found.items()]))


def _arguments() -> argparse.Namespace:
    parser = options.parser(__doc__, tasks=2000)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument(
        "--load", type=float, default=0.8, help="share of the time that slots are busy"
    )
    arguments = parser.parse_args()
    if arguments.tasks <= 2 * FIRST:
        parser.error(
            f"--tasks {arguments.tasks}: give more than {2 * FIRST}; the first {FIRST} of a stream are not counted"
        )
    return arguments


def _at_once(servers: Contest, arguments: argparse.Namespace, seed: int) -> tuple[float, float]:
    own = options.own(arguments)
    with servers.run(own) as run:
        run.do("mix", arguments.tasks, NAP, seed)
        with run.worker(arguments.processes, *options.working(own, arguments)):
            run.wait_for(arguments.tasks)
        began = {record.key: record.ns for record in records.read(run.records)}
        order = [record.key for record in records.read(run.others)]
    return _p99s(dict.fromkeys(order, min(began.values())), began, _slots(arguments))


def _stream(servers: Contest, arguments: argparse.Namespace, seed: int) -> tuple[float, float]:
    every = NAP / 2 / _slots(arguments) / arguments.load
    own = options.own(arguments)
    with servers.run(own) as run:
        with run.worker(arguments.processes, *options.working(own, arguments)):
            run.warm_up()
            run.do("stream", arguments.tasks, NAP, seed, every)
            run.wait_for(arguments.tasks)
        began = {record.key: record.ns for record in records.read(run.records)}
        arrived = {record.key: record.ns for record in records.read(run.others)}
    return _p99s(arrived, began, _slots(arguments), first=FIRST)


def _slots(arguments: argparse.Namespace) -> int:
    return int(arguments.threads * arguments.processes)


def _p99s(
    arrived: Mapping[int, int], began: Mapping[int, int], slots: int, first: int = 0
) -> tuple[float, float]:
    """Return the 99th percentile of the quick half's waits in milliseconds, and the ideal one."""
    assert len(began) == len(arrived), f"{len(began)} of {len(arrived)} tasks ran"
    quick = [key for key in list(arrived)[first:] if not is_slow(key)]
    perfect = ideal(list(arrived.items()), slots)
    waits = [(began[key] - arrived[key]) / 1e6 for key in quick]
    return figures.percentile(waits, 99), figures.percentile([perfect[key] for key in quick], 99)


def ideal(arrivals: Sequence[tuple[int, int]], slots: int) -> Waits:
    """Return the milliseconds that each task waits when first come is first served."""
    free, waits = [0] * slots, {}
    for key, arrival in arrivals:
        start = max(arrival, heapq.heappop(free))
        heapq.heappush(free, start + int(NAP * 1e9 * is_slow(key)))
        waits[key] = (start - arrival) / 1e6
    return waits


def is_slow(key: int) -> bool:
    """Say which half a task belongs to."""
    return key % 2 == 1


def _row(pairs: Sequence[tuple[float, float]]) -> list[str]:
    waits, ideals = zip(*pairs, strict=True)
    times = [wait / perfect for wait, perfect in pairs]
    return [str(figures.figure(values)) for values in (waits, ideals, times)]


if __name__ == "__main__":
    main()
