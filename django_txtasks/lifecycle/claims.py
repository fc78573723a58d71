"""pending -> claimed, and what a worker has to know about its claims."""

from __future__ import annotations

import json
import operator
import sys
import time
import uuid
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from django.db import OperationalError

from django_txtasks import registry
from django_txtasks.lifecycle import statements
from django_txtasks.lifecycle.attempts import Attempt
from django_txtasks.lifecycle.database_errors import TookTooLong
from django_txtasks.lifecycle.execute import as_uuid, execute, fetch
from django_txtasks.lifecycle.time_limits import fetch_within

_INT = operator.attrgetter("int")  # UUIDs compare slowly


@dataclass(frozen=True)
class Subscription:
    """Which rows a worker may take: those of these queues whose task function it knows."""

    alias: str
    queues: list[str]
    names: list[str]


@dataclass
class Room:
    """What a worker has room for.

    Attributes:
        alone: tasks that get a slot of their own.
        ahead: more of those that are short and may run again.
        enough: short ones wait already: there is room for what hints tell, but no need to scan.
        most: of both together.
        short: names of tasks that take so little time here that they may wait for a slot.
        blocked: one that needs a slot of its own found none.
        blocked_queue: that one's queue.
        filled: there may be more than was looked at.
    """

    alone: int
    ahead: int = 0
    enough: bool = False
    most: int = sys.maxsize
    short: Collection[str] = ()
    blocked: bool = False
    blocked_queue: str = ""
    filled: bool = False

    @property
    def width(self) -> int:
        """How many tasks fit."""
        return min(self.alone + self.ahead, self.most)

    def take(self, attempts: Iterable[Attempt]) -> list[Attempt]:
        """Return those that fit, in their order: none overtakes one that finds no room."""
        taken = []
        for attempt in attempts:
            if self.ahead > 0 and attempt.may_share and attempt.task_name in self.short:
                self.ahead -= 1
            elif self.alone:
                self.alone -= 1
            else:
                self.blocked, self.blocked_queue = True, attempt.queue_name
                break
            taken.append(attempt)
        self.most -= len(taken)
        return taken


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


Head = tuple[int, str]
"""A priority and a queue."""
Mark = tuple[str, uuid.UUID]
"""(run_after, id) of a row that was claimed."""
Marks = dict[Head, Mark]
"""How far scans have come: the last row that was claimed."""


@dataclass(frozen=True)
class Recent:
    """What a scan looks at that is not to walk over the dead of an old snapshot, which may be millions.

    Attributes:
        heads: where to look, highest priority first; it does not ask which there are.
        seconds: look at what became due in this time, where there is no mark to go on from.
    """

    heads: list[Head]
    seconds: float


def claim_due(
    subscription: Subscription,
    worker: uuid.UUID,
    room: Room,
    marks: Marks | None = None,
    recent: Recent | None = None,
    *,
    seconds: float = sys.maxsize,
) -> list[Attempt]:
    """Claim what is due and fits, higher priorities first, then the longest due.

    Queues that come first in the subscription come first at the same priority. Must run in a
    transaction that began with the worker's beat; no task may start before its COMMIT.

    Args:
        marks: where to go on, and how far this scan has come; emptied at the end of a backlog.
        recent: look at this only, and keep the marks.
        seconds: how long looking may take, all in all.

    Raises:
        TookTooLong, or what the database says: the transaction must roll back; the next scan looks at less.
    """
    claimed: list[Attempt] = []
    marks = {} if marks is None else marks
    began_later = bool(marks)
    until = time.monotonic() + seconds
    for head in _heads(subscription, until) if recent is None else recent.heads:
        limit = room.width
        if not limit or room.blocked:
            break
        rows = _choose_due(
            subscription, head, limit, mark=marks.get(head), recent=recent, until=until
        )
        taken = claim_rows(subscription.alias, worker, rows, room)
        claimed += taken
        if taken:
            marks[head] = (rows[len(taken) - 1][-2], taken[-1].task_id)
        room.filled = room.filled or len(rows) == limit
    if not (room.filled or room.blocked or recent):
        marks.clear()
        room.filled = began_later  # there may be more before the marks
    return claimed


def _choose_due(
    subscription: Subscription,
    head: Head,
    limit: int,
    *,
    mark: Mark | None,
    recent: Recent | None,
    until: float,
) -> list[tuple[Any, ...]]:
    params: dict[str, Any] = {}
    after = ""
    if mark:
        after = statements.AFTER_MARK
        params.update(mark_time=mark[0], mark_id=mark[1])
    elif recent:
        after = statements.LATELY
        params.update(age=recent.seconds)
    sql = statements.CHOOSE_DUE.replace("{after}", after)
    params.update(choosing(subscription, head, limit))
    return fetch_within(subscription.alias, sql, _left(until), **params)


