"""A worker's usual turn in one statement, on PostgreSQL: it beats, finishes what ended, claims what is due.

A turn of several statements costs as many round trips, each task two turns, and after each round trip a busy
loop waits for Python. What is not usual, a retry, a hook, an outcome whose row is not held, is left to
them: see ``TurnWriter.write``.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, NamedTuple

from django_txtasks.lifecycle import statements
from django_txtasks.lifecycle.attempts import Arrow, Attempt, Ended
from django_txtasks.lifecycle.claims import (
    Lookup,
    Marks,
    Recent,
    Room,
    Subscription,
    read_attempt,
    read_lookup,
)
from django_txtasks.lifecycle.outcomes import Recorded, finishing
from django_txtasks.lifecycle.transactions import can_use_one_statement, fetch_in_one_statement

NO_HOOKS = "{}"


def fits(alias: str, worker: uuid.UUID, ended: Sequence[Ended]) -> bool:
    """Say whether ``turn`` can do it: all that ended is finished, each task once, with nothing to follow."""
    return (
        can_use_one_statement(alias)
        and all(
            one.arrow is Arrow.FINISH
            and one.attempt.worker == worker
            and one.attempt.hooks == NO_HOOKS
            for one in ended
        )
        and len({one.attempt.task_id.int for one in ended}) == len(ended)
    )


@dataclass(frozen=True)
class Written:
    """What a turn did.

    Attributes:
        recorded: what became of the outcomes; those that were not held are busy.
        claimed: by the scan and by hints.
        lookup: what became of the ids; None = there were none.
    """

    recorded: Recorded
    claimed: list[Attempt]
    lookup: Lookup | None


def turn(
    subscription: Subscription,
    worker: uuid.UUID,
    state: dict[str, Any],
    *,
    ended: Sequence[Ended],
    ids: Sequence[uuid.UUID],
    marks: Marks | None,
    recent: Recent | None = None,
    room: Room,
    keep: bool,
    limit: timedelta,
) -> Written | None:
    """Beat, CLAIMED -> finished, PENDING -> claimed, and commit.

    Args:
        state: of the worker, from ``workers.state_of``.
        marks, recent: of the scan, see ``claims.claim_due``; without marks, look up ids only.
        keep: the finished rows.
        limit: see ``own_transaction``.

    Returns:
        None: the worker was declared lost, and nothing was written.
    """
    scan, width = marks is not None, room.width
    asked: dict[str, Any] = finishing(ended) if ended else {}
    if scan or ids:
        asked.update(_claiming(subscription, room))
    if marks is not None:
        asked.update(_scanning(marks, recent, width))
    if ids:
        asked.update(hinted=ids)
    answer = fetch_in_one_statement(
        subscription.alias,
        statements.at_once(
            finish=bool(ended), keep=keep, scan=scan, recent=bool(recent), hints=bool(ids)
        ),
        limit=limit,
        worker=worker,
        **state,
        **asked,
    )
    if not answer:
        return None
    finished, attempts, known, *_ = answer[0]
    recorded = _recorded(ended, finished or [], attempts or [])
    found = [
        Found(one[3], one[5], one[6:]) for one in answer if len(one) > 3 and one[4] is not None
    ]
    claimed = room.take(read_attempt(one.row, worker) for one in found if one.is_taken)
    _note_blocked(room, found)
    if marks is not None:
        _note_scan(marks, room, width, found, is_recent=bool(recent))
    return Written(recorded, claimed, _lookup(ids, known, found, claimed) if ids else None)


class Found(NamedTuple):
    """A row that was looked at, and the priority by which a scan found it; None = a hint did."""

    is_taken: bool
    head: int | None
    row: tuple[Any, ...]


def _recorded(
    ended: Sequence[Ended], ids: Sequence[uuid.UUID], attempts: Sequence[int]
) -> Recorded:
    if len(ids) == len(ended):
        return Recorded(done=list(ended))
    recorded, finished = Recorded(), set(zip(ids, attempts, strict=True))
    for one in ended:
        held = (one.attempt.task_id, one.attempt.number) in finished
        (recorded.done if held else recorded.busy).append(one)
    return recorded


def _note_blocked(room: Room, found: Sequence[Found]) -> None:
    """Say so if one that was due found no slot, and whose turn it is then."""
    if not room.width:
        return
    for one in found:
        if not one.is_taken and one.row[-1] <= 0:
            room.blocked, room.blocked_queue = True, one.row[2]
            return


def _lookup(
    ids: Sequence[uuid.UUID],
    known: Sequence[uuid.UUID],
    found: Sequence[Found],
    claimed: Sequence[Attempt],
) -> Lookup:
    asked = set(ids)
    rows = [one.row for one in found if one.row[0] in asked]
    taken = [attempt for attempt in claimed if attempt.task_id in asked]
    return read_lookup(ids, rows, taken, set(known))


def _claiming(subscription: Subscription, room: Room) -> dict[str, Any]:
    return {
        "queues": subscription.queues,
        "names": subscription.names,
        "short": list(room.short),
        "alone": room.alone,
        "ahead": room.ahead,
        "most": room.most,
    }


def _scanning(marks: Marks, recent: Recent | None, width: int) -> dict[str, Any]:
    where = {} if recent is None else {
        "head_queues": [queue for _, queue in recent.heads],
        "head_priorities": [priority for priority, _ in recent.heads],
        "age": recent.seconds,
    }  # fmt: skip
    return {
        **where,
        "width": width,
        "mark_queues": [queue for _, queue in marks],
        "mark_priorities": [priority for priority, _ in marks],
        "mark_times": [due_at for due_at, _ in marks.values()],
        "mark_ids": [task_id for _, task_id in marks.values()],
    }


def _note_scan(
    marks: Marks, room: Room, width: int, found: Sequence[Found], *, is_recent: bool
) -> None:
    """As ``claims.claim_due``: say if there may be more, and go on behind what was taken."""
    scanned = [one for one in found if one.head is not None]
    began_later = bool(marks)
    for one in scanned:
        if one.is_taken and one.head is not None:
            marks[one.head, one.row[2]] = (one.row[-2], one.row[0])
    room.filled = len(scanned) == width
    if not (room.filled or room.blocked or is_recent):
        marks.clear()
        room.filled = began_later
