"""A sender that keeps enqueueing whatever happens to the servers, and knows what it was promised.

    python tests/load.py LEDGER PREFIX COUNT [SECONDS between two]

One line in LEDGER for each transaction: ``committed KEY``, ``refused KEY`` (it certainly did not
commit) or ``unknown KEY`` (the answer to its COMMIT was lost). One in ten is rolled back on purpose.
"""

from __future__ import annotations

import sys
import time

import django

django.setup()

from django.db import DatabaseError, InterfaceError, connection, transaction  # noqa: E402
from probe import tasks  # noqa: E402


class RolledBack(Exception):
    """On purpose."""


def send(key: str, *, roll_back: bool) -> str:
    """Enqueue one task in a transaction; return what became of it."""
    written = False
    try:
        with transaction.atomic():
            tasks.atomic_note.enqueue(key)
            if roll_back:
                raise RolledBack
            written = True
    except RolledBack:
        return "refused"
    except (DatabaseError, InterfaceError):
        connection.close()
        return "unknown" if written else "refused"
    return "committed"


def main(ledger: str, prefix: str, count: str, pause: str = "0") -> None:
    """Send them all."""
    with open(ledger, "a", buffering=1) as lines:
        for number in range(int(count)):
            key = f"{prefix}-{number}"
            lines.write(f"{send(key, roll_back=number % 10 == 9)} {key}\n")
            time.sleep(float(pause))


if __name__ == "__main__":
    main(*sys.argv[1:])
