"""Overdue tasks: read page by page, and marked when workers are notified again."""

from __future__ import annotations

import uuid
from datetime import timedelta
from typing import NamedTuple

from django_txtasks.core.rows import statements
from django_txtasks.core.rows.buckets import pending_priorities
from django_txtasks.database.execute import as_uuid, execute, fetch, fetch_as
from django_txtasks.models import Status

# A page of tasks that have waited for longer than two intervals, from a given place on.
OVERDUE = """
    SELECT id, task_name, notified_at IS NULL OR notified_at < {ago}, CAST(run_after AS {text}) AS due_at
      FROM txtasks_task {by_queue}
     WHERE status = 'pending' AND lane = '' AND queue_name = %(queue)s AND priority = %(priority)s
       AND run_after < {ago}
       {sound_id} AND attempt < 2147483647 AND failures < 2147483647 AND crashes < 2147483647 {after}
     ORDER BY run_after, id LIMIT %(limit)s
"""
NOTIFIED = (
    "UPDATE txtasks_task SET notified_at = {now} WHERE id {in_ids} AND TRIM(status) = 'pending'"
)


class Overdue(NamedTuple):
    """An overdue task.

    Attributes:
        untold: whether it was not renotified for as long, either.
        due_at: ``run_after`` as text.
    """

    task_id: uuid.UUID
    task_name: str
    untold: bool
    due_at: str


def priorities(alias: str, queue: str) -> list[int]:
    """Return the priorities of a queue's pending tasks, highest first."""
    return list(pending_priorities(alias, queue))


def page(
    alias: str,
    queue: str,
    priority: int,
    age: timedelta,
    *,
    behind: Overdue | None,
    limit: int,
) -> list[Overdue]:
    """Return a page of the tasks that have been due for longer than ``age``, oldest first.

    Args:
        behind: the last task of the page before; None = the first page.
    """
    after, cursor = "", {}
    if behind is not None:
        after = statements.AFTER_CURSOR
        cursor = {"mark_time": behind.due_at, "mark_id": behind.task_id}
    rows = fetch_as(
        Overdue, alias, OVERDUE.replace("{after}", after),
        queue=queue, priority=priority, age=age.total_seconds(), limit=limit, **cursor,
    )  # fmt: skip
    return [row._replace(task_id=as_uuid(row.task_id), untold=bool(row.untold)) for row in rows]


def mark_notified(alias: str, ids: list[uuid.UUID]) -> list[uuid.UUID]:
    """Note the time of the hints for these tasks; return the tasks that still wait and are not locked."""
    if not ids:
        return []
    sql = statements.LOCK_IN_STATE
    rows = fetch(alias, sql, ids=sorted(ids), status=Status.PENDING.value)
    waiting = {as_uuid(task_id) for task_id, *_ in rows}
    if waiting:
        execute(alias, NOTIFIED, ids=sorted(waiting))
    return [one for one in ids if one in waiting]
