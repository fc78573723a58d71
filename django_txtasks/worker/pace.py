"""How long tasks have been taking here, and so how many are worth claiming ahead."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from django_txtasks.lifecycle.attempts import Attempt

SHORT = 0.1
"""Seconds: what usually takes less may be claimed before a slot is free for it."""
AHEAD = 0.15
"""Seconds of work that may be claimed ahead: long enough for a turn, too short to be missed elsewhere."""
RUN = 0.02
"""Seconds of work that one slot is handed at once."""
TINY = 0.005
"""Seconds: what usually takes less may be handed to a slot together with others."""
BATCH = 500
"""Tasks that are claimed at once, at most."""
FIRST = 16
"""Tasks that are claimed ahead at first; then as many more as the last claim has shown to be short."""


class Pace:
    """A moving average for each name of a task. Unknown names are not short: they get a slot of their own.

    Attributes:
        short: the names of tasks that may be claimed ahead.
    """

    def __init__(self, threads: int) -> None:
        self.short: set[str] = set()
        self._threads = threads
        self._means: dict[str, float] = {}
        self._mean: float | None = None
        self._width = FIRST

    def took(self, name: str, seconds: float) -> None:
        """A task of this name took so long."""
        mean = self._means.get(name, seconds)
        self._means[name] = mean + (seconds - mean) * 0.3
        if self._means[name] >= SHORT:
            self.short.discard(name)
        else:
            self.short.add(name)
            before = seconds if self._mean is None else self._mean
            self._mean = before + (seconds - before) * 0.1

    def ahead(self, held: int) -> int:
        """Return how many short tasks may be claimed beyond one for each free slot, where so many are held."""
        if self._mean is None:
            return 0
        most = min(2 * BATCH, int(AHEAD * self._threads / max(self._mean, 1e-9)))
        if held > most / 2:
            return 0
        return min(most - held, self._width, BATCH)

    def runs(self, claimed: Sequence[Attempt]) -> Iterator[list[Attempt]]:
        """Yield what slots are handed at once: tiny tasks together, each other one alone."""
        run: list[Attempt] = []
        work, short = 0.0, 0
        for attempt in claimed:
            mean = self._means.get(attempt.task_name, SHORT) if attempt.may_share else SHORT
            short += mean < SHORT
            if run and (mean >= TINY or work >= RUN):
                yield run
                run, work = [], 0.0
            if mean >= TINY:
                yield [attempt]
            else:
                run.append(attempt)
                work += mean
        if run:
            yield run
        if claimed:  # what is looked at beyond that is locked in vain
            self._width = min(BATCH, max(FIRST, 2 * short))
