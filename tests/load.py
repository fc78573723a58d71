"""A sender that enqueues whatever happens to the servers, and records the answers of its COMMITs.

One line in its ledger for each transaction: ``committed KEY``, ``refused KEY`` or ``unknown KEY``. One in
ten is rolled back on purpose.
"""

from __future__ import annotations

import time
from pathlib import Path

from probe import tasks
from promises import promised


def send(writer: str, prefix: str, count: int) -> None:
    """Send ``count`` tasks as fast as possible."""
    with Path(writer).open("a", buffering=1) as lines:
        for number in range(count):
            _send(lines, prefix, number)


def send_until(enough: str, writer: str, prefix: str, pause: float) -> None:
    """Send tasks with pauses until the file ``enough`` exists."""
    number = 0
    with Path(writer).open("a", buffering=1) as lines:
        while not Path(enough).exists():
            _send(lines, prefix, number)
            number += 1
            time.sleep(pause)


def _send(lines, prefix: str, number: int) -> None:
    key = f"{prefix}-{number}"
    promise = promised(lambda: tasks.atomic_note.enqueue(key), roll_back=number % 10 == 9)
    lines.write(f"{promise} {key}\n")