def choosing(subscription: Subscription, head: Head, limit: int) -> dict[str, Any]:
    """Return the parameters of ``statements.CHOOSE_DUE``, beside those that say where it begins and ends."""
    priority, queue = head
    return {"queue": queue, "priority": priority, "limit": limit, "names": subscription.names}


def _left(until: float) -> float:
    left = until - time.monotonic()
    if left <= 0:
        raise TookTooLong("a scan took longer than it may: the next ones look at less at once")
    return left


def claim_hinted(
    subscription: Subscription, worker: uuid.UUID, ids: Iterable[uuid.UUID], room: Room
) -> Lookup:
    """Claim those of the given tasks that are due and fit, whatever else waits. Scans nothing.

    Must run in a transaction that began with the worker's beat.
    """
    rows = fetch(
        subscription.alias,
        statements.CHOOSE_BY_ID,
        queues=subscription.queues,
        names=subscription.names,
        ids=sorted(set(ids)),
    )
    due = [row for row in rows if row[-1] <= 0][: room.width]
    claimed = claim_rows(subscription.alias, worker, due, room)
    known = {as_uuid(row[0]) for row in rows}
    if missing := sorted(set(ids) - known):
        known |= {
            as_uuid(row[0]) for row in fetch(subscription.alias, statements.KNOWN_IDS, ids=missing)
        }
    return read_lookup(ids, rows, claimed, known)


def read_lookup(
    ids: Iterable[uuid.UUID],
    rows: Iterable[Sequence[Any]],
    claimed: list[Attempt],
    known: set[uuid.UUID],
) -> Lookup:
    """Say what became of ``ids``, of which ``rows`` were pending and ``known`` are there at all."""
    later = {as_uuid(row[0]): max(0.0, float(row[-1])) for row in rows}
    for attempt in claimed:
        del later[attempt.task_id]
    return Lookup(claimed, later, sorted(set(ids) - known))


def still_holds(alias: str, attempt: Attempt) -> bool:
    """Say whether the row is still this attempt's and its worker is believed."""
    task_id, number, worker = attempt.fence
    return bool(fetch(alias, statements.STILL_HELD, id=task_id, attempt=number, worker=worker))


def claims_of(alias: str, worker: uuid.UUID) -> set[tuple[uuid.UUID, int]]:
    """Return (id, attempt) of every row that says this worker holds it."""
    rows = fetch(alias, statements.CLAIMS_OF_WORKER, worker=worker)
    return {(as_uuid(task_id), number) for task_id, number in rows}


def _heads(subscription: Subscription, until: float) -> list[Head]:
    """Return (priority, queue) pairs that have pending rows, highest priority first."""
    sql, alias = statements.PENDING_PRIORITIES, subscription.alias
    heads = [
        (priority, queue)
        for queue in subscription.queues
        for (priority,) in fetch_within(alias, sql, _left(until), queue=queue)
        if isinstance(priority, int)  # SQLite takes any text
    ]
    return sorted(heads, key=lambda head: -head[0])


def claim_rows(
    alias: str, worker: uuid.UUID, rows: list[tuple[Any, ...]], room: Room
) -> list[Attempt]:
    """PENDING -> CLAIMED for those of the chosen rows that fit."""
    claimed = room.take([read_attempt(row, worker) for row in rows])
    if claimed:
        ids = sorted((attempt.task_id for attempt in claimed), key=_INT)
        count = execute(alias, statements.CLAIM, worker=worker, ids=ids)
        if count != len(ids):  # SQLite without BEGIN IMMEDIATE: somebody was faster
            raise OperationalError(
                f"{count} rows were claimed instead of {len(ids)}: repeat the turn"
            )
    return claimed


def read_attempt(row: Sequence[Any], worker: uuid.UUID) -> Attempt:
    """Return the attempt that claims a row, as a statement has chosen it."""
    (
        task_id, name, queue, args, kwargs, attempt, failures, crashes, max_attempts, errors, timeout, hooks,
        may_share, _, _,
    ) = row  # fmt: skip
    return Attempt(
        as_uuid(task_id),
        attempt + 1,
        worker,
        name,
        queue,
        args,
        kwargs,
        failures,
        crashes,
        max_attempts,
        read_entries(errors),
        timeout if timeout is None or registry.is_time_limit(timeout) else None,
        hooks,
        bool(may_share),
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
