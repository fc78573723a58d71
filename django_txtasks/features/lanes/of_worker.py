"""The lanes of a worker: it claims in them, and tasks that raise ``Retry(lane=True)`` hold them."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from datetime import timedelta
from functools import partial

from django_txtasks import signals
from django_txtasks.core.rows.attempts import Attempt, Ended
from django_txtasks.core.rows.running import AttemptRun
from django_txtasks.core.rows.turn import TurnResult
from django_txtasks.core.working.parts import DatabaseCall, Part, WorkerContext
from django_txtasks.database.errors import text_of
from django_txtasks.exceptions import Retry
from django_txtasks.features.lanes import claiming
from django_txtasks.features.lanes.options import LaneConfig
from django_txtasks.features.lanes.source import LaneRows


class HeldLanes(Part):
    """Holds lanes at the request of their tasks, before their places there become free."""

    def raised(self, run: AttemptRun, error: BaseException) -> DatabaseCall | None:
        """Return the call that holds the lane of an attempt; None = it is not asked."""
        attempt = run.attempt
        if not (attempt.lane and isinstance(error, Retry) and error.lane):
            return None
        return partial(_hold, run.alias, attempt, error.after or timedelta(0))


def _hold(alias: str, attempt: Attempt, delay: timedelta) -> None:
    """Hold a lane. If that fails, only the task waits.

    Raises:
        Exception: the log has it.
    """
    try:
        claiming.hold(alias, attempt.lane, delay)
    except Exception as problem:
        error = text_of(problem)
        signals.lane_not_held.emit(lane=attempt.lane, error=error, **attempt.facts)
        raise


class LaneNews(Part):
    """Tells the book of lanes in which a task has ended, or was given back, and of each turn."""

    def __init__(self, rows: LaneRows) -> None:
        self.apart = self._book = rows

    def collected(self, ended: Sequence[tuple[Ended, float]]) -> None:
        """Note the lanes of ended tasks."""
        self._book.ended({one.attempt.lane for one, _ in ended if one.attempt.lane})

    def taken_back(self, attempts: Sequence[Attempt]) -> None:
        """Note the lanes of tasks that have not begun."""
        self._book.ended({one.lane for one in attempts if one.lane})

    def turned(self, result: TurnResult, *, alone: bool) -> None:
        """Note what a turn has found."""
        if not alone:
            self._book.learn(result, time.monotonic())


def parts(context: WorkerContext) -> Iterable[Part]:
    """Return the parts for one worker. Without rules, it serves no lane."""
    yield HeldLanes()
    if context.config.of(LaneConfig).lanes:
        yield LaneNews(LaneRows(context.config, context.subscription))
