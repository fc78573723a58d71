"""A cleaner's changes to rows: lost workers, their claims, expired tasks, old history.

A worker that must end recovers its own claims in the same way.
"""

from __future__ import annotations

import json
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, NamedTuple

from django.db import IntegrityError, transaction

from django_txtasks import signals
from django_txtasks.core.ground.causes import cause_of_class
from django_txtasks.core.ground.config import CoreConfig
from django_txtasks.core.ground.retention import Horizon
from django_txtasks.core.rows import arrow_parts, attempts, outcomes, statements, workers
from django_txtasks.core.rows.attempts import (
    MAX_ERRORS,
    Arrow,
    Attempt,
    Counted,
    Ended,
    FollowUps,
    read_entries,
)
from django_txtasks.core.rows.follow_ups import follow
from django_txtasks.core.rows.outcomes import finish_rows, move
from django_txtasks.core.rows.workers import UNKNOWN, End
from django_txtasks.database import processes, side_tables
from django_txtasks.database.execute import (
    as_uuid,
    execute,
    fetch,
    fetch_as,
    fetch_column,
    fetch_value,
    is_uuid,
)
from django_txtasks.exceptions import (
    ClaimLost,
    EndLost,
    WorkerLost,
    WorkerStopped,
    class_path,
)
from django_txtasks.models import OnCrash, Outcome, Status, Task

ROWS_PER_LOOK = 500
MAX_HELD_CLAIMS = 10_000
"""Number of claims of one worker that are read together."""
MAX_NAMES, MAX_NAMED_CLAIMS = 10, 500
"""Number of names of task functions in an error, and number of claims of the worker that are read for them."""
_ABANDONED = (
    "The attempt did not end after its time limit, so its process was replaced, and how far it came is unknown. "
    "Its compensation was enqueued in the same transaction."
)
STOPS_IN_A_ROW = MAX_ERRORS - 1
"""Number of orderly stops of workers in a row that do not count as crashes of the interrupted task."""
OLD_FINISHED = """
    SELECT id, CAST(finished_at AS {text}) AS until,
           COALESCE((SELECT FALSE FROM txtasks_task t WHERE t.id = merged_into), TRUE)<of_parts>
           {of_kinds}
      FROM (SELECT id, finished_at, merged_into, batch, outcome, queue_name FROM txtasks_finishedtask {by_finish}
             WHERE finished_at < {ago} {since} {sound_id}
             ORDER BY finished_at LIMIT %(limit)s OFFSET %(left)s) old
     ORDER BY finished_at
"""
_FIRST_ID, _LAST_ID = uuid.UUID(int=0), uuid.UUID(int=2**128 - 1)


class LivingWorker(NamedTuple):
    """A worker that is not declared lost.

    Attributes:
        lease: in seconds.
        sessions: its database sessions, the loop's first. Empty text = unknown.
        suspected: whether RabbitMQ has delivered its last will.
        has_hints: False if it has no source of hints, as a worker in another language: RabbitMQ cannot report its
            end.
        process: the mark of its process; see ``processes``.
    """

    id: uuid.UUID
    beat: int
    lease: float
    host: str
    pid: int
    sessions: list[str]
    suspected: bool
    has_hints: bool = True
    process: str = ""


@dataclass(frozen=True)
class Holder:
    """A worker that will not end its claims: it is declared lost, or its id has no row."""

    id: uuid.UUID
    whose: str


@dataclass(frozen=True)
class Orphan:
    """A claim whose worker is lost, has no row, or is about to end.

    Attributes:
        beside: names of all tasks that its worker held, if there were several.
        was_asked: whether its task was asked to stop, so that no other attempt starts.
    """

    attempt: Attempt
    max_crashes: int
    on_crash: OnCrash
    whose: str
    beside: str = ""
    was_asked: bool = False


@dataclass(frozen=True)
class Recovered:
    """The arrow that a claim took, and the tasks that were enqueued with it."""

    ended: Ended
    follow_ups: FollowUps


