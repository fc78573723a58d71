"""django-tasks-db: Django's Tasks on the ORM, with one task at a time in each process."""

from __future__ import annotations

import sys

import records
from django.core.management import call_command

from peers import filling, launching, with_tasks

task = with_tasks.set_up("django_tasks_db", "django_tasks_db.DatabaseBackend")


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
    with_tasks.enqueue(no_op, int(count))


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
    with_tasks.pace(no_op, int(count), float(seconds))
