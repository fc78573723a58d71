"""The backlog of each queue: the number of due tasks and the wait of the oldest, from a bounded number of rows."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterable

from django.db import connections

from django_txtasks.core.rows.buckets import pending_priorities
from django_txtasks.database.execute import fetch

MAX_DUE = 10_000
"""Highest number of due tasks that is counted for a queue. A queue with this count may have more."""
MAX_IN_LANES = 10_000
"""Number of pending tasks in lanes that are read, of all queues together."""
MAX_READ = 100_000
"""Number of rows outside lanes after which no further queue is begun."""
FIRST, FACTOR = 100, 4
"""Rows of a priority that are read first, and the factor for each next read while all of them are due.

On PostgreSQL, a read does not stop behind the last due row. So this bounds the other rows that are read.
"""

# The part of the index with one priority of a queue, in which the due rows come first. PostgreSQL finds its place
# only by a comparison of whole rows: see ``Dialect.to_queue``. An end there would make it read the whole part.
DUE_ROWS = """
    SELECT COUNT(*), COUNT(CASE WHEN <is_due> THEN 1 END), MIN(CASE WHEN <is_due> THEN wait END) FROM (
        SELECT lane, queue_name, priority, {wait} AS wait FROM txtasks_task {by_queue}
         WHERE status = 'pending' AND <start>
         ORDER BY status, lane, queue_name, priority, run_after, id LIMIT %(limit)s) due
"""
_IS_DUE = "lane = '' AND queue_name = %(queue)s AND priority = %(priority)s AND wait <= 0"
_START = "lane = '' AND queue_name = %(queue)s AND priority = %(priority)s AND run_after <= {now}"
_STARTS = {
    "postgresql": (
        "(status, lane, queue_name, priority) >= ('pending', '', %(queue)s, %(priority)s)"
    )
}
# The limit is inside and the condition outside, so that it reads no further rows if few of them are due.
DUE_IN_LANES = """
    SELECT queue_name, COUNT(*), MIN(wait) FROM (
        SELECT queue_name, {wait} AS wait FROM txtasks_task {by_queue}
         WHERE status = 'pending' AND <in_lanes>
         ORDER BY status, lane, queue_name, priority, run_after, id LIMIT %(limit)s) due
     WHERE wait <= 0 GROUP BY queue_name
"""
_IN_LANES = {"postgresql": "(status, lane) > ('pending', '')"}


def backlog(alias: str, queues: Iterable[str]) -> dict[str, tuple[int, float]]:
    """Return (number of due tasks, seconds for which the oldest has waited) of each queue, paused ones, too.

    After ``MAX_READ`` rows, the other queues are left out. The order is random, so that each queue has its turn.
    """
    due: dict[str, int] = {}
    oldest: dict[str, float] = defaultdict(float)

    def note(queue: str, count: int, wait: float | None) -> None:
        due[queue] = min(MAX_DUE, due.get(queue, 0) + count)
        oldest[queue] = max(oldest[queue], -float(wait or 0.0))

    left, names = MAX_READ, list(queues)
    for queue in random.sample(names, len(names)):
        if left <= 0:
            break
        note(queue, 0, None)
        for priority in pending_priorities(alias, queue):
            if due[queue] >= MAX_DUE:
                break
            read, count, wait = _due_of(alias, queue, priority, MAX_DUE - due[queue])
            left -= read
            note(queue, count, wait)
    in_lanes = _IN_LANES.get(connections[alias].vendor, "lane > ''")
    sql = DUE_IN_LANES.replace("<in_lanes>", in_lanes)
    for queue, count, wait in fetch(alias, sql, limit=MAX_IN_LANES):
        if queue in due:
            note(queue, count, wait)
    return {queue: (due[queue], oldest[queue]) for queue in due}


def _due_of(alias: str, queue: str, priority: int, most: int) -> tuple[int, int, float | None]:
    """Return the number of rows that were read, of due ones up to ``most``, and the wait of the first."""
    start = _STARTS.get(connections[alias].vendor, _START)
    sql = DUE_ROWS.replace("<start>", start).replace("<is_due>", _IS_DUE)
    total, limit = 0, FIRST
    while True:
        limit = min(limit, most)
        ((read, count, wait),) = fetch(alias, sql, queue=queue, priority=priority, limit=limit)
        total += read
        if count < limit or limit == most:
            return total, count, wait
        limit *= FACTOR
