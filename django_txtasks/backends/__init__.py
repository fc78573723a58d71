"""A backend for Django's Tasks: ``TASKS = {"default": {"BACKEND": "django_txtasks.backends.TxTasksBackend"}}``.

It is imported while Django loads the apps, so nothing here imports a model.
"""

from django_txtasks.backends.backend import DummyBackend, ImmediateBackend, TxTasksBackend
from django_txtasks.backends.compat import task
from django_txtasks.backends.running import TaskContext
from django_txtasks.backends.tasks import Task

__all__ = [
    "DummyBackend",
    "ImmediateBackend",
    "Task",
    "TaskContext",
    "TxTasksBackend",
    "task",
]
