"""A worker's usual turn in one statement, on PostgreSQL: it beats, finishes what ended, claims what hints told of.

A turn of several statements costs as many round trips, and each task two turns. What is not usual, a scan,
a retry, a hook, an outcome whose row is not held, is left to them: see ``Ledger.write``.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from django_txtasks.lifecycle import statements
from django_txtasks.lifecycle.attempts import Arrow, Ended
from django_txtasks.lifecycle.claims import Lookup, Room, Subscription, read_attempt, read_lookup
from django_txtasks.lifecycle.dialect import can_run_at_once, run_at_once
from django_txtasks.lifecycle.outcomes import Recorded, finishing

NO_HOOKS = "{}"


def fits(
    alias: str, worker: uuid.UUID, ended: Sequence[Ended], ids: Sequence[uuid.UUID], room: Room
) -> bool:
    """Say whether ``turn`` can do it: each of the ids would find room, and all that ended is finished."""
    return (
        can_run_at_once(alias)
        and len(ids) <= min(max(room.alone, room.ahead), room.most)
        and all(
            one.arrow is Arrow.FINISH
            and one.attempt.worker == worker
            and one.attempt.hooks == NO_HOOKS
            for one in ended
        )
    )


def turn(
    subscription: Subscription,
    worker: uuid.UUID,
    state: dict[str, Any],
    *,
    ended: Sequence[Ended],
    ids: Sequence[uuid.UUID],
    room: Room,
    keep: bool,
    limit: timedelta,
) -> tuple[Recorded, Lookup | None] | None:
    """Beat, CLAIMED -> finished, PENDING -> claimed, and commit.

    Args:
        state: of the worker, from ``workers.state_of``.
        keep: the finished rows.
        limit: see ``own_transaction``.

    Returns:
        What became of the outcomes, those that were not held as busy, and of the ids. None: the worker was
        declared lost, and nothing was written.
    """
    answer = run_at_once(
        subscription.alias,
        statements.at_once(finish=bool(ended), keep=keep, claim=bool(ids)),
        limit=limit,
        worker=worker,
        **state,
        **(finishing(ended) if ended else {}),
        **(_claiming(subscription, ids, room) if ids else {}),
    )
    if not answer:
        return None
    finished_ids, attempts, known, *_ = answer[0]
    finished = set(zip(finished_ids or (), attempts or (), strict=True))
    recorded = Recorded()
    for one in ended:
        held = (one.attempt.task_id, one.attempt.number) in finished
        (recorded.done if held else recorded.busy).append(one)
    if not ids:
        return recorded, None
    found = [(is_taken, row) for _, _, _, is_taken, *row in answer if row[0] is not None]
    taken = room.take(read_attempt(row, worker) for is_taken, row in found if is_taken)
    lookup = read_lookup(ids, [row for _, row in found], taken, set(known))
    for is_taken, row in found:
        if not is_taken and row[-1] <= 0:
            room.crowded, room.crowded_queue = True, row[2]
    return recorded, lookup


def _claiming(subscription: Subscription, ids: Sequence[uuid.UUID], room: Room) -> dict[str, Any]:
    return {
        "alone": room.alone,
        "short": list(room.short),
        "queues": subscription.queues,
        "names": subscription.names,
        "hinted": sorted(set(ids)),
    }
