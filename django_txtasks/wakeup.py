"""The event that a loop waits on until somebody has something for it."""

from __future__ import annotations

import contextlib
import threading


class WakeEvent:
    """Woken from any thread and from signal handlers; waited on by one thread.

    The main thread should not wait long at a time: a signal that comes as it begins to wait does not end the wait,
    and its handler runs after it.

    A timed ``get()`` of ``queue.SimpleQueue`` would not do: in CPython 3.10 to 3.12 it may wait for ever, as a
    deadline that passes while it takes its lock becomes a negative time-out. A lock keeps its time.
    """

    def __init__(self) -> None:
        self._silent = threading.Lock()  # held until somebody wakes it
        self._silent.acquire()

    def wake(self) -> None:
        """Wake who waits, or who waits next; two calls before a wait are one."""
        with contextlib.suppress(RuntimeError):  # it was woken before
            self._silent.release()

    def wait(self, seconds: float) -> None:
        """Return when woken, or after ``seconds``; immediately if they are negative."""
        self._silent.acquire(timeout=max(0.0, seconds))
