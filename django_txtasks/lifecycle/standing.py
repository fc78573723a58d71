"""What has become of tasks, for whoever has their ids."""

from __future__ import annotations

import uuid
from collections.abc import Collection

from django_txtasks.lifecycle import statements
from django_txtasks.lifecycle.execute import as_uuid, fetch
from django_txtasks.models import Outcome

GONE = "gone"


def state_of(alias: str, task_id: uuid.UUID) -> str:
    """Return a state or an outcome; of what was merged, that of the row in its place; ``gone`` = no row."""
    return states_of(alias, [task_id])[task_id]


def states_of(alias: str, ids: Collection[uuid.UUID]) -> dict[uuid.UUID, str]:
    """Return what ``state_of`` does, of each of these tasks."""
    if not ids:
        return {}
    found = dict.fromkeys(ids, GONE)
    live = {
        as_uuid(task_id): str(status)
        for task_id, status in fetch(alias, statements.STATES_OF, ids=list(ids))
    }
    rest = [task_id for task_id in found if task_id not in live]
    winners = {}
    for row in fetch(alias, statements.OUTCOMES_OF, ids=rest) if rest else ():
        task_id, outcome, merged_into = as_uuid(row[0]), str(row[1]), row[2]
        if outcome == Outcome.MERGED and merged_into is not None:
            winners[task_id] = as_uuid(merged_into)  # which was never merged itself: it has begun
        found[task_id] = outcome
    of_winners = states_of(alias, list(winners.values()))
    return {**found, **live, **{loser: of_winners[winner] for loser, winner in winners.items()}}
