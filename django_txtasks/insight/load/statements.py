"""The numbers of the view ``txtasks_load`` on MariaDB, MySQL and SQLite, from bounded statements."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from django_txtasks.core.rows.buckets import paused_queues
from django_txtasks.core.rows.statements import NO_LAST_CHANCE
from django_txtasks.core.rows.workers import DRAIN_MARK
from django_txtasks.database.execute import as_uuid, is_uuid
from django_txtasks.database.time_limits import within_together
from django_txtasks.features.lanes import buckets as lane_buckets
from django_txtasks.features.reports.whose import is_handed
from django_txtasks.insight.load.records import QueueLoad
from django_txtasks.models import FinishedTask, Outcome, Worker

MOST_DUE = 10_000
"""Highest number of due tasks that is counted for a queue, and for all lanes together."""
MOST_READ, FEWEST = 40_000, 100
"""With many queues and priorities, fewer tasks of each are counted, at least ``FEWEST``, so that all together are
about ``MOST_READ`` rows."""
LAST_ENDED = 1_000
"""Number of finished tasks from which the run times are computed."""
SHARE_SECONDS = 15
"""Seconds within which the threads of ``wanted_threads`` have begun all due tasks."""
MOST_SECONDS = 1e6

# Last chances after a crash are left out: they have processes of their own, so more threads would not help them.
WAITING = f"""
    SELECT task_name, COUNT(*), MIN(wait) FROM (
        SELECT task_name, expires_at, {{wait}} AS wait FROM txtasks_task {{by_queue}}
         WHERE status = 'pending' AND lane = '' AND queue_name = %(queue)s AND priority = %(priority)s
           AND {NO_LAST_CHANCE} AND run_after <= {{now}} ORDER BY run_after, id LIMIT %(limit)s) AS t
     WHERE expires_at IS NULL OR expires_at > {{now}} GROUP BY task_name
"""
IN_LANES = f"""
    SELECT queue_name, COUNT(*) FROM (
        SELECT queue_name, expires_at, {{wait}} AS wait FROM txtasks_task {{by_queue}}
         WHERE status = 'pending' AND lane > '' AND {NO_LAST_CHANCE}
         ORDER BY lane, queue_name, priority, run_after, id LIMIT %(limit)s
        ) AS t
     WHERE wait <= 0 AND (expires_at IS NULL OR expires_at > {{now}}) GROUP BY queue_name
"""
RUNNING = """
    SELECT queue_name, {claimed_for} FROM txtasks_task {by_worker}
     WHERE status = 'claimed' AND worker = %(worker)s ORDER BY claimed_at LIMIT %(limit)s
"""

# Django would sort by the text of the time in its SELECT, which no index has: the whole history, each time.
LATELY_ENDED = """
    SELECT id FROM txtasks_finishedtask {by_finish} ORDER BY finished_at DESC LIMIT %(limit)s
