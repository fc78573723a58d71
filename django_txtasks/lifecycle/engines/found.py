"""What the statements of a whole turn have found, on its way into a ``TurnResult``. No SQL."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence, Set
from typing import NamedTuple

from django_txtasks.lifecycle.attempts import Arrow, Attempt, Ended
from django_txtasks.lifecycle.execute import as_uuid
from django_txtasks.lifecycle.turn import Bucket, Candidate, Cursor, waits_of

NO_HOOKS = "{}"


class Found(NamedTuple):
    """A row that was looked at, and the priority of the bucket in which a scan found it; None = a hint did."""

    is_taken: bool
    priority: int | None
    candidate: Candidate


def is_usual(worker: uuid.UUID, ended: Sequence[Ended]) -> bool:
    """Say whether all that ended is finished, each task once, with nothing to follow."""
    return all(
        one.arrow is Arrow.FINISH and one.attempt.worker == worker and one.attempt.hooks == NO_HOOKS
        for one in ended
    ) and len({one.attempt.task_id.int for one in ended}) == len(ended)


def passed(scanned: Iterable[Found]) -> dict[Bucket, Cursor]:
    """Return the last row of each bucket that was claimed."""
    last = {
        (priority, candidate.queue_name): candidate
        for is_taken, priority, candidate in scanned
        if is_taken and priority is not None
    }
    return {Bucket(*bucket): candidate.cursor for bucket, candidate in last.items()}


def later(
    asked: Set[uuid.UUID], found: Iterable[Found], claimed: Iterable[Attempt]
) -> Mapping[uuid.UUID, float]:
    """Return the seconds until those of the ids are due that wait and were not claimed."""
    if not asked:  # to hash an id takes long
        return {}
    return waits_of([one.candidate for one in found if as_uuid(one.candidate.id) in asked], claimed)
