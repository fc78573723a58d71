"""Event loops all of whose shared threads are held by tasks while others wait for one. Their workers report it."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from dataclasses import dataclass

from django_txtasks.core.ground.wording import counted
from django_txtasks.features.progress.notes import HELD_FROM, THREADS
from django_txtasks.features.progress.rows import progress_at

NAME = "held_threads"
"""Name of the problem and of the finding, for programs."""


@dataclass(frozen=True)
class HeldThreads:
    """An event loop whose threads are held.

    Attributes:
        worker: host and process id.
        count: number of tasks that wait for a thread.
        seconds: length of the longest wait.
        holding: the functions of the tasks that have the threads, with their numbers.
        waiting: the functions of the tasks that wait, with their numbers.
    """

    worker: str
    count: int
    seconds: float
    holding: str
    waiting: str

    @property
    def function(self) -> str:
        """The function of most of the tasks that have the threads."""
        return self.holding.partition(" ")[0]

    def __str__(self) -> str:
        return (
            f"{self.worker}: {self.holding} have the threads; {counted(self.count, 'task')} without, the "
            f"first one for {self.seconds:.0f} s: {self.waiting}"
        )


def held_threads(alias: str, workers: Iterable[uuid.UUID]) -> tuple[HeldThreads, ...]:
    """Return the event loops of these workers whose threads are held.

    Raises:
        DatabaseError: the database cannot be reached.
    """
    ids = list(workers)
    notes = progress_at(alias, ids) if ids else {}
    return tuple(
        HeldThreads(key.removeprefix(THREADS), int(one.total or 0), one.done, holding, waiting)
        for key, one in sorted(notes.items())
        if key.startswith(THREADS)
        for holding, _, waiting in [one.note.partition(HELD_FROM)]
    )
