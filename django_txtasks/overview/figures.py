"""The parts of an overview: data without behaviour, which dashboards and JSON use, too."""

from __future__ import annotations

import math
import uuid
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any

from django_txtasks.insight.cost import DatabaseCost
from django_txtasks.insight.deaths import Deaths
from django_txtasks.insight.held_threads import HeldThreads
from django_txtasks.overview.counting import NONE, Count
from django_txtasks.overview.problems import Problem
from django_txtasks.overview.running import CleanerFigures, RunningTask, WorkerFigures
from django_txtasks.stats import Cause, Chart, Deploy, FunctionStats, Point

MINUTES_OF_RATE = 5
"""Number of whole minutes from which the rate of a queue is computed."""
NEW_BACKLOG = 120.0
"""Seconds after which one whole minute of a new backlog has surely been counted."""
MOST_FUNCTIONS = 10


@dataclass(frozen=True)
class Pause:
    """The pause of a queue. ``seconds``: time since its begin."""

    by: str
    reason: str
    seconds: float


@dataclass(frozen=True)
class QueueFigures:
    """One queue.

    Attributes:
        due: pending tasks whose time has come. Tasks in lanes count, too.
        later: pending tasks that are not due yet.
        in_lanes: due and later tasks that have a lane.
        retrying: due and later tasks whose last attempt has failed.
        oldest: seconds for which the oldest due task has waited; 0 = no task is due.
        workers, slots: living workers that serve the queue, and their slots.
        pause: None = the queue is not paused.
        minutes: attempts of the last hour, minute by minute, the oldest first; empty = none are counted.
        undeclared: names of waiting tasks that no living worker of the queue declares, with the number of tasks
            that were seen; more may wait.
        elsewhere: the functions of the tasks that wait for longest; empty: this code has one of them.
        only_expired: True if the tasks that wait for longest have expired, so that only a cleaner takes them away.
        away: the reason why a drain of the queue cannot reach its target; empty = it can, or there is no drain.
    """

    name: str
    due: Count = NONE
    later: Count = NONE
    retrying: Count = NONE
    dead: Count = NONE
    held: Count = NONE
    running: int = 0
    oldest: float = 0.0
    workers: int = 0
    slots: int = 0
    pause: Pause | None = None
    undeclared: Mapping[str, int] | None = None
    in_lanes: Count = NONE
    minutes: tuple[Point, ...] = ()
    away: str = ""
    elsewhere: tuple[str, ...] = ()
    only_expired: bool = False

    @property
    def per_minute(self) -> float:
        """Attempts that ended in each of the last whole minutes, ``MINUTES_OF_RATE`` at most, on average."""
        last = self.minutes[-1 - MINUTES_OF_RATE : -1]
        return sum(one.succeeded + one.died + one.other for one in last) / max(1, len(last))

    @property
    def empty_in(self) -> float | None:
        """Seconds until no task is due, at the present rate; infinite = never; None = not known yet."""
        if not self.due:
            return 0.0
        if self.pause is not None or not self.workers:
            return math.inf
        if self.per_minute:
            return 60 * self.due.number / self.per_minute
        return None if self.running or self.oldest < NEW_BACKLOG else math.inf


@dataclass(frozen=True)
class FullLane:
    """A lane whose limit is reached, while tasks of it wait, or that is paused.

    Attributes:
        waiting: pending tasks, counted up to a limit.
        longest: its task that has run for longest; None = it is paused, and none was seen.
    """

    name: str
    limits: str
    running: int
    waiting: Count
    is_paused: bool = False
    longest: RunningTask | None = None


@dataclass(frozen=True)
class LateSchedule:
    """A schedule that needs attention.

    Attributes:
        problem: a sentence; empty = it is late, or not done by its hour.
        function: the task function that this code does not have; empty = the code has it.
        off: seconds for which a person has had it off; 0 = it is on.
        author: who has turned it off, and why; empty = not known.
        last_at: its last tick with a task; None = it has had none.
    """

    name: str
    late: float
    problem: str
    state: str
    unready: datetime | None
    function: str = ""
    off: float = 0.0
    author: str = ""
    last_at: datetime | None = None


@dataclass(frozen=True)
class Figures:
    """Counts of workers in the last hour.

    Attributes:
        is_on: False = the setting ``stats`` is off.
        chart: all queues together, minute by minute; None = the setting is off.
        functions: the task functions with the most run time, at most ``MOST_FUNCTIONS``.
        deploys: releases whose first worker started in this hour.
    """

    is_on: bool = False
    chart: Chart | None = None
    functions: tuple[FunctionStats, ...] = ()
    deploys: tuple[Deploy, ...] = ()


NO_FIGURES = Figures()


@dataclass(frozen=True)
class Overview:
    """One database's tasks at one moment, by the database's clock.

    Attributes:
        queues: the queues of the settings, of workers and of live tasks, the longest waiting first;
            ``more_queues``: the number of queues that were left out.
        has_more_queues: True = more queues and priorities have waiting tasks than were read, so ``more_queues``
            and the numbers of due and later tasks are too low.
        problems: the worst first.
        has_more_workers: True = there are more workers than were read.
        running: the tasks that have run for longest; ``running_total`` counts all.
        lanes, schedules: only lanes and schedules that need attention.
        schedules_total: number of schedules.
        causes: why live tasks have failed, the most dead tasks first; ``has_more_causes``: there are more.
        deaths: worker processes that die again and again; None = too few do.
        held_threads: event loops whose threads are all held by tasks.
        cost: what the queue costs the database.
    """

    database: str
    at: datetime
    problems: tuple[Problem, ...]
    queues: tuple[QueueFigures, ...]
    running: tuple[RunningTask, ...]
    running_total: Count
    workers: tuple[WorkerFigures, ...]
    cleaners: CleanerFigures
    lanes: tuple[FullLane, ...]
    schedules: tuple[LateSchedule, ...]
    schedules_total: int
    causes: tuple[Cause, ...] = ()
    has_more_causes: bool = False
    more_queues: int = 0
    has_more_queues: bool = False
    has_more_workers: bool = False
    figures: Figures = NO_FIGURES
    deaths: Deaths | None = None
    held_threads: tuple[HeldThreads, ...] = ()
    cost: DatabaseCost = field(default_factory=DatabaseCost)

    def total(self, state: str) -> Count:
        """Return the tasks of all queues in a state: ``due``, ``later``, ``retrying``, ``dead`` or ``held``.

        Queues that were left out may have more.
        """
        found = Count(is_capped=self.more_queues > 0 or self.has_more_queues)
        for queue in self.queues:
            found += getattr(queue, state)
        return found

    @property
    def oldest(self) -> float:
        """Seconds for which the oldest due task has waited; paused queues do not count."""
        return max((one.oldest for one in self.queues if one.pause is None), default=0.0)

    @property
    def slots(self) -> int:
        """Slots of all living workers."""
        return sum(one.slots for one in self.workers if one.is_alive)

    def as_json(self) -> dict[str, Any]:
        """Return the overview for machines: text, numbers, lists and dicts."""
        found: dict[str, Any] = asdict(self, dict_factory=_plain)
        found["problems"] = [one.as_json() for one in self.problems]
        found["causes"] = [one.as_json() for one in self.causes]
        found["cost"] = self.cost.as_json()
        return found


def _plain(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    return {name: _text(value) for name, value in pairs}


def _text(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, uuid.UUID):
        return str(value)
    if isinstance(value, float) and not math.isfinite(value):
        return None  # a time limit that was written by hand; JSON has no such number
    return sorted(value) if isinstance(value, frozenset) else value
