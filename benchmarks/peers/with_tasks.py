"""Django's Tasks in the example project, with the backend and the worker of another package."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

import django
import records
import settings as project
from django.conf import settings
from django.utils.module_loading import import_string


def set_up(app: str, backend: str, also: Sequence[str] = (), **options: Any) -> Callable[..., Any]:
    """Set Django up with the package's app in the place of ours; return Django's ``@task``.

    Args:
        also: further apps.
    """
    apps = [one for one in project.INSTALLED_APPS if one.startswith("django.")]
    values = {name: value for name, value in vars(project).items() if name.isupper()}
    settings.configure(
        **{
            **values,
            "INSTALLED_APPS": [*apps, app, *also],
            "ROOT_URLCONF": "peers.urls",
            "DATABASES": {"default": project.database(os.environ["DATABASE_URL"])},
            "TASKS": {"default": {"BACKEND": backend, "OPTIONS": options}},
        }
    )
    django.setup()
    has_tasks = django.VERSION >= (6, 0)
    task: Callable[..., Any] = import_string(f"django{'.' if has_tasks else '_'}tasks.task")
    return task


def enqueue(no_op: Any, count: int, *arguments: Any) -> None:
    """Write ``count`` tasks one by one, in one transaction; their first argument is their number."""
    from django.db import transaction

    with transaction.atomic():
        for key in range(count):
            no_op.enqueue(key, *arguments)


def pace(no_op: Any, count: int, seconds: float) -> None:
    """Enqueue one task at a time, each in a transaction."""
    from django.db import transaction

    for key in records.ticks(count, seconds):
        with transaction.atomic():
            no_op.enqueue(key)
        records.write(key)
