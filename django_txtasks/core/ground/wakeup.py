"""The wake-up for which a loop waits until it has something to do."""

from __future__ import annotations

import contextlib
import threading


class WakeUp:
    """A wake-up that any thread and any signal handler may give, and for which one thread waits.

    The main thread should wait only for a short time at once: a signal that arrives at the start of the wait does
    not end it, and its handler runs after the wait.

    ``queue.SimpleQueue.get()`` with a timeout would not do. In CPython 3.10 to 3.12 it may wait for ever, because
    a deadline that passes while it takes its lock becomes a negative timeout. A lock keeps its timeout.
    """

    def __init__(self) -> None:
        self._silent = threading.Lock()  # held until ``wake``
        self._silent.acquire()

    def wake(self) -> None:
        """Wake the thread that waits, or the next wait. Two calls before a wait count once."""
        with contextlib.suppress(RuntimeError):  # woken before
            self._silent.release()

    def wait(self, seconds: float) -> None:
        """Wait until woken, at most ``seconds``. Return at once if they are negative."""
        self._silent.acquire(timeout=max(0.0, seconds))
