"""How long tasks have been taking here, and so how many are worth claiming ahead."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from django_txtasks.lifecycle.attempts import Attempt

SHORT = 0.005
"""Seconds: what usually takes less may share a slot."""
AHEAD = 0.15
"""Seconds of work that may be claimed ahead: long enough for a turn, too short to be missed elsewhere."""
RUN = 0.02
"""Seconds of work that one slot is handed at once."""
BATCH = 500
"""Tasks that are claimed at once, at most."""
FIRST = 16
"""Tasks that are claimed ahead at first; then as many more as the last claim has shown to be short."""


class Pace:
    """A moving average for each name of a task. Unknown names are not short: they get a slot of their own."""

    def __init__(self) -> None:
        self._means: dict[str, float] = {}
        self._mean = 0.0
        self._width = FIRST

    def took(self, name: str, seconds: float) -> None:
        """A task of this name took so long."""
        mean = self._means.get(name, seconds)
        self._means[name] = mean + (seconds - mean) * 0.3
        if self._means[name] < SHORT:
            self._mean += (seconds - self._mean) * 0.1

    def is_short(self, name: str) -> bool:
        """Say whether tasks of this name may share a slot."""
        return self._means.get(name, SHORT) < SHORT

    def together(self, waiting: int) -> int:
        """Return how many more tasks may be claimed ahead, where so many wait or run already."""
        most = 2 * BATCH if self._mean <= 0 else min(2 * BATCH, int(AHEAD / self._mean))
        if waiting > most / 2 or not self._means:
            return 0
        return min(most - waiting, self._width, BATCH)

    def runs(self, claimed: Sequence[Attempt]) -> Iterator[list[Attempt]]:
        """Yield what slots are handed at once: short tasks together, each other one alone."""
        run: list[Attempt] = []
        shared = 0
        for attempt in claimed:
            if not (attempt.may_share and self.is_short(attempt.task_name)):
                if run:
                    yield run
                    run = []
                yield [attempt]
                continue
            shared += 1
            run.append(attempt)
            if len(run) * self._means[attempt.task_name] >= RUN:
                yield run
                run = []
        if run:
            yield run
        if claimed:  # what is looked at beyond that is locked in vain
            self._width = min(BATCH, max(FIRST, 2 * shared))
