"""Concurrent transactions of several clients that enqueue the same task."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import records

COMMITTED, ROLLED_BACK, REFUSED = 1, 2, 3


def clash(
    count: str, together: str, seconds: str, transaction: Callable[[bool, Callable[[], None]], bool]
) -> None:
    """Run transactions concurrently; record the begin and the result of each.

    Args:
        transaction: enqueues under the key, calls the given function, and commits if told to; returns True
            if the task existed already. The time until that call is recorded, too, as a negative number of
            microseconds.
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
