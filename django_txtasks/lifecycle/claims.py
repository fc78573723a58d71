"""pending -> claimed, and what a worker has to know about its claims."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from django.db import OperationalError

from django_txtasks import registry
from django_txtasks.lifecycle import statements
from django_txtasks.lifecycle.attempts import Attempt
from django_txtasks.lifecycle.dialect import as_uuid, run


@dataclass(frozen=True)
class Subscription:
    """Which rows a worker may take: those of these queues whose task function it knows."""

    alias: str
    queues: list[str]
    names: list[str]


@dataclass(frozen=True)
class Lookup:
    """What became of the ids of hints.

    Attributes:
        claimed: taken.
        later: pending, but due only in so many seconds.
        absent: no row, live or finished: perhaps one that is not committed yet.
    """

    claimed: list[Attempt]
    later: dict[uuid.UUID, float]
    absent: list[uuid.UUID]


def claim_due(subscription: Subscription, worker: uuid.UUID, limit: int) -> list[Attempt]:
    """Claim up to ``limit`` due tasks, higher priorities first, then the longest due.

    Queues that come first in the subscription come first at the same priority. Must run in a
    transaction that began with the worker's beat; no task may start before its COMMIT.
    """
    rows: list[tuple[Any, ...]] = []
    for priority, queue in _heads(subscription):
        if len(rows) < limit:
            rows += run(
                subscription.alias,
                statements.CHOOSE_DUE,
                queue=queue,
                priority=priority,
                names=subscription.names,
                limit=limit - len(rows),
            )[1]
    return _claim(subscription.alias, worker, rows)


def claim_hinted(
    subscription: Subscription, worker: uuid.UUID, ids: Iterable[uuid.UUID], limit: int
) -> Lookup:
    """Claim up to ``limit`` of the given tasks that are due, whatever else waits. Scans nothing.

    Must run in a transaction that began with the worker's beat.
    """
    missing = set(ids)
    rows = run(
        subscription.alias,
        statements.CHOOSE_BY_ID,
        queues=subscription.queues,
        names=subscription.names,
        ids=sorted(missing),
    )[1]
    due = [row for row in rows if row[-1] <= 0][:limit]
    taken = {row[0] for row in due}
    later = {as_uuid(row[0]): max(0.0, float(row[-1])) for row in rows if row[0] not in taken}
    missing -= {as_uuid(row[0]) for row in rows}
    if missing:
        known = run(subscription.alias, statements.KNOWN_IDS, ids=sorted(missing))[1]
        missing -= {as_uuid(row[0]) for row in known}
    return Lookup(_claim(subscription.alias, worker, due), later, sorted(missing))


def still_holds(alias: str, attempt: Attempt) -> bool:
    """Say whether the row is still this attempt's and its worker is believed."""
    task_id, number, worker = attempt.fence
    return bool(run(alias, statements.STILL_HELD, id=task_id, attempt=number, worker=worker)[1])


def claims_of(alias: str, worker: uuid.UUID) -> set[tuple[uuid.UUID, int]]:
    """Return (id, attempt) of every row that says this worker holds it."""
    rows = run(alias, statements.CLAIMS_OF_WORKER, worker=worker)[1]
    return {(as_uuid(task_id), number) for task_id, number in rows}


def _heads(subscription: Subscription) -> list[tuple[int, str]]:
    """Return (priority, queue) pairs that have pending rows, highest priority first."""
    heads = [
        (priority, queue)
        for queue in subscription.queues
        for (priority,) in run(subscription.alias, statements.PENDING_PRIORITIES, queue=queue)[1]
        if isinstance(priority, int)  # SQLite takes any text
    ]
    return sorted(heads, key=lambda head: -head[0])


def _claim(alias: str, worker: uuid.UUID, rows: list[tuple[Any, ...]]) -> list[Attempt]:
    if not rows:
        return []
    count, _ = run(
        alias, statements.CLAIM, worker=worker, ids=sorted(as_uuid(row[0]) for row in rows)
    )
    if count != len(rows):  # SQLite without BEGIN IMMEDIATE: somebody was faster
        raise OperationalError(f"{count} rows were claimed instead of {len(rows)}: repeat the turn")
    return [_attempt(row, worker) for row in rows]


def _attempt(row: tuple[Any, ...], worker: uuid.UUID) -> Attempt:
    (
        task_id, name, queue, args, kwargs, attempt, failures, crashes, max_attempts, errors, timeout, hooks, _,
    ) = row  # fmt: skip
    return Attempt(
        task_id=as_uuid(task_id),
        number=attempt + 1,
        worker=worker,
        task_name=name,
        queue_name=queue,
        args=args,
        kwargs=kwargs,
        failures=failures,
        crashes=crashes,
        max_attempts=max_attempts,
        errors=read_entries(errors),
        timeout=timeout if registry.is_time_limit(timeout) else None,
        hooks=hooks,
    )


def read_entries(text: str) -> list[dict[str, Any]]:
    """Return a row's list of objects, such as its errors; none if somebody wrote something else."""
    if text == "[]":
        return []
    try:
        entries = json.loads(text)
        json.dumps(entries, allow_nan=False)  # 1e999 can be read, and not be written again
    except (ValueError, RecursionError):
        return []
    return (
        [entry for entry in entries if isinstance(entry, dict)] if isinstance(entries, list) else []
    )
