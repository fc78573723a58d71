"""The tasks of which an attempt finished although its worker had been declared lost: what may have happened twice.

No index has this, so the search reads a bounded number of rows: live tasks that have failed, are dead or held, and
the tasks that finished last.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import Q, TextField
from django.db.models.functions import Cast

from django_txtasks.insight.explain import Reason
from django_txtasks.insight.story import late_finishes, texts_of
from django_txtasks.models import FinishedTask, Status, Task

MOST_READ = 100_000
"""Number of finished tasks that are read, the last to finish first. Of live tasks as many are read."""
MOST_FOUND = 1000
_COLUMNS = "task_name", "attempt"


@dataclass(frozen=True)
class Twice:
    """The tasks that were found.

    Attributes:
        rows: of ``Task`` and ``FinishedTask``, at most ``MOST_FOUND`` of each.
        since: tasks that finished before this time were not read; None = all were read.
    """

    rows: tuple[Any, ...]
    since: datetime | None

    def reasons(self) -> Iterator[tuple[Any, Reason]]:
        """Yield each row with each of its late finishes."""
        for row in self.rows:
            late = texts_of(row._state.db, row.pk).late
            yield from ((row, reason) for reason in late_finishes(row._state.db, row, late))


def ran_twice(alias: str) -> Twice:
    """Return the tasks with late finishes, live and finished."""
    live = Task.objects.using(alias).only(*_COLUMNS, "status")
    failed = live.filter(Q(cause__isnull=False) | Q(status__in=[Status.DEAD, Status.HELD]))
    done = FinishedTask.objects.using(alias).only(*_COLUMNS, "outcome", "finished_at")
    newest = done.order_by("-finished_at")
    since = next((one.finished_at for one in newest[MOST_READ : MOST_READ + 1]), None)
    read = newest if since is None else newest.filter(finished_at__gt=since)
    return Twice((*_late(failed.order_by("pk")), *_late(read)), since)


def ids_of(alias: str, model: type[Any]) -> list[uuid.UUID]:
    """Return the ids of the tasks that were found in one table."""
    return [row.pk for row in ran_twice(alias).rows if isinstance(row, model)]


def _late(rows: Any) -> list[Any]:
    """Return the rows that note a late finish."""
    return list(
        rows.annotate(noted=Cast("late_finishes", TextField())).exclude(noted="[]")[:MOST_FOUND]
    )
