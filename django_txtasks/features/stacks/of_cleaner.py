"""Old requests for stacks are deleted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from django_txtasks.core.cleaning.parts import Place, StepContext
from django_txtasks.core.cleaning.passes import Step
from django_txtasks.features.stacks import answers


def steps(context: StepContext) -> Iterable[tuple[Place, Step]]:
    """Return the step that deletes requests."""

    def forget_requests() -> Iterator[Counter[str]]:
        """Delete old requests."""
        with context.transaction():
            answers.forget(context.alias)
        yield Counter()

    return [(Place.LATE, forget_requests)]