def living_workers(alias: str) -> list[LivingWorker]:
    """Return the workers that are not declared lost, with their beats."""
    return [
        LivingWorker(as_uuid(worker), beat, lease, host, pid, **_signs(*signs))
        for worker, beat, lease, host, pid, *signs in fetch(alias, statements.LIVING_WORKERS)
    ]


def _signs(text: str, suspected: Any, has_hints: Any) -> dict[str, Any]:
    """Return the fields of a worker by which a cleaner sees its end.

    Args:
        text: sessions and the mark of the process, which are in one column. If it has other content, both are
            unknown: a row written by hand must not stop the cleaner.
    """
    try:
        written = json.loads(text)
    except ValueError:
        written = None
    signs = [one for one in written if isinstance(one, str)] if isinstance(written, list) else []
    marks = [one for one in signs if one.startswith(processes.PREFIX)]
    mark = "".join(marks[:1])
    found: dict[str, Any] = {"suspected": bool(suspected), "has_hints": bool(has_hints)}
    return {**found, "sessions": [one for one in signs if one not in marks], "process": mark}


def abilities(alias: str) -> dict[str, set[str] | None]:
    """Return, for each queue with a worker, the task functions that its workers declare; None = any.

    A worker of an older release, whose row does not list them, may declare any.
    """
    able: dict[str, set[str] | None] = {}
    for queues, names in fetch(alias, statements.ABILITIES):
        declared = set(json.loads(names))
        for queue in json.loads(queues):
            others = able.get(queue, set())
            able[queue] = others | declared if declared and others is not None else None
    return able


def suspect(alias: str, worker: uuid.UUID, will: int) -> bool | None:
    """Mark a worker as suspected, because RabbitMQ has delivered this will.

    False = the will is void: the worker is lost or gone, or has a new will. None = the worker's row is locked.
    """
    if not fetch(alias, statements.LOCK_WORKER, worker=worker):
        return None if fetch(alias, statements.HAS_WORKER, worker=worker) else False
    return execute(alias, statements.SUSPECT, worker=worker, will=will) == 1


def seems_silent(alias: str) -> bool:
    """Say whether the last beat of any worker is older than its lease, by the database's clock."""
    return any(
        fetch(alias, statements.SILENT_WORKERS, age=worker.lease)
        for worker in living_workers(alias)
    )


def lose(alias: str, worker: LivingWorker) -> bool:
    """Declare a worker lost if its beat has not changed since it was read; keep the functions of its claims.

    False = the worker is alive, or its row is locked, by itself or by another cleaner.
    """
    if not fetch(alias, statements.LOCK_WORKER, worker=worker.id):
        return False
    if execute(alias, statements.LOSE, worker=worker.id, beat=worker.beat) != 1:
        return False
    workers.keep(alias, [worker.id], End(UNKNOWN, workers.in_hand(alias, worker.id)))
    return True


def holds_final_claims(alias: str, worker: uuid.UUID, lease: timedelta) -> bool:
    """Say whether a worker holds a claim whose task would not run again after recovery.

    Args:
        lease: a task that expires within this time counts as well, because its next run might come too late.
    """
    return bool(fetch(alias, statements.FINAL_CLAIM, worker=worker, delay=lease.total_seconds()))


def lost_workers(alias: str) -> list[Holder]:
    """Return the workers that were declared lost."""
    rows = fetch(alias, statements.LOST_WORKERS)
    return [
        Holder(as_uuid(worker), f"{as_uuid(worker)} on {host} (pid {pid})")
        for worker, host, pid in rows
    ]


