"""PENDING -> claimed in several statements, on every database."""

from __future__ import annotations

import heapq
import operator
import time
import uuid
from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import replace
from typing import Any, NamedTuple

from django.db import OperationalError

from django_txtasks.core.rows import statements
from django_txtasks.core.rows.attempts import Attempt
from django_txtasks.core.rows.buckets import paused_queues, pending_priorities
from django_txtasks.core.rows.claim_parts import parts
from django_txtasks.core.rows.turn import (
    Bucket,
    Candidate,
    Capacity,
    Cursor,
    Keys,
    Scan,
    ScanResult,
    Subscription,
    TurnRequest,
    TurnResult,
    waits_of,
)
from django_txtasks.database.errors import TookTooLong
from django_txtasks.database.execute import as_uuid, execute, fetch_as, fetch_column
from django_txtasks.database.time_limits import fetch_within

KEY_SECONDS = 0.05
"""Seconds until a row is read again whose key another transaction has locked, usually to claim it."""
MOST_AGE_SECONDS = 1e10
_INT = operator.attrgetter("int")  # comparing UUIDs is slow


def claim(subscription: Subscription, worker: uuid.UUID, request: TurnRequest) -> TurnResult:
    """Claim the tasks that the request asks for: higher priorities first, then the longest due.

    The scan comes first, because rows whose hints were lost must not wait behind a stream of hints. It must run in
    a transaction that began with the worker's beat; no task may start before the COMMIT.

    Raises:
        TookTooLong, DatabaseError: the transaction must roll back; the next scan reads less.
    """
    result = TurnResult(request.capacity)
    if request.scan is not None:
        result = scan_due(subscription, worker, request.capacity, request.scan)
    if request.hinted:
        result = look_up(subscription, worker, request.hinted, result)
    return result


def scan_due(
    subscription: Subscription, worker: uuid.UUID, capacity: Capacity, scan: Scan
) -> TurnResult:
    """Claim the due tasks that fit."""
    claimed: list[Attempt] = []
    passed: dict[Bucket, Cursor] = {}
    blocked_queue, filled, has_keys, keys_wait = None, False, False, False
    until = time.monotonic() + scan.seconds
    paused = paused_queues(subscription.alias)
    buckets: Iterable[Bucket] = (
        _buckets(subscription, [one for one in scan.queues if one not in paused], until)
        if scan.recent is None
        else [one for one in scan.recent.buckets if one.queue_name not in paused]
    )
    # if tasks gain priority with age, the first rows of all buckets are compared with each other
    together = ((one,) for one in buckets) if scan.ageing is None else [tuple(buckets)]
    for some in together:
        width = capacity.width
        if scan.ageing is None:
            found = [
                (some[0], one) for one in _choose_due(subscription, some[0], width, scan, until)
            ]
        else:
            found, are_busy = _by_age(subscription, some, width, scan, until)
            filled, keys_wait = filled or are_busy, keys_wait or are_busy
        candidates = [one for _, one in found]
        rows = claim_rows(subscription, worker, candidates, capacity)
        capacity, blocked_queue = rows.rest, rows.blocked_queue
        passed.update({bucket: one.cursor for bucket, one in found[: rows.passed]})
        claimed += rows.attempts
        filled = filled or len(candidates) == width or rows.is_cut_short
        has_keys, keys_wait = has_keys or rows.has_keys, keys_wait or rows.keys_wait
        if not capacity.width or blocked_queue is not None:  # before it reads the next bucket
            break
    cursors, backlog = scan.ended(passed, filled=filled, blocked_queue=blocked_queue)
    return TurnResult(
        capacity,
        claimed,
        scan=ScanResult(cursors, backlog, is_held_up=keys_wait and not claimed),
        keys=Keys.CLAIMED if has_keys else Keys.NONE,
        blocked_queue=blocked_queue,
    )


