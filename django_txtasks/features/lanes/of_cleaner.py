"""Rows of lanes that no task has used for long are deleted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import timedelta

from django_txtasks.core.cleaning.parts import Place, StepContext
from django_txtasks.core.cleaning.passes import Step
from django_txtasks.features.lanes import claiming
from django_txtasks.features.lanes.options import LaneConfig

KEEP_UNUSED = timedelta(days=7)


def steps(context: StepContext) -> Iterable[tuple[Place, Step]]:
    """Return the step that deletes rows of lanes."""

    def forget_lanes() -> Iterator[Counter[str]]:
        """Delete rows of unused lanes."""
        rules = context.config.of(LaneConfig).lanes
        _, behind = claiming.forget(context.alias, KEEP_UNUSED, rules)
        while behind:
            yield Counter()
            _, behind = claiming.forget(context.alias, KEEP_UNUSED, rules, behind)
        yield Counter()

    return [(Place.LATE, forget_lanes)]
