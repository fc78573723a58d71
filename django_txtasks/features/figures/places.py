"""The names that the counts since the first attempt keep apart. All others are one name, ``OTHERS``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable

from django_txtasks.features.figures.tally import MAX_NAMES, OF_PROCESSES, OTHERS, Name

MAX_QUEUES = 100
"""Number of queues that are counted apart. A monitor gets two histograms of each, which are 56 lines."""

MAX_NAMES_ELSEWHERE = 100
"""Number of names that are counted apart in a queue of another system, where a call may have any name."""


class Places:
    """The names that have a place of their own: the first ones that came, for good, so that no counter falls.

    Args:
        names: the names that have one already. If they are too many, the first ones keep it.
        elsewhere: the queues of other systems.
    """

    def __init__(self, names: Iterable[Name], elsewhere: Collection[str] = ()) -> None:
        self._elsewhere, self._counts = frozenset(elsewhere), Counter[str]()
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
        if len(self._names) >= MAX_NAMES or self._is_full(name.queue):
            return Name(name.queue, OTHERS)
        self._names.add(name)
        self._counts[name.queue] += 1
        return name

    def is_elsewhere(self, queue: str) -> bool:
        """Return True if other systems run the tasks of the queue."""
        return queue in self._elsewhere

    def _is_full(self, queue: str) -> bool:
        return self.is_elsewhere(queue) and self._counts[queue] >= MAX_NAMES_ELSEWHERE

    def _takes_queue(self, queue: str) -> bool:
        if queue not in self._queues and queue != OTHERS and len(self._queues) < MAX_QUEUES:
            self._queues.add(queue)
        return queue in self._queues
