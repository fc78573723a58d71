"""The cost of membership in a batch.

    python benchmarks/batch.py [--tasks 10000] [--repeat 5] [--databases postgresql,mariadb,sqlite] [--history off]

On each database, with one worker process: no-ops per second from the first to the last, without a batch and
as members of one, in turns; rows per second of enqueue_many(), 5,000 per call; and the milliseconds from
the last member to the start of the batch's hook. Only ratios within one run count.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass

import contest
import figures
import options
import records
from contest import Contest, ours

HOOK = -1
"""What the hook of a batch records."""


@dataclass(frozen=True)
class Figures:
    """No-ops and rows per second, and the milliseconds until the hook; None = without a batch."""

    drained: float
    enqueued: float
    hook: float | None = None


def main() -> None:
    """Print the table."""
    parser = options.parser(__doc__, tasks=10_000)
    parser.add_argument("--databases", default="postgresql,mariadb,sqlite")
    arguments = parser.parse_args()
    names = arguments.databases.split(",")
    measured: dict[tuple[str, bool], list[Figures]] = {}
    with contest.contest(mariadb="mariadb" in names) as servers:
        for _ in range(arguments.repeat):
            for database in names:
                for batched in (False, True):
                    found = _one(servers, arguments, database, batched=batched)
                    print(database, found, flush=True)
                    measured.setdefault((database, batched), []).append(found)
    print(_table(names, measured))


def _one(
    servers: Contest, arguments: argparse.Namespace, database: str, *, batched: bool
) -> Figures:
    keep = None if arguments.history == "on" else 0
    contender = ours(database=database, broker_url=None, keep_finished=keep)
    count = arguments.tasks
    with servers.run(contender) as run:
        servers.settle()
        seconds = run.seconds("batch" if batched else "enqueue", count)
        with run.worker(1, f"--threads={arguments.threads}"):
            run.wait_for(count + batched)
        found = records.read(run.records)
    ends = [one.ns for one in found if one.key >= 0]
    hooks = [one.ns for one in found if one.key == HOOK]
    hook = (hooks[0] - max(ends)) / 1e6 if batched else None
    return Figures(count / ((max(ends) - min(ends)) / 1e9), count / seconds, hook)


def _table(names: list[str], measured: dict[tuple[str, bool], list[Figures]]) -> str:
    rows = []
    for name in names:
        plain, members = measured[name, False], measured[name, True]
        pairs = list(zip(members, plain, strict=True))
        rows.append(
            [
                name,
                figures.figure([one.drained for one in plain]),
                figures.figure([one.drained for one in members]),
                figures.figure([one.drained / other.drained for one, other in pairs]),
                figures.figure([one.enqueued / other.enqueued for one, other in pairs]),
                figures.figure([one.hook or 0.0 for one in members]),
            ]
        )
    titles = ["", "tasks/s", "members/s", "share", "enqueue, share", "hook after ms"]
    return figures.table(titles, rows)


if __name__ == "__main__":
    main()
