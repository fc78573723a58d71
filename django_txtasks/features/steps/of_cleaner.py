"""Steps of tasks that no longer exist are deleted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from django_txtasks.core.cleaning.parts import Place, StepContext, Sweeping
from django_txtasks.core.cleaning.passes import Step
from django_txtasks.features.steps import rows


def steps(context: StepContext) -> Iterable[tuple[Place, Step]]:
    """Return the step that deletes rows of steps."""
    sweeping = Sweeping(context, rows.forget)

    def forget_steps() -> Iterator[Counter[str]]:
        """Delete rows of side tables, such as steps, whose task no longer exists.

        The rows of finished tasks that were kept go together with these tasks. The others belong to tasks that
        were not kept.
        """
        yield from sweeping.looks(context.interval_from_now())

    return [(Place.LATE, forget_steps)]
