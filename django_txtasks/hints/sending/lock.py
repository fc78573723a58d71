"""The lock of a connection: each thread that commits uses the connection for microseconds, and one thread looks
after it.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

PATIENCE_SECONDS = 2.0


class BriefLock:
    """A lock that committing threads take without waiting, for microseconds. One thread waits for it and holds it
    longer.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()

    def is_held(self) -> bool:
        """Return True if the lock is held."""
        return self._lock.locked()

    def take_at_once(self) -> threading.Lock | None:
        """Take the lock. Return the object to release; None = another thread has the lock."""
        lock = self._lock
        return lock if lock.acquire(blocking=False) else None

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold the lock for the block, in the one thread that may wait."""
        if not self._lock.acquire(timeout=PATIENCE_SECONDS):
            # A time limit has ended the thread that held the lock before it could release the lock, because a
            # release takes microseconds.
            self._lock = threading.Lock()
            self._lock.acquire()
        lock = self._lock
        try:
            yield
        finally:
            lock.release()
