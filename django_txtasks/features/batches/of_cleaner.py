"""Batches end although no worker has looked at them."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import timedelta

from django.db import DatabaseError, connections

from django_txtasks.core.cleaning.parts import Place, StepContext
from django_txtasks.core.cleaning.passes import Step
from django_txtasks.database.errors import is_repeatable, took_too_long
from django_txtasks.features.batches import rows as batches

KEEP_BATCHES = timedelta(days=3)
"""Shortest time for which ended batches are kept, even if finished tasks are kept for less.

A schedule reads the batches of a tick for up to two days after the tick: its ``ready_by`` may come almost a
day after the tick, and counts until the same hour of the next day.
"""


def steps(context: StepContext) -> Iterable[tuple[Place, Step]]:
    """Return the step that ends batches."""

    def end_batches() -> Iterator[Counter[str]]:
        """End batches whose last member ended without a look at the batch; delete batches that ended long ago."""
        after: uuid.UUID | None = batches.FIRST_ID
        while after is not None:
            with context.transaction():
                over, after = batches.without_live_member(context.alias, after)
            for batch in over:
                _end(context, batch)
                yield Counter()
            yield Counter()
        kept = context.config.retention.longest
        if kept is not None:
            with context.transaction():
                batches.forget(context.alias, max(kept, KEEP_BATCHES).total_seconds())
            yield Counter()

    return [(Place.URGENT, end_batches)]


def _end(context: StepContext, batch: uuid.UUID) -> None:
    try:
        follow_ups = batches.look(context.alias, batch).follow_ups
    except DatabaseError as error:
        is_locked = took_too_long(error) or is_repeatable(error)
        if not is_locked or connections[context.alias].vendor == "sqlite":
            raise
        return  # a session has locked it: skip it until the next pass, so that the others do not wait
    if follow_ups and context.notify is not None:
        context.notify(follow_ups)