def holders_without_row(alias: str) -> list[Holder]:
    """Return the workers that hold claims and have no row, at most ``ROWS_PER_LOOK``. Invalid ids are left out.

    It reads the index of claims once between each two workers that have a row.
    """
    found: list[Holder] = []
    known = fetch_column(alias, statements.ALL_WORKERS)
    low: Any = _FIRST_ID
    for high in [*known, _LAST_ID]:
        while len(found) < ROWS_PER_LOOK:
            holders = fetch_column(alias, statements.HOLDER_BETWEEN, low=low, high=high)
            if not holders:
                break
            (low,) = holders
            # W1 may have registered and claimed since the workers were read; its row is older than its claim
            if is_uuid(low) and not fetch(alias, statements.HAS_WORKER, worker=as_uuid(low)):
                found.append(Holder(as_uuid(low), f"{as_uuid(low)}, which has no row"))
        low = high
    return found


def held_by(alias: str, holder: Holder, most: int = MAX_HELD_CLAIMS) -> list[uuid.UUID]:
    """Return the ids of a holder's claims in order; if there are more than ``most``, any ``most`` of them."""
    ids = fetch_column(alias, statements.HELD_BY, worker=holder.id, limit=most)
    return sorted(as_uuid(one) for one in ids if is_uuid(one))


def names_in_hand(alias: str, ids: Sequence[uuid.UUID]) -> str:
    """Return the names of the task functions of one worker's claims, for ``orphans``."""
    claims = Task.objects.using(alias).filter(pk__in=ids[:MAX_NAMED_CLAIMS])
    counts = Counter(claims.values_list("task_name", flat=True))
    names = [name if number == 1 else f"{name} ({number})" for name, number in counts.items()]
    return ", ".join(sorted(names)[:MAX_NAMES]) + (", …" if len(names) > MAX_NAMES else "")


def orphans(alias: str, holder: Holder, ids: Sequence[uuid.UUID], beside: str = "") -> list[Orphan]:
    """Return the given claims that the holder still holds, in the order of their ids."""
    found: list[Orphan] = []
    for start in range(0, len(ids), ROWS_PER_LOOK):
        page = ids[start : start + ROWS_PER_LOOK]
        claims = fetch_as(_Claim, alias, statements.ORPHANS, ids=page, worker=holder.id)
        some = [replace(_orphan(claim, holder.whose), beside=beside) for claim in claims]
        found += sorted(some, key=lambda one: one.attempt.task_id)
    return found


def recover(
    alias: str,
    orphan: Orphan,
    delay: Callable[[int], timedelta],
    config: CoreConfig,
    *,
    stopped: str = "",
    lost_end: Arrow | None = None,
) -> Recovered:
    """Take the arrow of a claim by its crash policy, and enqueue the tasks that follow.

    A task that may run again is retried at once after its first crash, and after ``delay(crashes - 1)`` from the
    second crash on, until ``max_crashes``. Then it is dead, like a task that may not run again; it is compensated
    if it is declared so.

    Args:
        stopped: the reason if its worker stops in good order. Then a task that may run again is due at once, and
            this counts as no crash, unless it has happened ``STOPS_IN_A_ROW`` times: a task that stops its worker
            itself must end, too.
        lost_end: the arrow that its worker has recorded for this attempt and that the database has lost.

    Raises:
        ClaimLost: the row has changed, or another transaction has locked it.
    """
    attempt, policy = orphan.attempt, orphan.on_crash
    _lock(alias, attempt)
    free = bool(stopped) and policy.retries and not _is_stopped_too_often(attempt)
    crashes = attempt.crashes + (not free)
    again = policy.retries and crashes < orphan.max_crashes
    kind = EndLost if lost_end else WorkerStopped if stopped else WorkerLost
    ended = Ended(
        attempt=attempt,
        arrow=Arrow.RETRY if again else Arrow.BURY,
        delay=delay(crashes - 1) if crashes > 1 and not free else timedelta(0),
        error={
            "type": kind.__name__,
            "class": class_path(kind),
            "message": _reason_of_lost_end(orphan, lost_end)
            if lost_end
            else _reason(orphan, "" if free else f"{crashes}", stopped, again=again),
        },
        counted=Counted.NOTHING if again and free else Counted.CRASH,
        cause=cause_of_class(attempt.task_name, kind),
    )
    move(alias, ended)
    arrow_parts.recovered(alias, [ended])
    return Recovered(ended, follow(alias, [ended], config, lost=policy))


