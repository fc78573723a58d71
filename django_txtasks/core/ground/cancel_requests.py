"""The attempts of this process that were asked to stop. The worker's loop writes it, slots read it."""

from __future__ import annotations

import contextlib
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import timedelta

UNHEARD_AFTER = timedelta(seconds=10)
"""Time after which a task that was asked to stop seems not to check for this. Workers look each second."""
Key = tuple[uuid.UUID, int]
"""The id of a task and the number of an attempt."""


class CancelRequests:
    """The attempts that were asked to stop, and the functions to call at such a request."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._asked: set[Key] = set()
        self._watchers: dict[Key, Callable[[], None]] = {}

    def include(self, task_id: uuid.UUID, attempt: int) -> bool:
        """Return True if this attempt was asked to stop."""
        return (task_id, attempt) in self._asked

    def update(self, asked: Iterable[Key], running: Iterable[Key]) -> None:
        """Note the attempts that were asked to stop, and call their functions. Forget ended attempts."""
        with self._lock:
            new = set(asked) - self._asked
            self._asked = (self._asked & set(running)) | new
            called = [self._watchers[key] for key in new if key in self._watchers]
        for call in called:
            call()

    @contextmanager
    def watched(self, task_id: uuid.UUID, attempt: int, call: Callable[[], None]) -> Iterator[None]:
        """Call ``call`` if this attempt is asked to stop inside the block: from another thread, or at once."""
        key = task_id, attempt
        with self._lock:
            self._watchers[key] = call
            is_asked = key in self._asked
        try:
            if is_asked:
                call()
            yield
        finally:
            with self._lock, contextlib.suppress(KeyError):
                del self._watchers[key]


NOBODY = CancelRequests()
"""No requests, for tests that run tasks in their own thread, where no worker looks."""
