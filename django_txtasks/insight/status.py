"""Counts for people and monitors: tasks, workers and cleaners. It only reads."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import timedelta
from typing import Any

from django.db.models import Count, Min, Q

from django_txtasks.conf import get_config
from django_txtasks.core.rows import cleaners
from django_txtasks.core.rows.buckets import paused_queues
from django_txtasks.core.rows.turn import ALONE_MARK, LOOP_MARK
from django_txtasks.core.rows.workers import DRAIN_MARK, texts
from django_txtasks.features.progress.notes import LAG, read_progress
from django_txtasks.features.reports import names
from django_txtasks.insight.cost import DatabaseCost
from django_txtasks.insight.late import Late, all_buckets, late
from django_txtasks.models import DatabaseNow, FinishedTask, Outcome, Status, Task, Worker

ALL_IS_WELL = "All is well."
RECENT = timedelta(minutes=5)
"""Age up to which finished tasks are counted."""


@dataclass(frozen=True)
class QueueStatus:
    """Counts of one queue.

    Attributes:
        due: pending tasks whose time has come.
        later: pending tasks that are not due yet.
        oldest_due: seconds for which the oldest due task has waited; 0 = no task is due.
        paused: True if a person has paused the queue; none of its tasks starts.
        served_by: living workers that serve the queue.
        in_lanes: pending tasks that have a lane; ``due`` and ``later`` count them, too.
        retrying: pending tasks whose last attempt has failed.
        capped: names of the counts that are lower bounds.
    """

    due: int = 0
    later: int = 0
    claimed: int = 0
    held: int = 0
    dead: int = 0
    oldest_due: float = 0.0
    paused: bool = False
    served_by: int = 0
    in_lanes: int = 0
    retrying: int = 0
    capped: tuple[str, ...] = ()


@dataclass(frozen=True)
class WorkerStatus:
    """Workers and their slots.

    Attributes:
        silent: workers whose last beat is longer ago than their lease.
        lost: workers declared lost; their rows stay for a day, and until their claims are recovered.
        listening: living workers that hints reach.
        threads, running: slots of living workers, and tasks in them.
        loops: living workers that run async tasks on an event loop. ``threads`` and ``running`` do not count them.
        async_slots, async_running: tasks that these loops take at a time, and tasks on them.
        lag: the most seconds by which one of these loops was late lately; 0 = it was not.
        alone: living processes that run last chances after a crash, one each. ``threads`` and ``running`` do not
            count them.
        drains: living drains, which hand over tasks and run none; ``alive`` does not count them.
    """

    alive: int = 0
    silent: int = 0
    lost: int = 0
    listening: int = 0
    threads: int = 0
    running: int = 0
    loops: int = 0
    async_slots: int = 0
    async_running: int = 0
    lag: float = 0.0
    alone: int = 0
    drains: int = 0


@dataclass(frozen=True)
class CleanerStatus:
    """The cleaners.

    Attributes:
        alive: cleaners that beat, or have cleaned once in the last hour.
        at_work: those among them that have finished a pass lately, or were started a moment ago.
        last_pass: seconds since the last whole pass; None = no pass yet.
        trouble: one line for people if none is at work; else empty.
        only_once: True if the cleaners at work ran with ``--once``, and none keeps running.
    """

    alive: int = 0
    at_work: int = 0
    last_pass: float | None = None
    trouble: str = ""
    only_once: bool = False


@dataclass(frozen=True)
class Snapshot:
    """One database's tasks at one moment, by the database's clock.

    Attributes:
        finished: tasks that have succeeded in the last 5 minutes; None = they are not kept.
        handed: tasks that drains have handed over in the last 5 minutes; None = they are not kept.
        undeclared: by queue, names that no living worker of it declares, and the number of pending tasks seen for
            each; more may wait.
        problems: a sentence for each problem, the worst first.
        late: the oldest due task of each queue that is late for no obvious reason, such as a pause, and why.
        cost: what the queue costs the database.
    """

    database: str
    queues: dict[str, QueueStatus]
    workers: WorkerStatus
    cleaners: CleanerStatus
    finished: int | None = field(default=None)
    handed: int | None = None
    undeclared: names.Found = field(default_factory=dict)
    late: tuple[Late, ...] = ()
    problems: tuple[str, ...] = ()
    cost: DatabaseCost = field(default_factory=DatabaseCost)

    @property
    def dead(self) -> int:
        """Number of dead tasks, which start again only if a person revives them."""
        return sum(queue.dead for queue in self.queues.values())

    @property
    def oldest_due(self) -> float:
        """Seconds for which the oldest due task has waited."""
        return max((queue.oldest_due for queue in self.queues.values()), default=0.0)

    @property
    def verdict(self) -> str:
        """The worst problem, or that all is well."""
        return self.problems[0] if self.problems else ALL_IS_WELL

    def as_json(self) -> dict[str, Any]:
        """Return the snapshot for machines."""
        return {
            "verdict": self.verdict, **asdict(self), "dead": self.dead, "oldest_due": self.oldest_due,
            "cost": self.cost.as_json(),
        }  # fmt: skip


def snapshot(database: str, queues: Mapping[str, QueueStatus] | None = None) -> Snapshot:
    """Take a snapshot.

    Args:
        queues: counts of queues; None: count all live tasks, by reading their index entries once.

    Raises:
        DatabaseError: the database cannot be reached, or has no task tables.
    """
    config = get_config()
    found = _queues(database) if queues is None else queues
    statuses = {**dict.fromkeys(config.queues, QueueStatus()), **found}
    for queue in paused_queues(database):
        statuses[queue] = replace(statuses.get(queue, QueueStatus()), paused=True)
    workers, serving = _workers(database)
    for queue, status in statuses.items():
        statuses[queue] = replace(status, served_by=serving[queue])
    return Snapshot(
        database=database,
        queues=statuses,
        workers=workers,
        cleaners=_cleaners(database),
        finished=_ended(database, Outcome.SUCCEEDED),
        handed=_ended(database, Outcome.HANDED),
        undeclared=names.undeclared(database, config.queues),
        late=tuple(late(database, all_buckets(database), 2 * config.clean_interval)),
    )


def lost_workers(database: str) -> list[Worker]:
    """Return lost workers that still have rows, by host, the last seen first."""
    return list(Worker.objects.using(database).filter(lost=True).order_by("host", "-seen_at"))


def _queues(database: str) -> dict[str, QueueStatus]:
    is_due = Q(status=Status.PENDING, run_after__lte=DatabaseNow())
    rows = (
        Task.objects.using(database)
        .values("queue_name")
        .annotate(
            due=Count("id", filter=is_due),
            pending=Count("id", filter=Q(status=Status.PENDING)),
            claimed=Count("id", filter=Q(status=Status.CLAIMED)),
            held=Count("id", filter=Q(status=Status.HELD)),
            dead=Count("id", filter=Q(status=Status.DEAD)),
            in_lanes=Count("id", filter=Q(status=Status.PENDING, lane__gt="")),
            retrying=Count("id", filter=Q(status=Status.PENDING, cause__isnull=False)),
            oldest=Min("run_after", filter=is_due),
            now=DatabaseNow(),
        )
        .order_by("queue_name")
    )
    return {
        row["queue_name"]: QueueStatus(
            later=row["pending"] - row["due"],
            oldest_due=_seconds(row["now"] - row["oldest"]) if row["oldest"] else 0.0,
            **{
                name: row[name]
                for name in ("due", "claimed", "held", "dead", "in_lanes", "retrying")
            },
        )
        for row in rows
    }


def _workers(database: str) -> tuple[WorkerStatus, Counter[str]]:
    """Return the workers, and how many living workers serve each queue."""
    found: Counter[str] = Counter()
    serving: Counter[str] = Counter()
    lag = 0.0
    workers = Worker.objects.using(database).annotate(now=DatabaseNow())
    for worker in workers:
        is_silent = worker.is_silent(worker.now)
        state = "lost" if worker.lost else "silent" if is_silent else "alive"
        if state == "alive" and DRAIN_MARK in texts(worker.task_names):
            found["drains"] += 1
            serving.update(texts(worker.queues))
            continue
        found[state] += 1
        if state == "alive":
            found["listening"] += bool(worker.listening)
            serving.update(texts(worker.queues))
            if ALONE_MARK in texts(worker.task_names):
                found["alone"] += 1
                continue
            is_loop = LOOP_MARK in texts(worker.task_names)
            found["loops"] += is_loop
            found["async_slots" if is_loop else "threads"] += worker.threads
            found["async_running" if is_loop else "running"] += worker.running
            lag = max(lag, _lag(worker.progress))
    return WorkerStatus(**found, lag=lag), serving


def _lag(notes: Any) -> float:
    """Return the greatest lag of a worker's event loop, in seconds; 0 = no loop."""
    lag = read_progress(notes.get(LAG)) if isinstance(notes, dict) else None
    return lag.done if lag is not None else 0.0


def _cleaners(database: str) -> CleanerStatus:
    seen = cleaners.seen(database)
    return CleanerStatus(
        alive=sum(one.is_there for one in seen),
        at_work=sum(one.achieves for one in seen),
        last_pass=min(
            (round(one.passed, 3) for one in seen if one.passed is not None), default=None
        ),
        trouble=cleaners.trouble(seen),
        only_once=cleaners.only_once(seen) is not None,
    )


def _ended(database: str, outcome: Outcome) -> int | None:
    """Return the number of tasks that have ended so lately; None = they are not kept."""
    if not get_config().keeps(outcome):
        return None
    done = FinishedTask.objects.using(database).filter(outcome=outcome)
    return done.filter(finished_at__gt=DatabaseNow() - RECENT).count()


def _seconds(duration: timedelta) -> float:
    return round(max(0.0, duration.total_seconds()), 3)
