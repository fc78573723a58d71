"""Schedules of tasks whose code is elsewhere: other systems serve their queue, no code here declares them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from django_txtasks.conf import get_config
from django_txtasks.core.declaring import registry
from django_txtasks.core.ground import payload
from django_txtasks.core.rows.enqueueing import NewTask, RowDefaults, new_id


def is_elsewhere(task_name: str, queue_name: str) -> bool:
    """Return True if another system has the code of this task."""
    return queue_name in get_config().queues_elsewhere and registry.find(task_name) is None


def task_of(
    task_name: str, queue_name: str, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> NewTask:
    """Return a task for another system, which alone can check the arguments.

    Raises:
        InvalidArguments: they cannot be stored as JSON.
    """
    defaults = RowDefaults(task_name=task_name, queue_name=queue_name)
    texts = payload.encode(args, name="args"), payload.encode(kwargs, name="kwargs")
    return NewTask(new_id(), defaults, *texts)