def _by_age(
    subscription: Subscription, buckets: Iterable[Bucket], limit: int, scan: Scan, until: float
) -> tuple[list[tuple[Bucket, Candidate]], bool]:
    """Choose and lock the first due rows of these buckets by priority and age.

    Returns:
        Each row with its bucket, and whether other transactions have locked some of the chosen rows.
    """
    found: list[tuple[float, Bucket, uuid.UUID]] = []
    for bucket in buckets:
        seen = _look_at_due(subscription, bucket, limit, scan, until, sql=statements.PEEK_DUE)
        gained, of_bucket = 0.0, []
        for task_id, _, wait in reversed(
            seen
        ):  # an earlier row has gained at least as much as a later one
            gained = max(gained, _gained(wait, scan.ageing or 1.0))
            of_bucket.append((bucket.priority + gained, bucket, as_uuid(task_id)))
        found += reversed(of_bucket)
    if not found:
        return [], False
    # each row once: see ``fast.mariadb`` for tables that were converted to another collation
    first = {one[-1]: one for one in sorted(found, key=lambda one: one[0])}
    chosen = sorted(first.values(), key=lambda one: -one[0])[:limit]
    candidates = fetch_as(
        Candidate,
        subscription.alias,
        subscription.claiming(statements.CHOOSE_BY_ID),
        ids=sorted({task_id for *_, task_id in chosen}),
        queues=subscription.queues,
        **subscription.claimable,
    )
    locked = {as_uuid(one.id): one for one in candidates if one.wait <= 0}
    had = [(bucket, locked[task_id]) for _, bucket, task_id in chosen if task_id in locked]
    return had, len(had) < len(chosen)


def _gained(wait: Any, ageing: float) -> float:
    """Return the priority that a row has gained by its age; zero if its time is invalid."""
    return min(max(0.0, -float(wait)), MOST_AGE_SECONDS) // ageing if wait is not None else 0.0


def look_up(
    subscription: Subscription, worker: uuid.UUID, ids: Sequence[uuid.UUID], result: TurnResult
) -> TurnResult:
    """Claim the given tasks that are due and fit; none if a task of the scan before found no slot."""
    candidates = fetch_as(
        Candidate,
        subscription.alias,
        subscription.claiming(statements.CHOOSE_BY_ID),
        queues=subscription.queues,
        ids=sorted(set(ids)),
        **subscription.claimable,
    )
    is_blocked = result.blocked_queue is not None
    capacity = Capacity(0) if is_blocked else result.rest
    due = [one for one in candidates if one.wait <= 0 and not one.lane][: capacity.width]
    rows = claim_rows(subscription, worker, due, capacity)
    known = {as_uuid(one.id) for one in candidates}
    if missing := sorted(set(ids) - known):
        there = fetch_column(subscription.alias, statements.KNOWN_IDS, ids=missing)
        known |= {as_uuid(task_id) for task_id in there}
    return replace(
        result,
        rest=result.rest if is_blocked else rows.rest,
        claimed=result.claimed + rows.attempts,
        looked_up=tuple(ids),
        later=_waits(candidates, due[: rows.passed], rows),
        in_lanes={as_uuid(one.id): one.lane for one in candidates if one.lane and one.wait <= 0},
        absent=sorted(set(ids) - known),
        blocked_queue=result.blocked_queue or rows.blocked_queue,
        keys=Keys.CLAIMED if rows.has_keys else result.keys,
    )


def _waits(
    candidates: Sequence[Candidate], passed: Sequence[Candidate], rows: RowsClaimed
) -> dict[uuid.UUID, float]:
    """Return the seconds until each row should be read again: soon, if another transaction has locked its key."""
    waits = waits_of(candidates, rows.attempts)
    for one in passed:
        task_id = as_uuid(one.id)
        if task_id in rows.merged:
            waits.pop(task_id, None)
        elif task_id in waits:
            waits[task_id] = KEY_SECONDS
    return waits


class RowsClaimed(NamedTuple):
    """The result of claiming the chosen rows.

    Attributes:
        rest, blocked_queue: as of ``Admission``.
        passed: number of candidates, in their order, that are done: claimed, merged, or left to other workers.
        merged: ids of the rows that were merged into claimed rows.
        has_keys: whether some candidates have a unique key.
        keys_wait: whether other transactions have locked rows of some keys.
        is_cut_short: whether there are more keys than one claim handles.
    """

    attempts: list[Attempt]
    rest: Capacity
    blocked_queue: str | None
    passed: int
    merged: Set[uuid.UUID] = frozenset()
    has_keys: bool = False
    keys_wait: bool = False
    is_cut_short: bool = False


