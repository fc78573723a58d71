"""The time from a commit to the task's result, as a waiting caller sees it.

    python benchmarks/results.py [--tasks 200] [--waiters 1000] [--repeat 3]

One after the other: milliseconds from the return of the COMMIT that enqueued a no-op to the return of
``handle.result()``, while one worker process is idle, with RabbitMQ and without; and the same with
``aresult()``. Then ``--waiters`` coroutines wait at once, for tasks that have been enqueued together:
seconds until the last of them has its result, the number of statements that looked for results, and,
without waiters, seconds until the last task has run.
"""

from __future__ import annotations

import argparse

import contest
import figures
import options
import records
from contest import Contender, Contest, ours


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tasks", type=int, default=200)
    parser.add_argument("--waiters", type=int, default=1000)
    parser.add_argument("--repeat", type=int, default=3)
    arguments = parser.parse_args()
    contenders = [ours("with RabbitMQ"), ours("without a broker", broker_url=None)]
    one_by_one, at_once = [], []
    with contest.contest() as servers:
        for contender in contenders:
            for way in ("result", "aresult"):
                runs = [
                    _waits(servers, contender, way, arguments.tasks)
                    for _ in range(arguments.repeat)
                ]
                cells = [
                    figures.figure([figures.percentile(run, q) for run in runs]) for q in (50, 99)
                ]
                one_by_one.append([f"{way}(), {contender.title}", *map(str, cells)])
                options.progress(" ".join(one_by_one[-1]))
            found = [
                _at_once(servers, contender, arguments.waiters) for _ in range(arguments.repeat)
            ]
            cells = [figures.figure(list(column)) for column in zip(*found, strict=True)]
            at_once.append([contender.title, *map(str, cells)])
    print(figures.table(["from commit to result, ms", "p50", "p99"], one_by_one))
    print()
    head = [f"{arguments.waiters:,} coroutines", "seconds", "statements", "seconds, nobody waits"]
    print(figures.table(head, at_once))


def _waits(servers: Contest, contender: Contender, way: str, tasks: int) -> list[float]:
    with servers.run(contender) as run, run.worker(1, "--threads=4"):
        run.warm_up()
        run.do("wait", tasks, way)
        begun = {one.key: one.ns for one in records.read(run.others) if one.key >= 0}
        ended = {-one.key - 1: one.ns for one in records.read(run.others) if one.key < 0}
        assert len(ended) == tasks
        return [(ended[key] - begun[key]) / 1e6 for key in range(20, tasks)]


def _at_once(servers: Contest, contender: Contender, waiters: int) -> tuple[float, float, float]:
    with servers.run(contender) as run, run.worker(1, "--threads=4"):
        run.warm_up()
        run.do("await_all", waiters)
        begun, ended, statements = records.read(run.others)[-3:]
        seconds = (ended.ns - begun.ns) / 1e9
    with servers.run(contender) as run, run.worker(1, "--threads=4"):
        run.warm_up()
        run.do("await_all", waiters, "nobody")
        begun = records.read(run.others)[-1]
        run.wait_for(waiters)
        alone = max(one.ns for one in records.read(run.records)) - begun.ns
    return seconds, statements.key, alone / 1e9


if __name__ == "__main__":
    main()
