"""Transactions of several clients at once that want the same task."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import records

COMMITTED, ROLLED_BACK, REFUSED = 1, 2, 3


def clash(
    count: str, together: str, seconds: str, transaction: Callable[[bool, Callable[[], None]], bool]
) -> None:
    """Run so many transactions, so many at once; record the begin and what came of each.

    Args:
        transaction: enqueues under the key, calls what it is given, and commits if it is told to; returns whether
            it was told that the task is there already. What it took until that call is recorded, too, as a
            negative number of microseconds.
    """
    left, lock = list(range(int(count))), threading.Lock()

    def client() -> None:
        while True:
            with lock:
                if not left:
                    return
                number = left.pop()
            commits = number % 2 == 0
            begun, enqueued = time.monotonic_ns(), [0]

            def work(enqueued: list[int] = enqueued) -> None:
                enqueued[0] = time.monotonic_ns()
                time.sleep(float(seconds))

            refused = transaction(commits, work)
            with lock:
                records.write((begun - enqueued[0]) // 1000)
                if refused:
                    records.write(REFUSED)
                records.write(COMMITTED if commits else ROLLED_BACK)

    threads = [threading.Thread(target=client) for _ in range(int(together))]
    records.write(0)
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
