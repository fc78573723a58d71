"""django-absurd: Django's Tasks on Absurd, with 1,000 async tasks at a time in one process."""

from __future__ import annotations

import asyncio
import sys

import records
from django.core.management import call_command

from peers import launching, with_tasks

task = with_tasks.set_up("django_absurd", "django_absurd.backends.AbsurdBackend", also=["bench"])


@task()
async def no_op(key: int) -> None:
    """Say that it ran."""
    records.write(key)


@task()
async def plain(key: int, seconds: float) -> None:
    """Wait."""
    await asyncio.sleep(seconds)
    records.write(key)


@task()
async def row(key: int, seconds: float) -> None:
    """Wait, and write a row by Django's ORM."""
    from bench.models import Row

    await asyncio.sleep(seconds)
    await Row.objects.acreate(key=key)
    records.write(key)


def prepare() -> None:
    """Migrate, and make the table for rows."""
    call_command("migrate", run_syncdb=True, verbosity=0)


def enqueue(count: str) -> None:
    """Write ``count`` tasks one by one, in one transaction."""
    with_tasks.enqueue(no_op, int(count))


def enqueue_waits(count: str, seconds: str, kind: str) -> None:
    """Write ``count`` tasks that wait."""
    with_tasks.enqueue({"plain": plain, "row": row}[kind], int(count), float(seconds))


def work(processes: str) -> None:
    """Become its own command."""
    launching.run(processes, sys.executable, "-m", "peers", "django_absurd", "serve")


def serve() -> None:
    """Run its command with the settings of this module."""
    call_command("absurd_worker", concurrency=1000, verbosity=0)


def pace(count: str, seconds: str) -> None:
    """Enqueue one task at a time, each in a transaction."""
    with_tasks.pace(no_op, int(count), float(seconds))
