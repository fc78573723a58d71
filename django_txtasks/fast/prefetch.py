"""Two decisions from the durations of recent tasks: how many tasks to claim ahead, and how long to gather
slots.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from django_txtasks.core.rows.attempts import Attempt

SHORT_SECONDS = 0.1
"""Mean seconds below which a task may be claimed before a slot is free for it."""
AHEAD_SECONDS = 0.15
"""Seconds of work to claim ahead: longer than a turn, and short enough that no other worker misses the tasks."""
BESIDE_APART_SECONDS = 0.01
"""Seconds of prefetched work for each slot while rows apart wait for a slot, too."""
SLOT_RUN_SECONDS = 0.02
"""Seconds of work that one slot gets at once."""
TINY_SECONDS = 0.005
"""Mean seconds below which a task may share a slot run with others."""
CLAIM_TASKS = 500
"""Maximum number of tasks in one claim."""
CLAIM_BYTES = 4 * 1024 * 1024
"""Approximate maximum of argument bytes in one claim ahead: 500 tasks may have 250 MB of arguments."""
FIRST_TASKS = 16
"""Tasks of the first claim ahead. Each later one takes up to twice as many as the last claim had short tasks."""
LONGEST_GATHER_SECONDS = 0.004
"""Longest time in seconds that a free slot waits for others."""
NEAR_WAITS = 3
"""Wait only for tasks that are expected to end within this number of gather periods."""
SOON_TASKS = 2.0
"""Do not wait for a slot whose task has already taken this number of mean durations: its end is unknown."""


class PrefetchPolicy:
    """Moving averages of the duration, for each task name. A task of unknown duration gets a slot of its own.

    Attributes:
        short: names of tasks that may be claimed ahead.
        most: number of tasks that are worth holding, running tasks included.
        mean: mean seconds of a short task; 0 = unknown.
    """

    def __init__(self, threads: int) -> None:
        self.short: frozenset[str] = frozenset()
        self.most, self.mean = 2 * CLAIM_TASKS, 0.0
        self._threads = threads
        self._means: dict[str, float] = {}
        self._width = FIRST_TASKS

    def took(self, name: str, seconds: float) -> None:
        """Update the averages from a task's duration."""
        mean = self._means.get(name, seconds)
        self._means[name] = mean + (seconds - mean) * 0.3
        if self._means[name] >= SHORT_SECONDS:
            self.short -= {name}
        else:
            if name not in self.short:
                self.short |= {name}
            before = self.mean or seconds
            self.mean = before + (seconds - before) * 0.1
            worth = int(AHEAD_SECONDS * self._threads / max(self.mean, 1e-9))
            self.most = min(2 * CLAIM_TASKS, worth)

    def ahead(self, held: int) -> int:
        """Return the number of short tasks that may be claimed beyond one for each free slot.

        Args:
            held: attempts that the worker holds.
        """
        if not self.mean or self.is_enough(held):
            return 0
        return max(0, min(self.most - held, self._width, CLAIM_TASKS))

    @property
    def beside_apart(self) -> int:
        """Number of short tasks that may be claimed beyond one for each free slot while rows apart wait."""
        return int(BESIDE_APART_SECONDS / max(self.mean, 1e-4)) * self._threads

    def is_enough(self, held: int) -> bool:
        """Return True if it is better to claim many later than a few now."""
        return held > self._threads + self.most / 2

    def runs(self, claimed: Sequence[Attempt]) -> Iterator[list[Attempt]]:
        """Yield the attempts of each slot run: tiny tasks together, every other task alone."""
        run: list[Attempt] = []
        work = 0.0
        for attempt in claimed:
            mean = (
                self._means.get(attempt.task_name, SHORT_SECONDS)
                if attempt.may_share
                else SHORT_SECONDS
            )
            if run and (mean >= TINY_SECONDS or work >= SLOT_RUN_SECONDS):
                yield run
                run, work = [], 0.0
            if mean >= TINY_SECONDS:
                yield [attempt]
            else:
                run.append(attempt)
                work += mean
        if run:
            yield run

    def learn(self, claimed: Sequence[Attempt]) -> None:
        """Adapt the size of the next claim ahead, because rows that are read and not taken are locked in vain."""
        names = self.short
        short = len([True for one in claimed if one.may_share and one.task_name in names])
        size = sum([len(one.args) + len(one.kwargs) for one in claimed])
        is_big = size > CLAIM_BYTES // CLAIM_TASKS
        fit = CLAIM_BYTES * len(claimed) // size if is_big else CLAIM_TASKS
        self._width = max(1, min(CLAIM_TASKS, fit, max(FIRST_TASKS, 2 * short))) if short else 1


class GatherPolicy:
    """Decides how long a free slot waits for others, from the durations of turns and short tasks.

    It waits at most as long as a turn takes, because a slot that becomes free just after the start of a turn waits
    as long for the end of that turn.
    """

    def __init__(self) -> None:
        self._turn_seconds = 0.0  # moving average; 0 = no turn yet

    def turn_took(self, seconds: float) -> None:
        """Update the average from a turn that claimed tasks."""
        before = self._turn_seconds or seconds
        self._turn_seconds = before + (seconds - before) * 0.1

    def seconds(self, task_seconds: float) -> float:
        """Return the seconds that a free slot may wait; 0 = none.

        Args:
            task_seconds: mean duration of short tasks; 0 = unknown.
        """
        return min(task_seconds, self._turn_seconds, LONGEST_GATHER_SECONDS)

    def begun_between(self, task_seconds: float, now: float) -> tuple[float, float]:
        """Return the span of start times of tasks that are worth waiting for, by the clock of ``now``."""
        latest = now - task_seconds + NEAR_WAITS * self.seconds(task_seconds)
        return now - SOON_TASKS * task_seconds, latest