def retry_together(
    alias: str, orphans: Sequence[Orphan], stopped: str
) -> list[tuple[Orphan, Ended]]:
    """Retry claims as ``recover`` would after an orderly stop, but with few statements for thousands of claims.

    Rows that another transaction has locked are left out, as are claims that ``recover`` would not retry
    uncounted, or that have errors or hooks: ``recover`` takes those one by one.

    Raises:
        ClaimLost: a locked row has changed.
    """
    found: dict[tuple[int, int], list[tuple[Orphan, Ended]]] = {}
    plain = [one for one in orphans if _is_plain(one)]
    held = attempts.locked(alias, [one.attempt.task_id for one in plain])
    for one in plain:
        if one.attempt.fence in held:
            error = {
                "type": WorkerStopped.__name__,
                "class": class_path(WorkerStopped),
                "message": _reason(one, "", stopped, again=True),
            }
            cause = cause_of_class(one.attempt.task_name, WorkerStopped)
            ended = Ended(
                one.attempt, Arrow.RETRY, error=error, counted=Counted.NOTHING, cause=cause
            )
            found.setdefault((one.attempt.number, cause), []).append((one, ended))
    for some in found.values():
        if outcomes.retry_together(alias, [ended for _, ended in some]) != len(some):
            raise ClaimLost("a locked claim has changed")
    moved = [one for some in found.values() for one in some]
    arrow_parts.recovered(alias, [ended for _, ended in moved])
    return moved


def _is_plain(orphan: Orphan) -> bool:
    """Return True if an orderly stop retries this claim at once, and its row gets nothing else."""
    attempt = orphan.attempt
    may_retry = orphan.on_crash.retries and attempt.crashes < orphan.max_crashes
    return may_retry and not attempt.errors and attempt.hooks in ("", "{}")


def abandon(alias: str, orphan: Orphan, failed: Ended, config: CoreConfig) -> Recovered:
    """Take the arrow of an attempt that no exception could end, so that its process is replaced.

    It counts as a failure. But if the task has a compensation, and has no further attempt or runs only once, it
    ends as after a crash: how far the attempt came is unknown, and its code cannot clean up.

    Args:
        failed: the end of the attempt as an ordinary failure.

    Raises:
        ClaimLost: the row has changed, or another transaction has locked it.
    """
    attempt, policy = orphan.attempt, orphan.on_crash
    _lock(alias, attempt)
    is_last = failed.arrow is Arrow.BURY or not policy.retries
    ended, crashes = failed, 1
    if policy.compensates and is_last:
        message = f"{failed.error['message']}. {_ABANDONED}"
        ended = failed._replace(
            arrow=Arrow.BURY, error={**failed.error, "message": message}, counted=Counted.CRASH
        )
        crashes = max(1, orphan.max_crashes - attempt.crashes)  # so that it cannot be revived
    move(alias, ended, crashes=crashes)
    arrow_parts.recovered(alias, [ended])
    lost = policy if ended.counted is Counted.CRASH else None
    return Recovered(ended, follow(alias, [ended], config, lost=lost))


def give_back(
    alias: str, orphan: Orphan, config: CoreConfig, lost_end: Arrow | None
) -> Recovered | None:
    """Release a claim of which its own worker knows that no attempt runs. Nothing is counted.

    Args:
        lost_end: see ``recover``. Then a task that may run only once takes the arrow of its crash policy.

    Returns:
        None = it is pending again.

    Raises:
        ClaimLost: see ``recover``.
    """
    # the database has lost an atomic task's effects together with its end
    if lost_end is None or orphan.on_crash.retries:
        _lock(alias, orphan.attempt)
        move(alias, Ended(attempt=orphan.attempt, arrow=Arrow.RELEASE))
        return None
    return recover(alias, orphan, lambda crashes: timedelta(0), config, lost_end=lost_end)


