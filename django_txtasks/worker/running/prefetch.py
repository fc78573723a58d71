"""Two decisions from how long tasks have been taking here: how many to claim ahead, and how long to gather."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from django_txtasks.lifecycle.attempts import Attempt

SHORT_SECONDS = 0.1
"""Seconds: what usually takes less may be claimed before a slot is free for it."""
AHEAD_SECONDS = 0.15
"""Seconds of work that may be claimed ahead: long enough for a turn, too short to be missed elsewhere."""
BESIDE_LANES_SECONDS = 0.01
"""Seconds of work that a slot may have before it while tasks of lanes wait for one, too."""
SLOT_RUN_SECONDS = 0.02
"""Seconds of work that one slot is handed at once."""
TINY_SECONDS = 0.005
"""Seconds: what usually takes less may be handed to a slot together with others."""
CLAIM_TASKS = 500
"""Tasks that are claimed at once, at most."""
CLAIM_BYTES = 4 * 1024 * 1024
"""Bytes of arguments that are claimed ahead at once, about: 500 tasks may have 250 MB of them."""
FIRST_TASKS = 16
"""Tasks that are claimed ahead at first; then twice as many as the last claim has shown to be short."""
LONGEST_GATHER_SECONDS = 0.004
"""Seconds that a free slot waits for others, at most."""
NEAR_WAITS = 3
"""A task whose usual end is farther away than so many waits is not waited for."""
SOON_TASKS = 2.0
"""Slots whose tasks have taken longer than so many short ones are not waited for: who knows when they end."""


class PrefetchPolicy:
    """A moving average for each name of a task. Unknown names are not short: they get a slot of their own.

    Attributes:
        short: the names of tasks that may be claimed ahead.
    """

    def __init__(self, threads: int) -> None:
        self.short: frozenset[str] = frozenset()
        self._threads = threads
        self._means: dict[str, float] = {}
        self._mean: float | None = None
        self._width = FIRST_TASKS

    def took(self, name: str, seconds: float) -> None:
        """Update the averages: a task of this name took so long."""
        mean = self._means.get(name, seconds)
        self._means[name] = mean + (seconds - mean) * 0.3
        if self._means[name] >= SHORT_SECONDS:
            self.short -= {name}
        else:
            if name not in self.short:
                self.short |= {name}
            before = seconds if self._mean is None else self._mean
            self._mean = before + (seconds - before) * 0.1

    @property
    def mean(self) -> float:
        """Seconds that a short task takes; zero = none is known."""
        return self._mean or 0.0

    def ahead(self, held: int) -> int:
        """Return how many short tasks may be claimed beyond one for each free slot, if ``held`` are in hand."""
        if self._mean is None or self.is_enough(held):
            return 0
        return max(0, min(self.most - held, self._width, CLAIM_TASKS))

    @property
    def beside_lanes(self) -> int:
        """How many short tasks may be claimed beyond one for each free slot while lanes wait for a slot."""
        return int(BESIDE_LANES_SECONDS / max(self._mean or 0.0, 1e-4)) * self._threads

    def is_enough(self, held: int) -> bool:
        """Say whether it is better to claim many again later than a few now."""
        return held > self._threads + self.most / 2

    @property
    def most(self) -> int:
        """Return how many tasks are worth holding, with those that run."""
        return min(
            2 * CLAIM_TASKS, int(AHEAD_SECONDS * self._threads / max(self._mean or 0.0, 1e-9))
        )

    def runs(self, claimed: Sequence[Attempt]) -> Iterator[list[Attempt]]:
        """Yield what slots are handed at once: tiny tasks together, each other one alone."""
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
        """Learn from a claim ahead how many to ask for next: rows looked at and not taken are locked in vain."""
        names = self.short
        short = len([True for one in claimed if one.may_share and one.task_name in names])
        size = sum([len(one.args) + len(one.kwargs) for one in claimed])
        is_big = size > CLAIM_BYTES // CLAIM_TASKS
        fit = CLAIM_BYTES * len(claimed) // size if is_big else CLAIM_TASKS
        self._width = max(1, min(CLAIM_TASKS, fit, max(FIRST_TASKS, 2 * short))) if short else 1


class GatherPolicy:
    """Decides how long a free slot waits for others, by how long turns and short tasks have been taking here.

    No longer than a turn takes: a slot that becomes free after a turn has begun waits as long for its end.
    """

    def __init__(self) -> None:
        self._turn_seconds = 0.0  # a moving average; zero = there was none

    def turn_took(self, seconds: float) -> None:
        """Update the average: a turn that claimed something took so long."""
        before = self._turn_seconds or seconds
        self._turn_seconds = before + (seconds - before) * 0.1

    def seconds(self, task_seconds: float) -> float:
        """Return how long a free slot may wait, where a short task takes so long; zero = none is known."""
        return min(task_seconds, self._turn_seconds, LONGEST_GATHER_SECONDS)

    def begun_between(self, task_seconds: float, now: float) -> tuple[float, float]:
        """Return when the tasks have begun that are waited for, by the clock of ``now``."""
        latest = now - task_seconds + NEAR_WAITS * self.seconds(task_seconds)
        return now - SOON_TASKS * task_seconds, latest
