"""A task that raises ``Retry(lane=True)`` holds its lane, before its place there becomes free."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from functools import partial

from django_txtasks import signals
from django_txtasks.database.errors import text_of
from django_txtasks.exceptions import Retry
from django_txtasks.lanes import claiming
from django_txtasks.lifecycle.attempts import Attempt
from django_txtasks.lifecycle.running import AttemptRun
from django_txtasks.worker.parts import DatabaseCall, Part, WorkerContext


class HeldLanes(Part):
    """Holds lanes at the request of their tasks."""

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


def parts(context: WorkerContext) -> Iterable[Part]:
    """Return the part for one worker."""
    return [HeldLanes()]