def _lock(alias: str, attempt: Attempt) -> None:
    """Lock the row of an attempt in the open transaction, without waiting.

    Raises:
        ClaimLost: another transaction has locked the row, or the row is no longer claimed.
    """
    if not attempts.locked(alias, [attempt.task_id]):
        raise ClaimLost(f"task {attempt.task_id} is locked or no longer claimed")


def signals_of(orphan: Orphan, ended: Ended) -> Iterator[tuple[signals.LogSignal, dict[str, Any]]]:
    """Yield the signals about a recovered claim, each with its fields."""
    facts = orphan.attempt.facts
    if ended.arrow is Arrow.RETRY:
        if orphan.was_asked:
            yield signals.task_not_run_again, facts
            return
        is_free = ended.counted is Counted.NOTHING
        yield (signals.task_cut_short if is_free else signals.task_recovered), facts
        return
    yield signals.task_died, {**facts, "error": ended.error["message"]}
    if orphan.on_crash.compensates:
        yield signals.task_compensated, facts


class Place(NamedTuple):
    """A place in the order in which old rows are removed.

    Attributes:
        until: a time, as text.
        left: number of rows with exactly this time that were read and left. Many rows may have the same time, and
            an order by time and id would sort all of them in each look.
    """

    until: str
    left: int = 0


class Expired(NamedTuple):
    """An expired task, whose row is locked. ``was_asked``: it was asked to stop."""

    id: uuid.UUID
    name: str
    queue: str
    was_asked: Any


class Removed(NamedTuple):
    """Result of a look at ``ROWS_PER_LOOK`` old rows, in the order of their time.

    Attributes:
        rows: the removed rows; the others must stay, are locked, or are stuck.
        looked: number of rows that were read; fewer than ``ROWS_PER_LOOK`` = there are no more.
        place: the place behind the last row that was read; None = no row was read.
        stuck: ids of rows that could not be removed, with the errors.
    """

    rows: Sequence[Any]
    looked: int
    place: Place | None
    stuck: Sequence[tuple[uuid.UUID, Exception]] = ()


def expire(alias: str, *, keeps: Callable[[str], bool], since: Place | None = None) -> Removed:
    """Move PENDING -> finished for the next expired tasks: as expired; as cancelled if they were asked to stop.

    Args:
        keeps: returns True if tasks with an outcome get a finished row.
        since: read only rows behind this place.
    """
    sql = statements.EXPIRED.replace("{since}", statements.SINCE_EXPIRY if since else "")
    old = _old_rows(alias, sql, since)
    rows = fetch(alias, statements.LOCK_EXPIRED, ids=old.removable) if old.removable else []
    found = [Expired(as_uuid(one), *facts) for one, *facts in rows]
    stuck: dict[uuid.UUID, Exception] = {}
    for outcome in (Outcome.EXPIRED, Outcome.CANCELLED):
        was_asked = outcome is Outcome.CANCELLED
        ids = [one.id for one in found if bool(one.was_asked) is was_asked]
        stuck.update(_finish_expired(alias, ids, outcome, keep=keeps(outcome.value)))
    gone = [one for one in found if one.id not in stuck]
    arrow_parts.without_run(alias, [(one.queue, one.name) for one in gone])
    return old.without([one.id for one in gone], gone, list(stuck.items()))


def _finish_expired(
    alias: str, ids: list[uuid.UUID], outcome: Outcome, *, keep: bool
) -> Iterator[tuple[uuid.UUID, Exception]]:
    """Move PENDING -> finished: all rows together, or one by one. Yield the others with their errors."""
    if not ids:
        return
    try:
        with transaction.atomic(using=alias):
            finish_rows(alias, ids, Status.PENDING, outcome, keep=keep)
    except IntegrityError as error:  # the id of a finished task was used again
        if len(ids) == 1:
            yield from ((one, error) for one in ids)
            return
        for one in ids:
            yield from _finish_expired(alias, [one], outcome, keep=keep)