"""


class Living(NamedTuple):
    """A worker at work: its row, its queues, and the names and marks in its row.

    Attributes:
        is_apart: True if it has no threads for the tasks of a queue: an event loop, a drain, or a
            process for last chances after a crash.
        is_foreign: True if it is a worker in another language.
    """

    row: Worker
    queues: set[str]
    names: set[str]
    is_apart: bool
    is_foreign: bool = False


Look = Callable[..., list[tuple[Any, ...]]]


class _Waiting(NamedTuple):
    """The due tasks of a function in a queue. ``oldest``: seconds for which the first one has waited."""

    queue: str
    name: str
    due: int
    oldest: float


def queues(alias: str, living: Iterable[Living], seconds: float) -> list[QueueLoad]:
    """Return the load of each queue that has any, by name.

    Raises:
        DatabaseError: it takes longer than ``seconds``, among others.
    """
    look, living = within_together(seconds, "the load"), list(living)
    paused = paused_queues(alias)
    due: Counter[str] = Counter()
    oldest: dict[str, float] = defaultdict(float)
    for one in _waiting(alias, look):
        if one.queue not in paused and _is_for_threads(living, one.queue, one.name):
            due[one.queue] = min(MOST_DUE, due[one.queue] + one.due)
            oldest[one.queue] = max(oldest[one.queue], one.oldest)
    in_lanes = {
        queue: int(count)
        for queue, count in look(alias, IN_LANES, limit=MOST_DUE)
        if queue not in paused and not is_handed(queue)
    }
    running = _running(alias, living, look)
    ran = _run_seconds(alias, living, look)
    found = []
    for queue in sorted({*due, *in_lanes, *running}):
        now = running.get(queue, [])
        seconds = min(MOST_SECONDS, max(0.0, ran.get(queue, max(1.0, _mean(now)))))
        wanted = len(now) + math.ceil(due[queue] * seconds / SHARE_SECONDS)
        lanes, wait = in_lanes.get(queue, 0), oldest[queue]
        found.append(QueueLoad(queue, due[queue], lanes, wait, len(now), seconds, wanted))
    return found


def _waiting(alias: str, look: Look) -> Iterable[_Waiting]:
    # if the first row is not due, no row of the bucket is
    buckets = [one for one in lane_buckets.buckets_of(alias, "") if one.wait <= 0]
    most = min(MOST_DUE, max(FEWEST, MOST_READ // max(1, len(buckets))))
    for bucket in buckets:
        place = {"queue": bucket.queue_name, "priority": bucket.priority, "limit": most}
        for name, count, wait in look(alias, WAITING, **place):
            yield _Waiting(bucket.queue_name, name, int(count), max(0.0, -float(wait)))


def _running(alias: str, living: list[Living], look: Look) -> dict[str, list[float]]:
    """Return by queue the seconds for which each task has run that threads run.

    A worker claims more short tasks than it has threads. The first claims run.
    """
    found: dict[str, list[float]] = defaultdict(list)
    ours = {queue for one in living if not (one.is_apart or one.is_foreign) for queue in one.queues}
    for one in living:
        if not one.is_apart:
            rows = look(alias, RUNNING, worker=one.row.pk, limit=one.row.threads)
            for queue, seconds in rows:
                if not (one.is_foreign and queue in ours):
                    found[queue].append(max(0.0, float(seconds)))
    return found


def _run_seconds(alias: str, living: list[Living], look: Look) -> dict[str, float]:
    """Return by queue the mean run time of the last tasks that have succeeded in threads."""
    found: dict[str, list[float]] = defaultdict(list)
    columns = ("queue_name", "task_name", "outcome", "started_at", "finished_at")
    ids = [as_uuid(one) for (one,) in look(alias, LATELY_ENDED, limit=LAST_ENDED) if is_uuid(one)]
    rows = FinishedTask.objects.using(alias).filter(pk__in=ids).values_list(*columns)
    for queue, name, outcome, started, ended in rows:
        is_ran = outcome == Outcome.SUCCEEDED and started is not None and ended is not None
        if is_ran and _is_for_threads(living, queue, name):
            found[queue].append((ended - started).total_seconds())
    return {queue: _mean(seconds) for queue, seconds in found.items()}


def _is_for_threads(living: list[Living], queue: str, name: str) -> bool:
    """Return True if worker threads take these tasks, or would take them if there were any.

    Names that no worker at work declares do not count, because more workers of the same code take none of them. A
    worker in another language counts in queues that no worker of this package serves.
    """
    if is_handed(queue):
        return False
    serving = [one for one in living if queue in one.queues]
    every = [one for one in serving if not one.is_apart]
    threads = [one for one in every if not one.is_foreign] or every
    if threads:
        return any(name in one.names for one in threads)
    return not any({name, DRAIN_MARK} & one.names for one in serving)


def _mean(seconds: list[float]) -> float:
    return sum(seconds) / len(seconds) if seconds else 0.0