def claim_rows(
    subscription: Subscription,
    worker: uuid.UUID,
    candidates: Sequence[Candidate],
    capacity: Capacity,
) -> RowsClaimed:
    """Move PENDING -> CLAIMED for the chosen rows that fit. Of each unique key, only the first row is claimed."""
    if any(one.merge_key is not None for one in candidates):
        return _claim_with_keys(subscription, worker, candidates, capacity)
    admission = capacity.admit(one.attempt_of(worker) for one in candidates)
    _claim(subscription.alias, worker, admission.attempts)
    return RowsClaimed(*admission, passed=len(admission.attempts))


def _claim_with_keys(
    subscription: Subscription,
    worker: uuid.UUID,
    candidates: Sequence[Candidate],
    capacity: Capacity,
) -> RowsClaimed:
    merging = parts().merging
    picked, end = merging.pick(subscription, candidates)
    admission = capacity.admit(one.candidate.attempt_of(worker) for one in picked)
    keys = {
        as_uuid(one.candidate.id): one.candidate.merge_key
        for one in picked
        if one.candidate.merge_key is not None
    }
    attempts, merged = merging.absorb(subscription.alias, admission.attempts, keys)
    # the merged rows were committed before the claim, so the run begins after their requests
    _claim(subscription.alias, worker, attempts)
    left = picked[len(attempts) :]
    return RowsClaimed(
        attempts,
        admission.rest,
        admission.blocked_queue,
        passed=left[0].place if left else end,
        merged=merged,
        has_keys=True,
        keys_wait=len(keys) < len({one.merge_key for one in candidates[:end]} - {None}),
        is_cut_short=end < len(candidates),
    )


def _claim(alias: str, worker: uuid.UUID, attempts: Sequence[Attempt]) -> None:
    if not attempts:
        return
    ids = sorted((attempt.task_id for attempt in attempts), key=_INT)
    count = execute(alias, statements.CLAIM, worker=worker, ids=ids)
    if count != len(ids):  # SQLite without BEGIN IMMEDIATE: another worker was faster
        raise OperationalError(f"rows claimed: {count} instead of {len(ids)}: repeat the turn")


def _buckets(subscription: Subscription, queues: Sequence[str], until: float) -> Iterator[Bucket]:
    """Yield the buckets of these queues with pending rows, highest priority first."""

    def look(alias: str, sql: str, **params: Any) -> list[tuple[Any, ...]]:
        return fetch_within(alias, sql, _left(until), **params)

    def buckets_of(queue: str) -> Iterator[Bucket]:
        for priority in pending_priorities(subscription.alias, queue, look):
            yield Bucket(priority, queue)

    return heapq.merge(*map(buckets_of, queues), key=lambda bucket: -bucket.priority)


def _choose_due(
    subscription: Subscription, bucket: Bucket, limit: int, scan: Scan, until: float
) -> list[Candidate]:
    rows = _look_at_due(subscription, bucket, limit, scan, until, sql=statements.CHOOSE_DUE)
    return [Candidate(*row) for row in rows]


def _look_at_due(
    subscription: Subscription, bucket: Bucket, limit: int, scan: Scan, until: float, *, sql: str
) -> list[tuple[Any, ...]]:
    params: dict[str, Any] = {}
    after = ""
    if cursor := scan.cursors.get(bucket):
        after = statements.AFTER_CURSOR
        params.update(mark_time=cursor.due_at, mark_id=cursor.task_id)
    elif scan.recent is not None:
        after = statements.LATELY
        params.update(age=scan.recent.seconds)
    params.update(choosing(subscription, bucket, limit))
    sql = subscription.claiming(sql.replace("{after}", after))
    return fetch_within(subscription.alias, sql, _left(until), **params)


def choosing(subscription: Subscription, bucket: Bucket, limit: int) -> dict[str, Any]:
    """Return the parameters of ``statements.CHOOSE_DUE``, except the limits of a part."""
    return {
        "queue": bucket.queue_name,
        "priority": bucket.priority,
        "limit": limit,
        **subscription.claimable,
    }


def _left(until: float) -> float:
    left = until - time.monotonic()
    if left <= 0:
        raise TookTooLong("a scan took longer than it may: the next ones look at less at once")
    return left
