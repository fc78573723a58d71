"""The names that the counts since the first attempt keep apart. All others are one name, ``OTHERS``."""

from __future__ import annotations

from collections.abc import Iterable

from django_txtasks.features.figures.tally import MAX_NAMES, OF_PROCESSES, OTHERS, Name

MAX_QUEUES = 100
"""Number of queues that are counted apart. A monitor gets two histograms of each, which are 56 lines."""


class Places:
    """The names that have a place of their own: the first ones that came, for good, so that no counter falls.

    Args:
        names: the names that have one already. If they are too many, the first ones keep it.
    """

    def __init__(self, names: Iterable[Name]) -> None:
        self._queues: set[str] = set()
        self._names: set[Name] = set()
        for name in names:
            self.take(name)

    def take(self, name: Name) -> Name:
        """Return the name under which this one is counted. While there are places, it gets its own."""
        if name.queue == OF_PROCESSES:
            return name
        if not self._takes_queue(name.queue):
            return Name(OTHERS, OTHERS)
        if name.task == OTHERS or name in self._names:
            return name
        if len(self._names) >= MAX_NAMES:
            return Name(name.queue, OTHERS)
        self._names.add(name)
        return name

    def _takes_queue(self, queue: str) -> bool:
        if queue not in self._queues and queue != OTHERS and len(self._queues) < MAX_QUEUES:
            self._queues.add(queue)
        return queue in self._queues
