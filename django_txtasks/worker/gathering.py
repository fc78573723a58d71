"""The wait of a free slot for others, in a backlog: one turn for several costs little more than for one."""

from __future__ import annotations

LONGEST_SECONDS = 0.004
"""Seconds that a free slot waits for others, at most."""
NEAR_WAITS = 3
"""A task whose usual end is farther away than so many waits is not waited for."""
SOON_TASKS = 2.0
"""Slots whose tasks have taken longer than so many short ones are not waited for: who knows when they end."""


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
        return min(task_seconds, self._turn_seconds, LONGEST_SECONDS)

    def begun_between(self, task_seconds: float, now: float) -> tuple[float, float]:
        """Return when the tasks have begun that are waited for, by the clock of ``now``."""
        latest = now - task_seconds + NEAR_WAITS * self.seconds(task_seconds)
        return now - SOON_TASKS * task_seconds, latest
