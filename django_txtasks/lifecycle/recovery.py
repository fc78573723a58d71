"""What a cleaner does to rows: lost workers, their claims, overdue tasks, old history."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django_txtasks.conf import Config
from django_txtasks.exceptions import ClaimLost, WorkerLost, class_path
from django_txtasks.lifecycle import statements
from django_txtasks.lifecycle.attempts import Arrow, Attempt, Ended
from django_txtasks.lifecycle.claims import read_entries
from django_txtasks.lifecycle.dialect import as_uuid, is_uuid, run
from django_txtasks.lifecycle.followers import Followers, follow
from django_txtasks.lifecycle.outcomes import finish_rows, move
from django_txtasks.models import OnCrash, Outcome, Status

BATCH = 500
_FIRST_ID = uuid.UUID(int=0)


@dataclass(frozen=True)
class LivingWorker:
    """A worker that is not declared lost.

    Attributes:
        lease: in seconds.
        sessions: of the database; the loop's first. Empty text = not known.
        suspected: RabbitMQ has delivered its last will.
    """

    id: uuid.UUID
    beat: int
    lease: float
    host: str
    pid: int
    sessions: list[str]
    suspected: bool


@dataclass(frozen=True)
class Orphan:
    """A claim whose worker is lost or has no row."""

    attempt: Attempt
    max_crashes: int
    on_crash: OnCrash
    started: bool
    whose: str


@dataclass(frozen=True)
class Recovered:
    """The arrow that a lost claim took, and the tasks that followed it."""

    arrow: Arrow
    followers: Followers


def living_workers(alias: str) -> list[LivingWorker]:
    """Return the workers that are believed, with the beat that each has reached."""
    rows = run(alias, statements.LIVING_WORKERS)[1]
    return [
        LivingWorker(as_uuid(worker), beat, lease, host, pid, json.loads(sessions), bool(suspected))
        for worker, beat, lease, host, pid, sessions, suspected in rows
    ]


def suspect(alias: str, worker: uuid.UUID, will: int) -> bool | None:
    """RabbitMQ has delivered this will.

    False = it is void: the worker is lost, gone, or has a new one. None = the worker's row is locked.
    """
    if not run(alias, statements.LOCK_WORKER, worker=worker)[1]:
        return None if run(alias, statements.HAS_WORKER, worker=worker)[1] else False
    return run(alias, statements.SUSPECT, worker=worker, will=will)[0] == 1


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
    """Return claims that nobody will finish, in pages by id; not those whose worker is no id."""
    rows = run(alias, statements.ORPHANS, after=after, limit=BATCH)[1]
    return [_orphan(row) for row in rows if is_uuid(row[0]) and is_uuid(row[2])]


def recover(
    alias: str, orphan: Orphan, delay: Callable[[int], timedelta], config: Config
) -> Recovered:
    """Take a lost claim's own arrow, with the tasks that follow it.

    Not started: released, counted against nothing. Declared safe to run again: retried at once
    after the first crash, after ``delay(crashes - 1)`` from the second on, until ``max_crashes``.
    Else: dead, and compensated if so declared.

    Raises:
        ClaimLost: the row has moved on by itself, or somebody else has locked it.
    """
    attempt, crashes = orphan.attempt, orphan.attempt.crashes + 1
    if not run(alias, statements.LOCK_CLAIMED, ids=[attempt.task_id])[1]:
        raise ClaimLost(f"task {attempt.task_id} is locked or no longer claimed")
    if not orphan.started:
        move(alias, Ended(attempt=attempt, arrow=Arrow.RELEASE))
        return Recovered(Arrow.RELEASE, [])
    again = orphan.on_crash is OnCrash.RETRY and crashes < orphan.max_crashes
    ended = Ended(
        attempt=attempt,
        arrow=Arrow.RETRY if again else Arrow.BURY,
        delay=delay(crashes - 1) if crashes > 1 else timedelta(0),
        error={
            "type": WorkerLost.__name__,
            "class": class_path(WorkerLost),
            "message": _reason(orphan, crashes),
        },
    )
    move(alias, ended, crashed=True)
    return Recovered(ended.arrow, follow(alias, [ended], config, lost=orphan.on_crash))


def expire(alias: str, *, keep: bool) -> list[tuple[uuid.UUID, str, str]]:
    """PENDING -> finished as expired, for a batch of tasks that may not start any more.

    Returns:
        (id, task name, queue name) of each.
    """
    rows = [
        (as_uuid(row[0]), row[1], row[2]) for row in run(alias, statements.EXPIRED, limit=BATCH)[1]
    ]
    if rows:
        finish_rows(alias, [row[0] for row in rows], Status.PENDING, Outcome.EXPIRED, keep=keep)
    return rows


def long_claimed(alias: str, age: timedelta) -> list[tuple[Attempt, str]]:
    """Return attempts without a time limit that living workers hold for longer than ``age``, and where."""
    rows = run(alias, statements.LONG_CLAIMED, age=age.total_seconds(), limit=BATCH)[1]
    return [
        (
            Attempt(as_uuid(task_id), number, as_uuid(worker), task_name=name, queue_name=queue),
            f"{host} (pid {pid})",
        )
        for task_id, number, worker, name, queue, host, pid in rows
    ]


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
        task_id, number, worker, name, queue, args, kwargs, failures, crashes, max_crashes, on_crash,
        errors, hooks, started, host, pid,
    ) = row  # fmt: skip
    attempt = Attempt(
        task_id=as_uuid(task_id),
        number=number,
        worker=as_uuid(worker),
        task_name=name,
        queue_name=queue,
        args=args,
        kwargs=kwargs,
        failures=failures,
        crashes=crashes,
        errors=read_entries(errors),
        hooks=hooks,
    )
    worker = as_uuid(worker)
    whose = f"{worker} on {host} (pid {pid})" if host else f"{worker}, which has no row"
    policy = OnCrash(on_crash) if on_crash in OnCrash.values else OnCrash.DEAD  # as written by hand
    return Orphan(attempt, max_crashes, policy, bool(started), whose)


def _reason(orphan: Orphan, crashes: int) -> str:
    if orphan.on_crash is OnCrash.RETRY:
        return f"worker lost in mid-task, crash {crashes} of {orphan.max_crashes}: {orphan.whose}"
    if orphan.on_crash is OnCrash.COMPENSATE:
        return f"worker lost in mid-task: {orphan.whose}. Its compensation was enqueued in the same transaction."
    return (
        f"worker lost in mid-task: {orphan.whose}. The task is declared neither atomic nor idempotent, "
        "so it may have done part of its work. Check, then revive or discard it."
    )
