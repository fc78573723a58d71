"""Which attempts of this process were asked to stop. Written by a worker's loop, read by its slots."""

from __future__ import annotations

import contextlib
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

Key = tuple[uuid.UUID, int]
"""The id of a task and the number of an attempt."""


class CancelRequests:
    """The attempts that were asked to stop, and who wants to be called then."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._asked: set[Key] = set()
        self._watchers: dict[Key, Callable[[], None]] = {}

    def include(self, task_id: uuid.UUID, attempt: int) -> bool:
        """Say whether this attempt was asked to stop."""
        return (task_id, attempt) in self._asked

    def update(self, asked: Iterable[Key], running: Iterable[Key]) -> None:
        """Note who was asked to stop, and call those who watch; forget who does not run any more."""
        with self._lock:
            new = set(asked) - self._asked
            self._asked = (self._asked & set(running)) | new
            called = [self._watchers[key] for key in new if key in self._watchers]
        for call in called:
            call()

    @contextmanager
    def watched(self, task_id: uuid.UUID, attempt: int, call: Callable[[], None]) -> Iterator[None]:
        """Have ``call`` called when this attempt is asked to stop in the block: by another thread, or at once."""
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
"""Where no worker looks, as in tests that run tasks in their own thread."""
