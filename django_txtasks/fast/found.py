"""From the rows that a whole turn has read to its ``TurnResult``, for both engines of whole turns. No SQL."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Any, NamedTuple

from django_txtasks.core.rows.attempts import Arrow, Attempt, Ended, Recorded
from django_txtasks.core.rows.turn import (
    Admission,
    Bucket,
    Candidate,
    Cursor,
    Keys,
    ScanResult,
    TurnOrder,
    TurnRequest,
    TurnResult,
    waits_of,
)
from django_txtasks.database import cost
from django_txtasks.database.execute import as_uuid

NO_HOOKS = "{}"


class Found(NamedTuple):
    """A row that was read, with the priority of its bucket if a scan found it; None = a hint named it."""

    is_taken: bool
    priority: int | None
    candidate: Candidate

    @property
    def bucket(self) -> tuple[Any, str]:
        return self.priority, self.candidate.queue_name


def is_usual(worker: uuid.UUID, ended: Sequence[Ended]) -> bool:
    """Say whether all attempts have finished, each task once, without hooks."""
    for attempt, arrow, *_ in ended:
        is_own = attempt.worker is worker or attempt.worker == worker  # comparing UUIDs is slow
        if not is_own or arrow is not Arrow.FINISH or attempt.hooks != NO_HOOKS:
            return False
    return len({one.attempt.task_id.int for one in ended}) == len(ended)


def count_rows(order: TurnOrder, result: TurnResult) -> None:
    """Count the rows that a whole turn has written: its beat, its claims, finished tasks and their history."""
    ended = len(result.recorded.done) * (2 if order.keep else 1)
    cost.of(order.subscription.alias).rows += 1 + len(result.claimed) + ended


def result(
    request: TurnRequest,
    found: Sequence[Found],
    admission: Admission,
    *,
    recorded: Recorded,
    known: Set[uuid.UUID],
    has_keys: bool,
    is_filled: bool | None = None,
    is_suspected: bool,
) -> TurnResult:
    """Return the result of a turn that cannot merge, and so leaves rows with a unique key to the next turn.

    Args:
        found: the rows that were read: those of the scan first, bucket by bucket.
        known: ids that have a row, live or finished; at least the hinted ones.
        has_keys: whether a due row with a unique key was read.
        is_filled: whether the scan has found as many rows as fit; None = count the rows in ``found``.
    """
    scan = None
    if request.scan is not None:
        scanned = [one for one in found if one.priority is not None]
        if is_filled is None:
            is_filled = len(scanned) == request.capacity.width
        scan = ScanResult(
            *request.scan.ended(
                passed(scanned), filled=is_filled, blocked_queue=admission.blocked_queue
            )
        )
        if has_keys:  # the next turn claims them, from the same place
            scan = ScanResult(request.scan.cursors, backlog=True)
    asked = set(request.hinted)
    return TurnResult(
        admission.rest,
        admission.attempts,
        looked_up=request.hinted,
        later=later(asked, found, admission.attempts),
        in_lanes=in_lanes(found) if asked else {},
        absent=sorted(asked - known),
        scan=scan,
        keys=Keys.LEFT_FOR_NEXT_TURN if has_keys else Keys.NONE,
        blocked_queue=admission.blocked_queue,
        recorded=recorded,
        is_suspected=is_suspected,
    )


def passed(scanned: Iterable[Found]) -> dict[Bucket, Cursor]:
    """Return the last claimed row of each bucket.

    Args:
        scanned: the rows of the scan, bucket by bucket, each in its order.
    """
    taken = [one for one in scanned if one.is_taken and one.priority is not None]
    if taken and taken[0].bucket == taken[-1].bucket:  # as in most turns
        taken = taken[-1:]
    last = {one.bucket: one.candidate for one in taken}
    return {Bucket(*bucket): candidate.cursor for bucket, candidate in last.items()}


def in_lanes(found: Iterable[Found]) -> Mapping[uuid.UUID, str]:
    """Return the lanes of the due rows that are in one, by id."""
    rows = [one.candidate for one in found if one.candidate.lane]
    return {as_uuid(one.id): one.lane for one in rows if one.wait <= 0}


def later(
    asked: Set[uuid.UUID], found: Iterable[Found], claimed: Iterable[Attempt]
) -> Mapping[uuid.UUID, float]:
    """Return the seconds until the asked rows that were not claimed are due."""
    if not asked:  # hashing an id is slow
        return {}
    return waits_of([one.candidate for one in found if as_uuid(one.candidate.id) in asked], claimed)
