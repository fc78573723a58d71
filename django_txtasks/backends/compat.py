"""Django's Tasks: part of Django from 6.0 on, and the ``django-tasks`` package before."""

from __future__ import annotations

import inspect
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, TypeAlias

from django.core.exceptions import ImproperlyConfigured

if TYPE_CHECKING or find_spec("django.tasks"):
    from django.tasks import base, task_backends
    from django.tasks import task as _task
    from django.tasks.backends.base import BaseTaskBackend
    from django.tasks.backends.dummy import DummyBackend
    from django.tasks.backends.immediate import ImmediateBackend
    from django.tasks.base import TaskError, TaskResultStatus
    from django.tasks.exceptions import InvalidTask, TaskResultDoesNotExist
    from django.tasks.signals import task_enqueued, task_finished, task_started
    from django.utils.json import normalize_json

    if TYPE_CHECKING:
        Task: TypeAlias = base.Task[..., Any]
        TaskContext: TypeAlias = base.TaskContext[..., Any]
        TaskResult: TypeAlias = base.TaskResult[..., Any]
    else:
        Task, TaskContext, TaskResult = base.Task, base.TaskContext, base.TaskResult
elif find_spec("django_tasks"):
    from django_tasks import task as _task
    from django_tasks import task_backends
    from django_tasks.backends.base import BaseTaskBackend
    from django_tasks.backends.dummy import DummyBackend
    from django_tasks.backends.immediate import ImmediateBackend
    from django_tasks.base import Task, TaskContext, TaskError, TaskResult, TaskResultStatus
    from django_tasks.exceptions import InvalidTaskError as InvalidTask
    from django_tasks.exceptions import TaskResultDoesNotExist
    from django_tasks.signals import task_enqueued, task_finished, task_started
    from django_tasks.utils import normalize_json
else:
    raise ImproperlyConfigured(
        "django_txtasks.backends needs Django 6.0 or newer, or the backport of its Tasks: "
        "python -m pip install 'django-txtasks[tasks]'"
    )

__all__ = [
    "BaseTaskBackend",
    "DummyBackend",
    "ImmediateBackend",
    "InvalidTask",
    "Task",
    "TaskContext",
    "TaskError",
    "TaskResult",
    "TaskResultDoesNotExist",
    "TaskResultStatus",
    "normalize_json",
    "task",
    "task_backends",
    "task_enqueued",
    "task_finished",
    "task_started",
]


def _task_with_options(function: Any = None, *, backend: str = "default", **options: Any) -> Any:
    """Accept the options of a backend in Django 6.0, as Django's ``@task`` does from 6.1 on."""
    options = {"priority": 0, "queue_name": "default", "run_after": None, **options}

    def declare(function: Any) -> Any:
        return task_backends[backend].task_class(func=function, backend=backend, **options)

    return declare if function is None else declare(function)


if TYPE_CHECKING:
    task = _task
else:
    _kinds = [one.kind for one in inspect.signature(_task).parameters.values()]
    task = _task if inspect.Parameter.VAR_KEYWORD in _kinds else _task_with_options
