"""Expired keys of ``once`` are deleted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from django_txtasks.core.cleaning.parts import Place, StepContext
from django_txtasks.core.cleaning.passes import Step
from django_txtasks.features.once import keys as once


def steps(context: StepContext) -> Iterable[tuple[Place, Step]]:
    """Return the step that deletes keys."""

    def forget_keys() -> Iterator[Counter[str]]:
        """Delete expired keys, for an interval at most."""
        end, count = context.interval_from_now(), once.KEYS_PER_TRANSACTION
        while count == once.KEYS_PER_TRANSACTION and context.clock() <= end:
            with context.transaction():
                count = once.forget(context.alias)
            yield Counter()

    return [(Place.LATE, forget_keys)]
