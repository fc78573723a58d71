"""The backlog of each queue: the number of due tasks and the wait of the oldest, from a bounded number of rows."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from django.db import connections

from django_txtasks.database.execute import fetch
from django_txtasks.lifecycle.buckets import pending_priorities

MAX_DUE = 10_000
"""Highest number of due tasks that is counted for a queue. A queue with this count may have more."""
MAX_IN_LANES = 10_000
"""Number of pending tasks in lanes that are read, of all queues together."""

# The part of the index with one priority of a queue, in which the due rows come first. PostgreSQL finds its place
# only by a comparison of whole rows: see ``Dialect.to_queue``. An end there would make it read the whole part.
DUE_ROWS = """
    SELECT COUNT(*), MIN(wait) FROM (
        SELECT lane, queue_name, priority, {wait} AS wait FROM txtasks_task {by_queue}
         WHERE status = 'pending' AND <start>
         ORDER BY status, lane, queue_name, priority, run_after, id LIMIT %(limit)s) due
     WHERE lane = '' AND queue_name = %(queue)s AND priority = %(priority)s AND wait <= 0
"""
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
    """Return (number of due tasks, seconds for which the oldest has waited) of each queue, paused ones, too."""
    due: dict[str, int] = defaultdict(int)
    oldest: dict[str, float] = defaultdict(float)

    def note(queue: str, count: int, wait: float | None) -> None:
        due[queue] = min(MAX_DUE, due[queue] + count)
        oldest[queue] = max(oldest[queue], -float(wait or 0.0))

    vendor = connections[alias].vendor
    sql = DUE_ROWS.replace("<start>", _STARTS.get(vendor, _START))
    for queue in queues:
        note(queue, 0, None)
        for priority in pending_priorities(alias, queue):
            left = MAX_DUE - due[queue]
            if left <= 0:
                break
            ((count, wait),) = fetch(alias, sql, queue=queue, priority=priority, limit=left)
            note(queue, count, wait)
    sql = DUE_IN_LANES.replace("<in_lanes>", _IN_LANES.get(vendor, "lane > ''"))
    for queue, count, wait in fetch(alias, sql, limit=MAX_IN_LANES):
        if queue in due:
            note(queue, count, wait)
    return {queue: (due[queue], oldest[queue]) for queue in due}
