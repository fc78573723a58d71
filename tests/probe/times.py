"""Task functions that note what time it is."""

import threading
from datetime import datetime, timedelta

from asgiref.sync import sync_to_async
from django.utils import timezone
from django.utils.timezone import now

from django_txtasks import Retry, Snooze, TaskContext, task
from django_txtasks.models import DatabaseNow, Worker
from django_txtasks.testing import run_due_tasks

SEEN: list[tuple[str, datetime, datetime | None]] = []
"""A key, ``timezone.now()`` and the time of the database."""


def see(key):
    """Note both times."""
    found = Worker.objects.annotate(at=DatabaseNow()).values_list("at", flat=True).first()
    assert abs(now() - timezone.now()) < timedelta(minutes=1)
    SEEN.append((key, timezone.now(), found))


@task(max_attempts=10, takes_context=True)
def see_times(ctx: TaskContext, key, *waits):
    see(key)
    if ctx.failures < len(waits):
        raise Retry(after=waits[ctx.failures])


@task
async def see_times_async(key):
    await sync_to_async(see)(key)


def pace(failures, error):
    """Days of waiting."""
    return timedelta(days=failures)


@task(max_attempts=3, backoff=pace, takes_context=True)
def see_failures(ctx: TaskContext, key):
    see(key)
    if ctx.failures < 2:
        raise ValueError("again")


@task(takes_context=True)
def see_snoozes(ctx: TaskContext, key):
    see(key)
    if ctx.snoozes < 2:
        raise Snooze(after=timedelta(days=1))


@task
def see_in_a_thread(key):
    see(key)
    thread = threading.Thread(target=lambda: SEEN.append(("thread", timezone.now(), None)))
    thread.start()
    thread.join()


@task
def see_within(key):
    see(key)
    see_times.using(run_after=timedelta(days=1)).enqueue("inner")
    run_due_tasks(until=timedelta(days=1))
    see(f"{key} again")


@task
def see_once_more(key):
    see(key)
    see_times.using(run_after=timedelta(days=1)).enqueue("a day later")


@task(unique_key="key", settle=timedelta(hours=1))
def see_settled(key):
    see(key)
