"""A cleaner's pass: the steps that it takes once per clean interval, in small pieces."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from django.db import DatabaseError

from django_txtasks import signals
from django_txtasks.core.ground.config import CoreConfig
from django_txtasks.core.ground.retry import jitter
from django_txtasks.core.rows import workers
from django_txtasks.database.errors import is_in_the_way, is_repeatable, text_of

Step = Callable[[], Iterator[Counter[str]]]
MOST_LEFT_OUT = 20
"""Clean intervals for which a cleaner relies on the passes of others. Then it makes one of its own, because others
may have other settings, such as ``keep_finished``, or an older release.
"""
REPEATS = 3
"""Number of times that a step is repeated in one pass. After that the next pass tries again."""


class Passes:
    """Makes one pass after the other. Times are from ``clock``.

    Args:
        since_another: returns the seconds since another cleaner's pass that makes one by this cleaner needless;
            None = this cleaner makes it.
        steps: each yields its counts after each bounded piece of work. A failing step does not stop the others.
        emit: emits a signal with its facts.

    Attributes:
        error: error of the step that failed last in this pass; empty = none failed.
    """

    def __init__(
        self,
        alias: str,
        config: CoreConfig,
        steps: Sequence[Step],
        since_another: Callable[[], float | None],
        *,
        emit: Callable[..., None],
        clock: Callable[[], float],
    ) -> None:
        self._alias, self._config, self._steps = alias, config, steps
        self._since_another, self._emit, self._clock = since_another, emit, clock
        self._pieces: Iterator[Counter[str]] | None = None
        self._next = float("-inf")
        self._own_at = self._clock() + self._longest
        self._done: Counter[str] = Counter()
        self.error = ""

    @property
    def _longest(self) -> float:
        return MOST_LEFT_OUT * self._config.clean_interval.total_seconds()

    @property
    def is_running(self) -> bool:
        """True from the begin of a pass until its end."""
        return self._pieces is not None

    def break_off(self) -> None:
        """Drop the rest of this pass; the next pass begins at its usual time."""
        self._pieces = None

    def work(self, end: float) -> Counter[str] | None:
        """Begin a pass if one is due, and continue it until ``end``; return its counts once it has ended."""
        if self._pieces is None and self._clock() >= self._next:
            self._begin()
        while self._pieces is not None:
            piece = next(self._pieces, None)
            if piece is None:
                self._pieces = None
                return self._done
            self._done.update(piece)
            if self._clock() >= end:
                break
        return None

    def _begin(self) -> None:
        """Begin a pass, or wait until one would be due after another cleaner's pass.

        The cleaner that made the last pass is earlier than the others, so usually one of them makes all passes. If
        two make one at the same time, each row is still changed once.
        """
        interval, is_own = (
            self._config.clean_interval.total_seconds(),
            self._clock() >= self._own_at,
        )
        if not is_own and (seconds := self._since_another()) is not None:
            self._next = self._clock() + interval * jitter(1, 1.1) - seconds
            return
        self._next = self._clock() + interval * jitter(0.9, 1)  # also if the pass fails half-way
        self._own_at = self._clock() + self._longest
        self._pieces, self._done = self.pieces(), Counter()

    def pieces(self) -> Iterator[Counter[str]]:
        """Yield the counts of each piece of a pass."""
        self.error = ""
        for step in self._steps:
            try:
                yield from self._repeated(step)
            except DatabaseError as error:
                if not workers.can_write(self._alias, error):
                    raise
                what = step.__name__.strip("_").replace("_", " ")
                text = f"{what}: {text_of(error)}"
                if is_in_the_way(error):
                    self._emit(signals.step_put_off, database=self._alias, error=text)
                    continue
                self.error = text
                self._emit(signals.step_failed, database=self._alias, error=text)

    def _repeated(self, step: Step) -> Iterator[Counter[str]]:
        """Take a step, and repeat it if the database asks to repeat a transaction."""
        for _ in range(REPEATS):
            try:
                yield from step()
                return
            except DatabaseError as error:
                if not is_repeatable(error):
                    raise
        yield from step()
