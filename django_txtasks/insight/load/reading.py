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
        queues = [QueueLoad(*row) for row in rows]
    workers = [
        WorkerLoad(
            one.row.host, one.row.pid, tuple(sorted(one.queues)), one.row.threads, one.row.running
        )
        for one in living
        if not one.is_apart
    ]
    return Look(alias, tuple(queues), tuple(workers))


def _living(alias: str) -> list[statements.Living]:
    """Return the workers whose lease has not run out."""
    rows: Any = (
        Worker.objects.using(alias)
        .filter(lost=False)
        .annotate(now=DatabaseNow())
        .annotate(
            queues_text=Cast("queues", TextField()), names_text=Cast("task_names", TextField())
        )
        .defer("queues", "task_names", "sessions", "progress")
        .order_by("host", "pid")
    )
    found = []
    for row in rows:
        if not row.is_silent(row.now):
            names = texts_in(row.names_text)
            is_apart = bool(names & {LOOP_MARK, DRAIN_MARK, ALONE_MARK})
            found.append(statements.Living(row, texts_in(row.queues_text), names, is_apart))
    return found
