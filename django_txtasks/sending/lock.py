"""The lock of a connection that whoever commits uses for microseconds, and one thread looks after."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

PATIENCE_SECONDS = 2.0


class BriefLock:
    """Held for microseconds by those who never wait for it, and for longer by one thread, which does."""

    def __init__(self) -> None:
        self._lock = threading.Lock()

    def is_held(self) -> bool:
        """Say whether somebody has it."""
        return self._lock.locked()

    def take_at_once(self) -> threading.Lock | None:
        """Return what to release; None = somebody else has it."""
        lock = self._lock
        return lock if lock.acquire(blocking=False) else None

    @contextmanager
    def held(self) -> Iterator[None]:
        """Have it for the block; for the one thread that may wait."""
        if not self._lock.acquire(timeout=PATIENCE_SECONDS):
            # who had it was ended by a time limit before it could give it back: it takes microseconds
            self._lock = threading.Lock()
            self._lock.acquire()
        lock = self._lock
        try:
            yield
        finally:
            lock.release()
