"""dj-queue: Django's Tasks on the ORM, with LISTEN; its command forks a worker and a dispatcher."""

from __future__ import annotations

import sys

import records
from django.core.management import call_command

from peers import launching, with_tasks

task = with_tasks.set_up("dj_queue", "dj_queue.backend.DjQueueBackend", workers=[{"threads": 4}])


@task()
def no_op(key: int) -> None:
    """Say that it ran."""
    records.write(key)


def prepare() -> None:
    """Migrate."""
    call_command("migrate", verbosity=0)


def enqueue(count: str) -> None:
    """Write ``count`` tasks one by one, in one transaction."""
    with_tasks.enqueue(no_op, int(count))


def work(processes: str) -> None:
    """Become its own command."""
    launching.run(processes, sys.executable, "-m", "peers", "dj_queue", "serve")


def serve() -> None:
    """Run its command with the settings of this module."""
    call_command("dj_queue")


def pace(count: str, seconds: str) -> None:
    """Enqueue one task at a time, each in a transaction."""
    with_tasks.pace(no_op, int(count), float(seconds))
