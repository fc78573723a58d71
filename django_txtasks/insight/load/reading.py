"""Reads the load: from the view on PostgreSQL, by bounded statements elsewhere."""

from __future__ import annotations

from typing import Any

from django.db import connections
from django.db.models import TextField
from django.db.models.functions import Cast

from django_txtasks.core.rows.turn import ALONE_MARK, LOOP_MARK
from django_txtasks.core.rows.workers import DRAIN_MARK, texts_in
from django_txtasks.database.errors import TookTooLong
from django_txtasks.database.time_limits import try_within
from django_txtasks.features.reports.whose import is_foreign, is_handed
from django_txtasks.insight.load import statements
from django_txtasks.insight.load.records import Look, QueueLoad, WorkerLoad
from django_txtasks.models import DatabaseNow, Worker

LONGEST_SECONDS = 10.0
"""Longest time of a look. It reads a bounded number of rows, which takes some 20 ms."""
VIEW = """
    SELECT queue_name, due, due_in_lanes, oldest_seconds, running, run_seconds, wanted_threads FROM txtasks_load
     ORDER BY queue_name
"""


def look(alias: str) -> Look:
    """Return the load of a database.

    Raises:
        DatabaseError: it cannot be read, or takes too long.
    """
    living = _living(alias)
    if connections[alias].vendor != "postgresql":
        queues = statements.queues(alias, living, LONGEST_SECONDS)
    else:
        rows = try_within(alias, VIEW, LONGEST_SECONDS).rows
        if rows is None:
            raise TookTooLong("to read the load took too long")
        queues = [one for row in rows if (one := _by_settings(QueueLoad(*row)))]
    workers = [
        WorkerLoad(
            one.row.host, one.row.pid, tuple(sorted(one.queues)), one.row.threads, one.row.running
        )
        for one in living
        if not (one.is_apart or one.is_foreign)
    ]
    return Look(alias, tuple(queues), tuple(workers))


def _by_settings(one: QueueLoad) -> QueueLoad | None:
    """Return the row of the view; without what waits if the queue is handed over. None: nothing is left.

    The view knows the setting as it was at the last ``migrate``.
    """
    if not is_handed(one.queue_name):
        return one
    left = one._replace(due=0, due_in_lanes=0, oldest_seconds=0.0, wanted_threads=one.running)
    return left if left.running else None


def _living(alias: str) -> list[statements.Living]:
    """Return the workers whose lease has not run out."""
    rows: Any = (
        Worker.objects.using(alias)
        .filter(lost=False)
        .annotate(now=DatabaseNow())
        .annotate(
            queues_text=Cast("queues", TextField()),
            names_text=Cast("task_names", TextField()),
            sessions_text=Cast("sessions", TextField()),
        )
        .defer("queues", "task_names", "sessions", "progress")
        .order_by("host", "pid")
    )
    found = []
    for row in rows:
        if not row.is_silent(row.now):
            names = texts_in(row.names_text)
            is_apart = bool(names & {LOOP_MARK, DRAIN_MARK, ALONE_MARK})
            queues, foreign = texts_in(row.queues_text), is_foreign(names, row.sessions_text or "")
            found.append(statements.Living(row, queues, names, is_apart, foreign))
    return found
