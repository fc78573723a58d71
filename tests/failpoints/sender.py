"""Enqueues a task of each kind per transaction, and records the answer to its COMMIT.

One line in TXTASKS_PROMISES before each transaction, ``begun KEY``, and one after it: ``committed KEY`` or
``refused KEY`` (it certainly did not commit). Without the second line the result is unknown.
"""

from __future__ import annotations

import functools
import os
from pathlib import Path

from orders.models import Order
from promises import promised

from failpoints import tasks

KEYS = ("first", "second", "third", "rolled-back")


def main(promises: Path | None = None) -> None:
    """Send them all."""
    with (promises or Path(os.environ["TXTASKS_PROMISES"])).open("a", buffering=1) as lines:
        for key in KEYS:
            lines.write(f"begun {key}\n")
            promise = promised(functools.partial(write, key), roll_back=key == "rolled-back")
            if promise != "unknown":
                lines.write(f"{promise} {key}\n")


def write(key: str) -> None:
    """Write a row of the business and three tasks."""
    Order.objects.create(customer=key)
    for kind in tasks.KINDS:
        getattr(tasks, kind).enqueue(f"{key} {kind}")
