"""No queue: threads of a Django process that do the tasks' work, with keys from memory."""

from __future__ import annotations

import os
import queue
import signal
import threading
from pathlib import Path

import records

from peers import with_django

_COUNT = Path(os.environ[records.VARIABLE]).with_name("count")


def prepare() -> None:
    """Make the table."""
    with_django.make_table()


def enqueue(count: str) -> None:
    """Say how many there are."""
    _COUNT.write_text(count)


def work(processes: str, threads: str) -> None:
    """Write the rows in several threads, then wait for the stop signal."""
    keys: queue.SimpleQueue[int] = queue.SimpleQueue()
    for key in range(int(_COUNT.read_text())):
        keys.put(key)

    def run() -> None:
        while True:
            with_django.write_row(keys.get())

    for _ in range(int(threads.removeprefix("--threads="))):
        threading.Thread(target=run, daemon=True).start()
    signal.pause()
