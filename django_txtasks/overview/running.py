"""The running tasks, the workers and the cleaners, as the overview shows them. Each read is bounded."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from django.db.models import Q, TextField
from django.db.models.functions import Cast, Coalesce

from django_txtasks.core.rows import cleaners
from django_txtasks.core.rows.turn import ALONE_MARK, LOOP_MARK
from django_txtasks.core.rows.workers import AWAY, DRAIN_MARK, texts_in
from django_txtasks.features.progress.notes import Progress
from django_txtasks.features.progress.rows import progress_at
from django_txtasks.models import DatabaseNow, Status, Task, Worker
from django_txtasks.overview.counting import MOST, NONE, Count

MOST_SHOWN = 10
"""Number of running tasks that are returned with their details. The longest running come first."""
MOST_WORKERS = 5_000


@dataclass(frozen=True)
class RunningTask:
    """A claimed task.

    Attributes:
        seconds: time since the claim.
        timeout: longest time of the attempt in seconds; None = no limit.
        worker: id of its worker; ``host`` and ``pid`` are empty if the worker has no row.
        progress: what the task has reported; None = nothing.
        asked_at: when it was asked to stop; None = not asked.
    """

    id: uuid.UUID
    task_name: str
    queue_name: str
    worker: uuid.UUID
    seconds: float
    timeout: float | None = None
    host: str = ""
    pid: int | None = None
    progress: Progress | None = None
    asked_at: datetime | None = None

    @property
    def share(self) -> float | None:
        """Share of the time limit that is used up, at most 1; None = no limit."""
        return min(1.0, self.seconds / self.timeout) if self.timeout else None


@dataclass(frozen=True)
class Running:
    """The claimed tasks: numbers by queue, lane and worker, the longest running, and the longest of busy lanes."""

    total: Count = NONE
    by_queue: Counter[str] = field(default_factory=Counter)
    by_lane: Counter[str] = field(default_factory=Counter)
    by_worker: Counter[uuid.UUID] = field(default_factory=Counter)
    longest: tuple[RunningTask, ...] = ()
    longest_of_lane: Mapping[str, RunningTask] = field(default_factory=dict)


@dataclass(frozen=True)
class WorkerFigures:
    """One worker.

    Attributes:
        state: ``alive``, ``suspected``, ``silent`` or ``lost``.
        seen: seconds since its last beat.
        listening: whether hints reach it; None = it has no source of hints.
        will: number of the last will that RabbitMQ holds; 0 = none.
        lease, age: its lease, and the time since its start, in seconds.
        is_loop: True if it runs async tasks on an event loop.
        is_drain: True if it is a drain, which hands over rows and runs no task.
        is_alone: True if it runs only last chances after a crash, one at a time.
        claimed: number of its claimed tasks, up to a limit; ``running`` is what its last beat has reported.
    """

    id: uuid.UUID
    host: str
    pid: int
    state: str
    queues: tuple[str, ...]
    running: int
    slots: int
    seen: float
    release: str = ""
    listening: bool | None = None
    is_loop: bool = False
    will: int = 0
    lease: float = 0.0
    age: float = 0.0
    is_drain: bool = False
    is_alone: bool = False
    claimed: int = 0

    @property
    def is_alive(self) -> bool:
        """True if its lease has not run out."""
        return self.state in ("alive", "suspected")

    @property
    def is_deaf(self) -> bool:
        """True if it has a source of hints, and none arrives. A new worker has a lease to connect."""
        return self.listening is False and self.age > self.lease

    @property
    def share(self) -> float:
        """Share of its slots that are in use."""
        return min(1.0, self.running / self.slots) if self.slots else 0.0


@dataclass(frozen=True)
class CleanerFigures:
    """The cleaners: seconds since the last complete pass (None = no pass), and their problem as a sentence.

    Attributes:
        rows: number of cleaners with a row, ended cleaners included.
    """

    at_work: int = 0
    last_pass: float | None = None
    trouble: str = ""
    rows: int = 0


def running(alias: str, workers: Iterable[WorkerFigures]) -> Running:
    """Return the claimed tasks; it reads at most ``MOST + 1`` of them."""
    rows = list(
        Task.objects.using(alias)
        .filter(status=Status.CLAIMED, worker__isnull=False)
        .order_by("worker")
        .annotate(now=DatabaseNow(), since=Coalesce("started_at", "claimed_at"))
        .values_list(
            "pk", "task_name", "queue_name", "lane", "worker", "timeout", "since", "now", "cancel_asked_at"
        )[: MOST + 1]
    )  # fmt: skip
    known = {one.id: one for one in workers}
    longest = sorted(rows, key=lambda row: row[6] or row[7])
    by_lane = Counter(row[3] for row in rows if row[3])
    first_of_lane = {row[3]: row for row in reversed(longest)}
    busiest = [name for name, _ in by_lane.most_common(MOST_SHOWN)]
    reported = progress_at(alias, {row[4] for row in longest[:MOST_SHOWN]}) if longest else {}
    return Running(
        Count(min(len(rows), MOST), len(rows) > MOST),
        Counter(row[2] for row in rows),
        by_lane,
        Counter(row[4] for row in rows if row[4]),
        tuple(_task(row, known, reported) for row in longest[:MOST_SHOWN]),
        {name: _task(first_of_lane[name], known, reported) for name in busiest},
    )


def workers(alias: str) -> list[WorkerFigures]:
    """Return the workers that have a row, by host and process id, at most one more than ``MOST_WORKERS``."""
    rows = (
        Worker.objects.using(alias)
        .annotate(now=DatabaseNow(), their_queues=Cast("queues", TextField()))
        .annotate(their_names=Cast("task_names", TextField()))
        .annotate(is_loop=Q(their_names__contains=LOOP_MARK))
        .annotate(is_drain=Q(their_names__contains=DRAIN_MARK))
        .annotate(is_alone=Q(their_names__contains=ALONE_MARK))
        .only(
            "host", "pid", "threads", "running", "lease", "lost", "seen_at", "suspected_at", "release",
            "listening", "will", "started_at",
        )
        .order_by("lost", "host", "pid")[: MOST_WORKERS + 1]
    )  # fmt: skip
    return [_worker(row) for row in rows]


def away(alias: str, workers: Iterable[WorkerFigures]) -> dict[str, str]:
    """Return by queue the reason why a living drain cannot reach its target."""
    drains = [one.id for one in workers if one.is_drain and one.is_alive]
    notes = progress_at(alias, drains) if drains else {}
    return {key.removeprefix(AWAY): one.note for key, one in notes.items() if key.startswith(AWAY)}


def cleaners_of(alias: str) -> CleanerFigures:
    """Return what the cleaners do."""
    seen = cleaners.seen(alias)
    passes = [one.passed for one in seen if one.passed is not None]
    at_work = sum(one.achieves for one in seen)
    return CleanerFigures(at_work, min(passes, default=None), cleaners.trouble(seen), len(seen))


def _task(
    row: tuple[Any, ...],
    known: Mapping[uuid.UUID, WorkerFigures],
    reported: Mapping[str, Progress],
) -> RunningTask:
    pk, name, queue, _, worker, timeout, since, now, asked_at = row
    of = known.get(worker)
    return RunningTask(
        id=pk,
        task_name=name,
        queue_name=queue,
        worker=worker,
        seconds=max(0.0, (now - (since or now)).total_seconds()),
        timeout=timeout,
        host=of.host if of else "",
        pid=of.pid if of else None,
        progress=reported.get(str(pk)),
        asked_at=asked_at,
    )


def _worker(row: Any) -> WorkerFigures:
    seen = (row.now - row.seen_at).total_seconds() if row.seen_at else row.lease
    return WorkerFigures(
        id=row.pk,
        host=row.host,
        pid=row.pid,
        state=_state(row),
        queues=tuple(sorted(texts_in(row.their_queues))),
        running=row.running,
        slots=row.threads,
        seen=max(0.0, seen),
        release=row.release,
        listening=row.listening,
        is_loop=bool(row.is_loop),
        will=row.will,
        lease=row.lease,
        age=max(0.0, (row.now - (row.started_at or row.now)).total_seconds()),
        is_drain=bool(row.is_drain),
        is_alone=bool(row.is_alone),
    )


def _state(row: Any) -> str:
    if row.lost:
        return "lost"
    if row.is_silent(row.now):
        return "silent"
    return "suspected" if row.suspected_at is not None else "alive"
