"""django-tasks-db: Django's Tasks on the ORM, with one task at a time in each process."""

from __future__ import annotations

import os
import sys
from urllib.parse import urlsplit

import django
import records
from django.conf import settings
from django.core.management import call_command
from django.utils.module_loading import import_string

from peers import filling, launching

_URL = urlsplit(os.environ["DATABASE_URL"])
settings.configure(
    INSTALLED_APPS=["django_tasks_db"],
    USE_TZ=True,
    TASKS={"default": {"BACKEND": "django_tasks_db.DatabaseBackend"}},
    DATABASES={
        "default": {
            "ENGINE": "django.db.backends.postgresql",
            "NAME": _URL.path[1:], "USER": _URL.username, "HOST": _URL.hostname, "PORT": _URL.port,
        }
    },
)  # fmt: skip
django.setup()
_DJANGO_HAS_TASKS = django.VERSION >= (6, 0)
task = import_string("django.tasks.task" if _DJANGO_HAS_TASKS else "django_tasks.task")


@task()
def no_op(key: int) -> None:
    """Say that it ran."""
    records.write(key)


LATER = """
    INSERT INTO django_tasks_database_dbtaskresult (
           id, status, enqueued_at, args_kwargs, priority, task_path, worker_ids, queue_name, backend_name,
           run_after, exception_class_path, traceback)
    SELECT gen_random_uuid(), 'READY', now(), '{"args": [0], "kwargs": {}}', mod(n, 2) * %s,
           'peers.django_tasks_db.no_op', '[]', 'default', 'default',
           now() + interval '1 day' + n * interval '1 second', '', ''
      FROM generate_series(1, %s) AS n
"""


def prepare() -> None:
    """Migrate."""
    call_command("migrate", verbosity=0)


def enqueue(count: str) -> None:
    """Write ``count`` tasks one by one, in one transaction."""
    from django.db import transaction

    with transaction.atomic():
        for key in range(int(count)):
            no_op.enqueue(key)


def later(count: str, priority: str = "0") -> None:
    """Write rows due from tomorrow on, half of them with this priority."""
    filling.fill(LATER, int(count), int(priority))


def work(processes: str) -> None:
    """Become its own command."""
    launching.run(processes, sys.executable, "-m", "peers", "django_tasks_db", "serve")


def serve() -> None:
    """Run its command with the settings of this module."""
    call_command("db_worker", "--no-startup-delay", reload=False, verbosity=0)


def pace(count: str, seconds: str) -> None:
    """Enqueue one task at a time, each in a transaction."""
    from django.db import transaction

    for key in records.ticks(int(count), float(seconds)):
        with transaction.atomic():
            no_op.enqueue(key)
        records.write(key)
