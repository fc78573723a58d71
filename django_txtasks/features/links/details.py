"""The base class of a table with columns of your own for each task."""

from __future__ import annotations

from typing import Any

from django.db import models

from django_txtasks.features.links.reading import state
from django_txtasks.models import TaskId


class TaskDetailsQuerySet(models.QuerySet[Any]):
    """Rows of details."""

    def with_state(self) -> TaskDetailsQuerySet:
        """Add ``task_state``: the state of each row's task, as ``status_of`` returns it."""
        rows: TaskDetailsQuerySet = self.annotate(task_state=state())
        return rows


class TaskDetails(models.Model):
    """Columns of your own for a task, in a table of yours.

    Write the row in the transaction that enqueues the task. The key is the id of the task's handle. There is no
    foreign key, because a task's row moves to another table when the task has finished.
    """

    task_id = TaskId(primary_key=True)

    objects = TaskDetailsQuerySet.as_manager()

    class Meta:
        abstract = True
