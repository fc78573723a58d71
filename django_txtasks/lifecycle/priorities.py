"""The priorities of the pending tasks of a queue: one probe of an index for each, however many tasks wait."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from django.db import connections

from django_txtasks.database.execute import fetch
from django_txtasks.lifecycle import statements


def pending_priorities(
    alias: str, queue: str, look: Callable[..., list[tuple[Any, ...]]] = fetch
) -> Iterator[int]:
    """Yield the priorities of a queue's pending tasks, highest first.

    On MariaDB it looks for the next one when that is asked for, elsewhere for all of them at once.

    Args:
        look: runs a statement, called as ``execute.fetch`` is.
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
