"""A standby of PostgreSQL, synchronous or asynchronous, is promoted while tasks are enqueued and run.

    python tests/topologies/standby.py
    python tests/topologies/standby.py synchronous

In each failover the standby's link is cut for 0.7 s, then the primary is killed. The asynchronous standby does
not have the commits of this time: they are lost together with their data, and counted as `lacked`. A default task
whose claim was lost runs again (`default_reclaimed`).
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import topology  # isort: skip -- it says where the next ones are
import failovers
from servers import RabbitMQ

FAILOVERS = 3


def play(*, synchronous: bool) -> int:
    """Print the account; return the exit status."""
    with RabbitMQ() as broker:
        account = failovers.run(
            failovers=FAILOVERS, tasks=topology.TASKS, seconds=topology.SECONDS, workers=2,
            broker=broker.url, synchronous=synchronous,
            say=lambda text: print(text, file=sys.stderr, flush=True),
        )  # fmt: skip
    passed = account.passed and not (synchronous and (account.lacked or account.default_reclaimed))
    name = "synchronous" if synchronous else "asynchronous"
    print(f"{name}: {json.dumps({**account.as_dict(), 'passed': passed})}")
    return int(not passed)


CASES = {
    "synchronous": lambda: play(synchronous=True),
    "asynchronous": lambda: play(synchronous=False),
}

if __name__ == "__main__":
    sys.exit(topology.main(str(Path(__file__)), CASES))