def prune(alias: str, horizon: Horizon, *, since: Place | None = None) -> Removed:
    """Delete the next tasks that finished as long ago as the horizon says, and their rows in side tables.

    A row stays if another row still depends on it: it was merged into a task that has not finished, or a feature
    needs it (``ArrowPart.may_prune``). Such rows are read, too, so that any number of them does not stop the look.

    Args:
        since: read only rows behind this place.
    """
    of_kinds, params = _of_kinds(horizon)
    sql = OLD_FINISHED.replace("{since}", statements.SINCE_FINISH if since else "")
    sql = sql.replace("<of_parts>", arrow_parts.parts().may_prune).replace("{of_kinds}", of_kinds)
    old = _old_rows(alias, sql, since, age=horizon.age.total_seconds(), **params)
    locked = (
        fetch_column(alias, statements.LOCK_FINISHED, ids=old.removable) if old.removable else []
    )
    if ids := sorted(as_uuid(one) for one in locked):
        execute(alias, statements.PRUNE, ids=ids)
        side_tables.forget(alias, ids)
    return old.without(ids, ids)


def discard_dead(
    alias: str, horizon: Horizon, *, keep: bool, since: Place | None = None
) -> Removed:
    """Move DEAD -> finished as discarded, if the last attempt began as long ago as the horizon says.

    Args:
        keep: True: the finished rows are kept.
        since: read only rows behind this place.
    """
    of_kinds, params = _of_kinds(horizon)
    sql = statements.OLD_DEAD.replace("{since}", statements.SINCE_DUE if since else "")
    sql, age = sql.replace("{of_kinds}", of_kinds), horizon.age.total_seconds()
    old = _old_rows(alias, sql, since, age=age, **params)
    rows = (
        fetch(alias, statements.LOCK_OLD_DEAD, ids=old.removable, age=age) if old.removable else []
    )
    found = [(as_uuid(one), name, queue) for one, name, queue in rows]
    if ids := [one for one, *_ in found]:
        finish_rows(alias, ids, Status.DEAD, Outcome.DISCARDED, keep=keep)
    return old.without(ids, found)


def _of_kinds(horizon: Horizon) -> tuple[str, dict[str, list[str]]]:
    """Return the condition for the kinds of rows that are removed at this age, and its parameters."""
    conditions, params = [], {}
    for number, kind in enumerate(horizon.kinds):
        parts = []
        if kind.queues:
            name = f"queues{number}"
            params[name] = list(kind.queues)
            parts.append(f"{'NOT ' * kind.but_these}queue_name {{in_{name}}}")
        if kind.outcomes:
            parts.append(f"outcome IN ({', '.join(repr(one) for one in kind.outcomes)})")
        conditions.append(" AND ".join(parts))
    return (f"AND ({' OR '.join(conditions)})" if conditions else ""), params


def place_of_age(alias: str, age: timedelta) -> Place:
    """Return the place before all rows of this age and younger ones, by the database's clock."""
    return Place(str(fetch_value(alias, statements.TIME_AGO, age=age.total_seconds())))


def forget_lost_workers(alias: str, age: timedelta) -> int:
    """Delete lost workers without claims that were last seen ``age`` ago; keep their host and times."""
    seconds = age.total_seconds()
    old = [as_uuid(one) for one in fetch_column(alias, statements.OLD_LOST_WORKERS, age=seconds)]
    free = [one for one in old if not fetch(alias, statements.HELD_BY, worker=one, limit=1)]
    if not free:
        return 0
    workers.keep(alias, sorted(free))
    return execute(alias, statements.FORGET_WORKERS, ids=sorted(free))


