"""Enqueues a task of each kind per transaction, and notes what it was promised.

One line in TXTASKS_PROMISES before each transaction, ``begun KEY``, and one after it: ``committed
KEY`` or ``refused KEY`` (it certainly did not commit). If the second is missing, who knows.
"""

from __future__ import annotations

import os
from pathlib import Path

from django.db import DatabaseError, InterfaceError, connection, transaction
from orders.models import Order

from failpoints import tasks

KEYS = ("first", "second", "third", "rolled-back")


class RolledBack(Exception):
    """On purpose."""


def main() -> None:
    """Send them all."""
    with Path(os.environ["TXTASKS_PROMISES"]).open("a", buffering=1) as lines:
        for key in KEYS:
            lines.write(f"begun {key}\n")
            if promise := send(key):
                lines.write(f"{promise} {key}\n")


def send(key: str) -> str:
    """Write a row of the business and three tasks; return what was promised of them."""
    written = False
    try:
        with transaction.atomic():
            Order.objects.create(customer=key)
            for kind in tasks.KINDS:
                getattr(tasks, kind).enqueue(f"{key} {kind}")
            if key == "rolled-back":
                raise RolledBack
            written = True
    except RolledBack:
        return "refused"
    except (DatabaseError, InterfaceError):
        connection.close()
        return "" if written else "refused"
    return "committed"
