"""The buckets of a scan: queues that are not paused, priorities of their pending tasks, queues with failed tasks.

It reads no backlog: one probe of an index for each priority or queue.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from django.db import connections

from django_txtasks.core.rows import statements
from django_txtasks.database.execute import fetch, fetch_column
from django_txtasks.models import Status

# On PostgreSQL, a comparison of whole rows alone is the place of a probe: with a second condition, a probe would
# read all entries before the place. To compare whole rows, the others would not begin at the place.
_NEXT_FAILED_BY_ROWS = """
    SELECT status, queue_name FROM txtasks_task
     WHERE {is_failed} AND (status, queue_name) > (%(status)s, %(queue)s)
     ORDER BY status, queue_name LIMIT 1
"""
_NEXT_FAILED = """
    SELECT {failed_status}, queue_name FROM txtasks_task {by_cause}
     WHERE {is_failed} AND {failed_status} = %(status)s AND queue_name > %(queue)s ORDER BY queue_name LIMIT 1
"""
# The place and the order of the pending rows of a bucket without a lane, for ``database.places``. On PostgreSQL,
# only a comparison of whole rows is a place of the index, whatever the planner's statistics say.
BUCKET_BY_ROWS = (
    "(status, lane, queue_name, priority) >= ('pending', '', <queue>, <priority>)",
    "status, lane, queue_name, priority,",
)
BUCKET_BY_COLUMNS = ("lane = '' AND queue_name = <queue> AND priority = <priority>", "")


def paused_queues(alias: str) -> set[str]:
    """Return the names of all paused queues."""
    return set(fetch_column(alias, statements.PAUSED_QUEUES))


def pending_priorities(
    alias: str, queue: str, look: Callable[..., list[tuple[Any, ...]]] = fetch
) -> Iterator[int]:
    """Yield the priorities of a queue's pending tasks, highest first.

    On MariaDB, it reads the next priority when the caller asks for it; elsewhere it reads all at once.

    Args:
        look: a function that runs a statement, with the signature of ``execute.fetch``.
    """
    found = _one_by_one if connections[alias].vendor == "mysql" else _at_once
    return found(alias, queue, look)


def _at_once(alias: str, queue: str, look: Callable[..., list[tuple[Any, ...]]]) -> Iterator[int]:
    rows = look(alias, statements.PENDING_PRIORITIES, queue=queue)
    return (priority for (priority,) in rows if isinstance(priority, int))  # SQLite takes any text


def _one_by_one(
    alias: str, queue: str, look: Callable[..., list[tuple[Any, ...]]]
) -> Iterator[int]:
    ((priority,),) = look(alias, statements.HIGHEST_PRIORITY, queue=queue)
    while priority is not None:
        yield priority
        sql = statements.NEXT_PRIORITY
        ((priority,),) = look(alias, sql, queue=queue, priority=priority)


def failed_queue_after(alias: str, status: Status, queue: str) -> str:
    """Return the next queue with failed tasks in this state, by name; empty = there are no more."""
    is_postgresql = connections[alias].vendor == "postgresql"
    sql = _NEXT_FAILED_BY_ROWS if is_postgresql else _NEXT_FAILED
    rows = fetch(alias, sql, status=status.value, queue=queue)
    return rows[0][1] if rows and rows[0][0] == status.value else ""


def failed_queues(alias: str, status: Status) -> Iterator[str]:
    """Yield all queues with failed tasks in this state."""
    queue = ""
    while queue := failed_queue_after(alias, status, queue):
        yield queue
