"""The progress of running tasks, in the rows of their workers."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Mapping

from django.db.models import QuerySet, TextField
from django.db.models.functions import Cast

from django_txtasks.core.rows import statements
from django_txtasks.database.execute import execute
from django_txtasks.features.progress.notes import Progress, read_progress
from django_txtasks.models import Task, Worker


def write_progress(alias: str, worker: uuid.UUID, progress: Mapping[str, Progress]) -> None:
    """Write the progress that a worker's tasks have reported, by id."""
    execute(alias, statements.WRITE_PROGRESS, worker=worker, progress=json.dumps(progress))


def progress_of(alias: str, task_id: uuid.UUID) -> Progress | None:
    """Return the progress of a running task; None = it does not run, or has reported none."""
    # No condition on the status: only a claimed row has a worker, and PostgreSQL might read all claimed rows.
    task = Task.objects.using(alias).filter(pk=task_id)
    return _progress_in(Worker.objects.using(alias).filter(pk__in=task.values("worker"))).get(
        str(task_id)
    )


def progress_at(alias: str, workers: Iterable[uuid.UUID | None]) -> dict[str, Progress]:
    """Return the progress that these workers' tasks have reported, by the id of the task as text."""
    return _progress_in(Worker.objects.using(alias).filter(pk__in=set(workers)))


def _progress_in(workers: QuerySet[Worker]) -> dict[str, Progress]:
    found: dict[str, Progress] = {}
    texts_of_rows = workers.annotate(text=Cast("progress", TextField())).values_list(
        "text", flat=True
    )
    for text in texts_of_rows:
        try:
            notes = json.loads(text or "null")
        except (ValueError, RecursionError):  # a person can write any text with SQL
            continue
        for task_id, value in notes.items() if isinstance(notes, dict) else ():
            progress = read_progress(value)
            if progress is not None:
                found[task_id] = progress
    return found
