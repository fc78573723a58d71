"""Names of tasks that wait, and that no living worker declares. Reads a few rows of each queue, never a backlog.

A task whose module nothing imports waits without a word: its row is sound, and no worker asks for its name. Such
rows grow old, so they stand at the head of their queue and priority, which is where this looks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from datetime import timedelta
from itertools import islice

from django.db import connections

from django_txtasks import signals
from django_txtasks.lifecycle import lane_buckets
from django_txtasks.lifecycle.execute import fetch, fetch_column
from django_txtasks.lifecycle.priorities import pending_priorities
from django_txtasks.lifecycle.transactions import own_transaction
from django_txtasks.models import DatabaseNow, Worker

ROWS_PER_PRIORITY = 200
"""Rows that are looked at of each priority of a queue: the first that are due."""
MAX_PRIORITIES = 10
"""Priorities that are looked at of a queue: the highest."""
ROWS_IN_LANES = 200
MAX_WORKERS = 1000
STATEMENT_TIMEOUT = timedelta(seconds=5)

# What stands in brackets is for PostgreSQL: see dialect.to_queue.
_HEAD = """
    SELECT task_name FROM txtasks_task {forced}
     WHERE status = 'pending' AND lane = '' AND queue_name = %(queue)s AND priority = %(priority)s {bounds}
     ORDER BY run_after, id LIMIT %(limit)s
"""
_NAMES_OF = "SELECT task_name FROM txtasks_task WHERE id {in_ids}"
_BOUNDS = """
       AND (status, lane, queue_name, priority) >= ('pending', '', %(queue)s, %(priority)s)
       AND (status, lane, queue_name, priority) <= ('pending', '', %(queue)s, %(priority)s)
"""


def declared(alias: str) -> set[str] | None:
    """Return the names that living workers declare; None = there is no worker that says so."""
    workers = Worker.objects.using(alias).filter(lost=False).annotate(now=DatabaseNow())
    found = [
        worker.task_names
        for worker in workers.only("task_names", "seen_at", "lease")[:MAX_WORKERS]
        if not worker.is_silent(worker.now)
    ]
    if not all(found):  # one of an older release
        return None
    return {name for names in found for name in names} if found else None


def undeclared(alias: str, queues: Iterable[str], known: Iterable[str] = ()) -> dict[str, int]:
    """Return how many pending tasks of each name that no living worker declares were seen: at least so many wait.

    Args:
        known: names of a worker that is about to start.
    """
    names = declared(alias)
    names = set(known) if names is None else names.union(known)
    if not names:
        return {}
    seen = _waiting(alias, queues)
    return {name: count for name, count in sorted(seen.items()) if name not in names}


def sentence(found: dict[str, int]) -> str:
    """Return what was found, for people."""
    return signals.names_undeclared.sentence % listed(found)


def listed(found: dict[str, int]) -> str:
    """Return the first names and how many pending tasks of each were seen, for people."""
    few = ", ".join(f"{name} ({count} or more)" for name, count in list(found.items())[:10])
    return f"{few}, …" if len(found) > 10 else few


def _waiting(alias: str, queues: Iterable[str]) -> Counter[str]:
    vendor = connections[alias].vendor
    if vendor != "postgresql":  # where a transaction that reads may keep others waiting
        forced = "FORCE INDEX (txtasks_pending)" * (vendor == "mysql")
        return _heads(alias, queues, forced=forced) + _heads_of_lanes(alias, queues)
    with own_transaction(alias, limit=STATEMENT_TIMEOUT, in_order=True):
        return _heads(alias, queues, bounds=_BOUNDS) + _heads_of_lanes(alias, queues)


def _heads(
    alias: str, queues: Iterable[str], *, forced: str = "", bounds: str = ""
) -> Counter[str]:
    sql = _HEAD.replace("{forced}", forced).replace("{bounds}", bounds)
    found: Counter[str] = Counter()
    for queue in queues:
        for priority in islice(pending_priorities(alias, queue), MAX_PRIORITIES):
            rows = fetch(alias, sql, queue=queue, priority=priority, limit=ROWS_PER_PRIORITY)
            found.update(name for (name,) in rows)
    return found


def _heads_of_lanes(alias: str, queues: Iterable[str]) -> Counter[str]:
    """Count the names of the oldest rows of lanes, one of each queue and priority."""
    buckets, _ = lane_buckets.look(alias, "")
    ids = [one.first_id for one in buckets if one.queue_name in queues][:ROWS_IN_LANES]
    return Counter(fetch_column(alias, _NAMES_OF, ids=ids)) if ids else Counter()
