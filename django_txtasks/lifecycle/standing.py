"""What has become of a task, for whoever has its id."""

from __future__ import annotations

import uuid

from django_txtasks.lifecycle import statements
from django_txtasks.lifecycle.execute import as_uuid, fetch, fetch_column
from django_txtasks.models import Outcome

GONE = "gone"


def state_of(alias: str, task_id: uuid.UUID) -> str:
    """Return a state or an outcome; of what was merged, that of the row in its place; ``gone`` = no row."""
    live = fetch_column(alias, statements.STATE_OF, id=task_id)
    if live:
        return str(live[0])
    for outcome, merged_into in fetch(alias, statements.OUTCOME_OF, id=task_id):
        if outcome == Outcome.MERGED and merged_into is not None:
            return state_of(
                alias, as_uuid(merged_into)
            )  # which was never merged itself: it has begun
        return str(outcome)
    return GONE
