"""Steps of tasks that no longer exist are deleted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from django_txtasks.cleaner.parts import Place, StepContext
from django_txtasks.cleaner.passes import Step
from django_txtasks.steps import rows

LOOKS_WITHOUT_CHANGE = 20
"""Looks of one pass at tasks with steps that all still exist: 10,000 tasks."""


class Forgetting:
    """Deletes rows of steps. Each pass continues behind the last task of the pass before."""

    def __init__(self, context: StepContext) -> None:
        self._context, self._last = context, rows.FIRST_TASK

    def forget_steps(self) -> Iterator[Counter[str]]:
        """Delete rows of side tables, such as steps, whose task no longer exists.

        The rows of finished tasks that were kept go together with these tasks. The others belong to tasks that
        were not kept.
        """
        context, looks = self._context, LOOKS_WITHOUT_CHANGE
        end = context.interval_from_now()
        while looks and context.clock() <= end:
            with context.transaction():
                gone, self._last = rows.forget(context.alias, self._last)
            looks = 0 if self._last == rows.FIRST_TASK else looks - (not gone)
            yield Counter()


def steps(context: StepContext) -> Iterable[tuple[Place, Step]]:
    """Return the step that deletes rows of steps."""
    return [(Place.LATE, Forgetting(context).forget_steps)]
