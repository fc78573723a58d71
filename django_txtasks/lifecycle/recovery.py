"""What a cleaner does to rows: lost workers, their claims, overdue tasks, old history."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django_txtasks.exceptions import ClaimLost
from django_txtasks.lifecycle import statements
from django_txtasks.lifecycle.attempts import Arrow, Attempt, Ended
from django_txtasks.lifecycle.claims import read_errors
from django_txtasks.lifecycle.dialect import as_uuid, run
from django_txtasks.lifecycle.outcomes import move
from django_txtasks.models import OnCrash

BATCH = 500
_FIRST_ID = uuid.UUID(int=0)


@dataclass(frozen=True)
class LivingWorker:
    """A worker that is not declared lost; ``lease`` in seconds."""

    id: uuid.UUID
    beat: int
    lease: float
    host: str
    pid: int


@dataclass(frozen=True)
class Orphan:
    """A claim whose worker is lost or has no row."""

    attempt: Attempt
    max_crashes: int
    on_crash: str
    started: bool
    whose: str


def living_workers(alias: str) -> list[LivingWorker]:
    """Return the workers that are believed, with the beat that each has reached."""
    rows = run(alias, statements.LIVING_WORKERS)[1]
    return [LivingWorker(as_uuid(row[0]), *row[1:]) for row in rows]


def seems_silent(alias: str) -> bool:
    """Say whether some worker's last beat is older than its lease, by the database's clock."""
    return any(
        run(alias, statements.SILENT_WORKERS, age=worker.lease)[1]
        for worker in living_workers(alias)
    )


def lose(alias: str, worker: LivingWorker) -> bool:
    """Declare a worker lost, if its beat is still the one that was seen.

    False = it lives, or its row is locked, by itself or by another cleaner.
    """
    if not run(alias, statements.LOCK_WORKER, worker=worker.id)[1]:
        return False
    return run(alias, statements.LOSE, worker=worker.id, beat=worker.beat)[0] == 1


def orphans(alias: str, after: uuid.UUID = _FIRST_ID) -> list[Orphan]:
    """Return claims that nobody will finish, in pages by id."""
    rows = run(alias, statements.ORPHANS, after=after, limit=BATCH)[1]
    return [_orphan(row) for row in rows]


def recover(alias: str, orphan: Orphan, delay: Callable[[int], timedelta]) -> Arrow:
    """Take a lost claim's own arrow and return which it was.

    Not started: released, counted against nothing. Declared safe to run again: retried at once
    after the first crash, after ``delay(crashes - 1)`` from the second on, until ``max_crashes``.
    Else: dead.

    Raises:
        ClaimLost: the row has moved on by itself, or somebody else has locked it.
    """
    attempt, crashes = orphan.attempt, orphan.attempt.crashes + 1
    if not run(alias, statements.LOCK_CLAIMED, ids=[attempt.task_id])[1]:
        raise ClaimLost(f"task {attempt.task_id} is locked or no longer claimed")
    if not orphan.started:
        move(alias, Ended(attempt=attempt, arrow=Arrow.RELEASE))
        return Arrow.RELEASE
    again = orphan.on_crash == OnCrash.RETRY and crashes < orphan.max_crashes
    arrow = Arrow.RETRY if again else Arrow.BURY
    pause = delay(crashes - 1) if crashes > 1 else timedelta(0)
    error = {"type": "WorkerLost", "message": _reason(orphan, crashes)}
    move(alias, Ended(attempt=attempt, arrow=arrow, delay=pause, error=error), crashed=True)
    return arrow


def overdue(alias: str, queue: str, age: timedelta, limit: int) -> list[uuid.UUID]:
    """Return tasks due for longer than ``age`` that were not renotified since, and mark them."""
    found: list[uuid.UUID] = []
    for (priority,) in run(alias, statements.PENDING_PRIORITIES, queue=queue)[1]:
        if len(found) < limit:
            rows = run(
                alias,
                statements.OVERDUE,
                queue=queue,
                priority=priority,
                age=age.total_seconds(),
                limit=limit - len(found),
            )[1]
            found += [as_uuid(row[0]) for row in rows]
    if found:
        run(alias, statements.NOTIFIED, ids=sorted(found))
    return found


def prune(alias: str, age: timedelta) -> int:
    """Delete a batch of finished tasks older than ``age``; return how many."""
    rows = run(alias, statements.OLD_FINISHED, age=age.total_seconds(), limit=BATCH)[1]
    if rows:
        run(alias, statements.PRUNE, ids=sorted(as_uuid(row[0]) for row in rows))
    return len(rows)


def forget_lost_workers(alias: str, age: timedelta) -> int:
    """Delete the rows of lost workers that hold nothing and were last seen ``age`` ago."""
    return run(alias, statements.FORGET_LOST, age=age.total_seconds())[0]


def _orphan(row: tuple[Any, ...]) -> Orphan:
    (
        task_id,
        number,
        worker,
        name,
        queue,
        crashes,
        max_crashes,
        on_crash,
        errors,
        started,
        host,
        pid,
    ) = row
    attempt = Attempt(
        task_id=as_uuid(task_id),
        number=number,
        worker=as_uuid(worker),
        task_name=name,
        queue_name=queue,
        args="",
        kwargs="",
        failures=0,
        crashes=crashes,
        max_attempts=0,
        errors=read_errors(errors),
    )
    whose = f"{worker} on {host} (pid {pid})" if host else f"{worker}, which has no row"
    return Orphan(attempt, max_crashes, on_crash, bool(started), whose)


def _reason(orphan: Orphan, crashes: int) -> str:
    if orphan.on_crash == OnCrash.RETRY:
        return f"worker lost in mid-task, crash {crashes} of {orphan.max_crashes}: {orphan.whose}"
    return (
        f"worker lost in mid-task: {orphan.whose}. The task is declared neither atomic nor idempotent, "
        "so it may have done part of its work. Check, then revive or discard it."
    )
