"""Counts of ended attempts in the memory of one process, until it appends them as rows."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from typing import Any, NamedTuple

from django_txtasks.database.cost import Cost
from django_txtasks.features.figures import histogram

MAX_NAMES = 1000
"""Number of pairs of queue and task function that are counted apart. Others are counted as ``OTHERS``."""
OTHERS = "(others)"
"""Name for task functions beyond ``MAX_NAMES``. No function can have this name."""
OF_PROCESSES = "(processes)"
"""In place of a queue: the count belongs to no task, but to the processes that serve the database. It is in
``other``, under one of the next two names."""
TRANSACTIONS, ROWS_WRITTEN = "(transactions)", "(rows written)"
"""The names of what processes cost the database."""
MAX_COUNT = 10**18
"""Highest count. The sum of two of them still fits in a column."""


class Name(NamedTuple):
    """A queue and a task function. An empty function = all functions of the queue."""

    queue: str
    task: str = ""


class Columns(NamedTuple):
    """The values of the columns of ``StatColumns``, without the names."""

    succeeded: int
    failed: int
    died: int
    other: int
    run_ms: int
    wait: str
    run: str

    @property
    def are_valid(self) -> bool:
        """False for values that no process of this package has written. SQLite accepts any value in a column."""
        values: tuple[Any, ...] = self
        *numbers, wait, run = values
        are_counts = all(isinstance(one, int) and 0 <= one <= MAX_COUNT for one in numbers)
        return are_counts and isinstance(wait, str) and isinstance(run, str)


class Counts:
    """Counts of the ended attempts of one name.

    Attributes:
        other: attempts that ended otherwise, such as by a snooze, and tasks that were cancelled or expired.
        run_ms: milliseconds of all attempts.
        wait, run: number of attempts by bucket: see ``histogram``.
    """

    __slots__ = ("died", "failed", "other", "run", "run_ms", "succeeded", "wait")

    def __init__(self) -> None:
        self.succeeded = self.failed = self.died = self.other = 0
        self.run_ms = 0.0
        self.wait, self.run = histogram.empty(), histogram.empty()

    def took(self, waited: float, seconds: float) -> None:
        """Count the times of an attempt: from due to its claim, and from its start to its end."""
        # a call of a function for each task would cost more
        self.wait[bisect_left(histogram.BOUNDS, waited)] += 1
        self.run[bisect_left(histogram.BOUNDS, seconds)] += 1
        self.run_ms += 1000.0 * seconds

    def add(self, columns: Columns) -> None:
        """Add the values of a row, unless they are invalid."""
        if not columns.are_valid:
            return
        self.succeeded += columns.succeeded
        self.failed += columns.failed
        self.died += columns.died
        self.other += columns.other
        self.run_ms += columns.run_ms
        histogram.add_text(self.wait, columns.wait)
        histogram.add_text(self.run, columns.run)

    def columns(self) -> Columns:
        """Return the values of a row."""
        return Columns(
            min(self.succeeded, MAX_COUNT),
            min(self.failed, MAX_COUNT),
            min(self.died, MAX_COUNT),
            min(self.other, MAX_COUNT),
            min(round(self.run_ms), MAX_COUNT),
            histogram.text_of(self.wait),
            histogram.text_of(self.run),
        )


class Tally:
    """The counts of one process by name. Only one thread uses it."""

    def __init__(self) -> None:
        self._counts: dict[tuple[str, str], Counts] = {}

    def __bool__(self) -> bool:
        """Return True if anything was counted."""
        return bool(self._counts)

    def of(self, queue: str, task: str) -> Counts:
        """Return the counts of this name, to be changed."""
        found = self._counts.get((queue, task))
        if found is None:
            name = task if len(self._counts) < MAX_NAMES else OTHERS
            found = self._counts.setdefault((queue, name), Counts())
        return found

    def add_cost(self, cost: Cost) -> None:
        """Add what this process has cost the database."""
        for name, number in ((TRANSACTIONS, cost.transactions), (ROWS_WRITTEN, cost.rows)):
            if number:
                self._counts.setdefault((OF_PROCESSES, name), Counts()).other += number

    def take(self) -> Tally:
        """Return all counts, and begin anew without them."""
        taken = Tally()
        taken._counts, self._counts = self._counts, {}
        return taken

    def items(self) -> Iterator[tuple[Name, Counts]]:
        """Yield the counts by name, in order."""
        for queue, task in sorted(self._counts):
            yield Name(queue, task), self._counts[queue, task]
