"""The threads that run tasks: nothing else runs user code, and they write no row but by a task's own."""

from __future__ import annotations

import queue
import threading
import uuid
from collections.abc import Callable

from django.db import connections

from django_txtasks.lifecycle.attempts import Arrow, Attempt, Ended

Fence = tuple[uuid.UUID, int, uuid.UUID]


class Slots:
    """So many threads, each running one attempt at a time.

    Args:
        run: runs an attempt to its end and never raises.
        ring: called from a slot when one has ended.
    """

    def __init__(
        self, count: int, *, run: Callable[[Attempt], Ended], ring: Callable[[], None]
    ) -> None:
        self._run, self._ring = run, ring
        self._work: queue.SimpleQueue[Attempt | None] = queue.SimpleQueue()
        self._ended: queue.SimpleQueue[Ended] = queue.SimpleQueue()
        self._running: dict[Fence, Attempt] = {}
        self._threads = [
            threading.Thread(target=self._slot, name=f"txtasks-slot-{number}", daemon=True)
            for number in range(1, count + 1)
        ]
        for thread in self._threads:
            thread.start()

    @property
    def running(self) -> int:
        """How many attempts were started and not yet collected."""
        return len(self._running)

    @property
    def free(self) -> int:
        """How many attempts can start at once."""
        return len(self._threads) - len(self._running)

    def holds(self) -> set[tuple[uuid.UUID, int]]:
        """(id, attempt) of what is running."""
        return {(task_id, number) for task_id, number, _ in self._running}

    def start(self, attempt: Attempt) -> None:
        """Give an attempt to a free slot."""
        self._running[attempt.fence] = attempt
        self._work.put(attempt)

    def collect(self) -> list[Ended]:
        """Return what has ended since the last call."""
        ended: list[Ended] = []
        while True:
            try:
                one = self._ended.get_nowait()
            except queue.Empty:
                return ended
            del self._running[one.attempt.fence]
            ended.append(one)

    def close(self) -> None:
        """End the threads, which must be idle."""
        for _ in self._threads:
            self._work.put(None)
        for thread in self._threads:
            thread.join()

    def _slot(self) -> None:
        while (attempt := self._work.get()) is not None:
            try:
                ended = self._run(attempt)
            except BaseException as error:  # a slot that died would keep its row claimed for ever
                ended = Ended(attempt=attempt, arrow=Arrow.BURY, error={"type": repr(type(error))})
            self._ended.put(ended)
            self._ring()
        connections.close_all()
