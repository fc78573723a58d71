"""A backend for Django's Tasks: ``TASKS = {"default": {"BACKEND": "django_txtasks.backends.TxTasksBackend"}}``.

Django imports it while it loads the apps, so its modules import no model at the top.
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
