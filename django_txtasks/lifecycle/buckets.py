"""The buckets of a scan: queues that are not paused, and the priorities of their pending tasks.

It reads no backlog: one probe of an index for each priority.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from django.db import connections

from django_txtasks.database.execute import fetch, fetch_column
from django_txtasks.lifecycle import statements


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