class _OldRows(NamedTuple):
    """Rows that were read, in order: id, time, and whether the row may be removed.

    Attributes:
        since: the place behind which the rows are.
    """

    rows: list[tuple[uuid.UUID, str, Any]]
    since: Place | None

    @property
    def removable(self) -> list[uuid.UUID]:
        return sorted(one for one, _, may_go in self.rows if may_go)

    def without(
        self,
        ids: Iterable[uuid.UUID],
        removed: Sequence[Any],
        stuck: Sequence[tuple[uuid.UUID, Exception]] = (),
    ) -> Removed:
        """Return the result after the rows of these ids were removed."""
        if not self.rows:
            return Removed(removed, 0, None, stuck)
        until, gone = self.rows[-1][1], set(ids)
        left = sum(time == until and one not in gone for one, time, _ in self.rows)
        if self.since is not None and self.since.until == until:
            left += self.since.left
        return Removed(removed, len(self.rows), Place(until, left), stuck)


def _old_rows(alias: str, sql: str, since: Place | None, **params: Any) -> _OldRows:
    """Read the next ``ROWS_PER_LOOK`` old rows, whether or not they may be removed.

    A search for removable rows would walk past all others at the start of the index, and take too long in the end.
    """
    if since is not None:
        params["since"] = since.until
    rows = fetch(alias, sql, limit=ROWS_PER_LOOK, left=since.left if since else 0, **params)
    return _OldRows([(as_uuid(one), until, may_go) for one, until, may_go in rows], since)


class _Claim(NamedTuple):
    """The columns of ``statements.ORPHANS``."""

    id: Any
    attempt: int
    worker: Any
    task_name: str
    queue_name: str
    args: str
    kwargs: str
    failures: int
    crashes: int
    max_crashes: int
    on_crash: str
    errors: str
    hooks: str
    batch: Any
    was_asked: Any


def _orphan(claim: _Claim, whose: str) -> Orphan:
    attempt = Attempt(
        task_id=as_uuid(claim.id),
        number=claim.attempt,
        worker=as_uuid(claim.worker),
        task_name=claim.task_name,
        queue_name=claim.queue_name,
        args=claim.args,
        kwargs=claim.kwargs,
        failures=claim.failures,
        crashes=claim.crashes,
        errors=read_entries(claim.errors),
        hooks=claim.hooks,
        batch=claim.batch,
    )
    known = claim.on_crash in OnCrash.values  # a row written by hand may have another value
    policy = OnCrash(claim.on_crash) if known else OnCrash.DEAD
    return Orphan(attempt, claim.max_crashes, policy, whose, was_asked=bool(claim.was_asked))


def _is_stopped_too_often(attempt: Attempt) -> bool:
    latest = attempt.errors[-STOPS_IN_A_ROW:]
    stops = [one for one in latest if one.get("type") == WorkerStopped.__name__]
    return len(stops) == STOPS_IN_A_ROW


def _reason_of_lost_end(orphan: Orphan, lost_end: Arrow) -> str:
    what = (
        f"the database lost the end of this attempt ({lost_end.value}), which {orphan.whose} had recorded, "
        "as after a failover to a server without the last commits"
    )
    return f"{what}. {_what_now(orphan)}"


def _what_now(orphan: Orphan) -> str:
    if orphan.on_crash.compensates:
        return "Its compensation was enqueued in the same transaction."
    return (
        "The task is declared neither atomic nor idempotent, "
        "so it may have done part of its work. Check, then revive or discard it."
    )


def _reason(orphan: Orphan, crash: str, stopped: str, *, again: bool) -> str:
    what = "worker stopped while the task ran" if stopped else "worker lost in mid-task"
    where = f"{orphan.whose} ({stopped})" if stopped else orphan.whose
    if orphan.beside and not stopped:
        where += (
            ". It held several tasks, not all of which may have begun; if its process has ended by itself, one of "
            f"them may have ended it: {orphan.beside}"
        )
    if orphan.on_crash.retries:
        counted = f"crash {crash} of {orphan.max_crashes}" if crash else "counted as no crash"
        often = f" after {STOPS_IN_A_ROW} stops in a row" if stopped and crash else ""
        what = f"{what}, {counted}{often}"
    if orphan.on_crash.retries and (again or not orphan.on_crash.compensates):
        return f"{what}: {where}"
    return f"{what}: {where}. {_what_now(orphan)}"
