"""Many transactions that enqueue the same task: which wait, which fail, and which tasks are left to run.

    python benchmarks/same_key.py [--transactions 100] [--together 20]
        [--peers pgqueuer,procrastinate --peers-python X/bin/python]

``--together`` clients run at once. Each transaction enqueues a task under one key, then works for 0.2 s;
every second one is rolled back. No worker runs. Peers enqueue on the connection of the transaction, in a
savepoint, because without it each error about the key would end the transaction. X as for drain.py.
"""

from __future__ import annotations

import argparse

import contest
import figures
import options
import records
from contest import Contender, Contest

SECONDS = 0.2
COMMITTED, ROLLED_BACK, REFUSED = 1, 2, 3
WAITING = {
    "txtasks": "SELECT count(*) FROM txtasks_task",
    "procrastinate": "SELECT count(*) FROM procrastinate_jobs",
    "pgqueuer": "SELECT count(*) FROM pgqueuer",
}


def main() -> None:
    """Print the table."""
    parser = options.parser(__doc__)
    parser.add_argument("--transactions", type=int, default=100)
    parser.add_argument("--together", type=int, default=20)
    arguments = parser.parse_args()
    contenders = options.contenders(argparse.Namespace(**{**vars(arguments), "broker": "none"}))
    with contest.contest() as servers:
        rows = [_one(servers, arguments, contender) for contender in contenders]
    head = [
        "",
        "seconds",
        "enqueue p50, ms",
        "longest",
        "committed",
        "told: it is there",
        "rows that wait",
    ]
    print(figures.table(head, rows))


def _one(servers: Contest, arguments: argparse.Namespace, contender: Contender) -> list[str]:
    with servers.run(contender) as run:
        run.do("clash", arguments.transactions, arguments.together, SECONDS)
        found = records.read(run.others)
        waiting = int(run.ask(WAITING[contender.name]))
    seconds = (found[-1].ns - found[0].ns) / 1e9
    codes = [one.key for one in found]
    took = sorted(-one / 1000 for one in codes if one < 0)
    return [
        contender.title,
        f"{seconds:.2f}",
        f"{took[len(took) // 2]:.0f}",
        f"{took[-1]:.0f}",
        str(codes.count(COMMITTED)),
        str(codes.count(REFUSED)),
        str(waiting),
    ]


if __name__ == "__main__":
    main()
