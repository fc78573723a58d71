"""django-txtasks itself, through its public functions and commands."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import random
import sys
import time
from collections.abc import Callable
from typing import Any

import django
import records
from asgiref.sync import sync_to_async

from peers import clashing, filling, launching

os.environ["DJANGO_SETTINGS_MODULE"] = "bench.settings"
os.environ["TXTASKS_DATABASE_URL"] = os.environ["DATABASE_URL"]
_SETTINGS = {"queue_prefix": os.environ["NAME"], "broker_url": os.environ["BROKER_URL"]}
_ASKED = json.loads(os.environ.get("TXTASKS_SETTINGS", "{}"))
os.environ["TXTASKS_SETTINGS"] = json.dumps({**_SETTINGS, **_ASKED})
LATER = """
    INSERT INTO txtasks_task (id, task_name, args, on_crash, priority, run_after)
    SELECT gen_random_uuid(), 'bench.tasks.idempotent', '[0]', 'retry', mod(n, 2) * %s,
           now() + interval '1 day' + n * interval '1 second'
      FROM generate_series(1, %s) AS n
"""
HOARD = """
    INSERT INTO txtasks_task (id, task_name, args, on_crash, queue_name, priority)
    SELECT gen_random_uuid(), 'bench.tasks.idempotent', '[0]', 'retry', 'other', %s FROM generate_series(1, %s)
"""


def prepare() -> None:
    """Migrate."""
    django.setup()
    from django.core.management import call_command

    call_command("migrate", run_syncdb=True, verbosity=0)


def enqueue(count: str, policy: str = "idempotent", size: str = "0") -> None:
    """Write ``count`` no-ops with this crash policy and this size of arguments in bytes.

    The first one is not timed: with it the process connects, to RabbitMQ in a thread.
    """
    django.setup()
    from bench import tasks

    from django_txtasks import enqueue_many

    function, more = getattr(tasks, policy), ["x" * int(size)] if int(size) else []
    enqueue_many([(function, [0, *more])])
    time.sleep(1)
    with records.timed():
        for start in range(1, int(count), 5000):
            keys = range(start, min(start + 5000, int(count)))
            enqueue_many((function, [key, *more]) for key in keys)


def enqueue_waits(count: str, seconds: str, kind: str) -> None:
    """Write ``count`` async tasks that wait, and write a row if this is their kind."""
    django.setup()
    from bench import waits

    from django_txtasks import enqueue_many

    function = waits.wait_and_write if kind == "row" else waits.wait
    enqueue_many((function, [key, float(seconds)]) for key in range(int(count)))


def batch(count: str) -> None:
    """Write ``count`` no-ops as ``enqueue`` does, as members of a batch."""
    django.setup()
    from bench import tasks

    from django_txtasks import batch as open_batch

    with open_batch(on_finish=tasks.end_of_batch):
        enqueue(count)


def later(count: str, priority: str = "0") -> None:
    """Write rows due from tomorrow on, half of them with this priority."""
    filling.fill(LATER, int(count), int(priority))


def hoard(count: str) -> None:
    """Write rows of another queue that are due, of a higher priority."""
    filling.fill(HOARD, int(count), 50)


def work(processes: str, *options: str) -> None:
    """Become runworkers, without a cleaner, as ``clean`` is one; with the option ``cleaner``, with its own."""
    command = ["-m", "django", "runworkers", "--verbosity=0", f"--processes={processes}"]
    has_cleaner = "cleaner" in options
    rest = [one for one in options if one != "cleaner"]
    own = [] if has_cleaner else ["--no-cleaner"]
    launching.run("1", sys.executable, *command, *own, *rest)


def clean(*options: str) -> None:
    """Become runcleaner."""
    command = [sys.executable, "-m", "django", "runcleaner", "--verbosity=0", *options]
    os.execv(sys.executable, command)  # noqa: S606 -- no shell


def schedules(
    count: str, seconds: str, cron: str = "", wait: str = "-1", function: str = "idempotent"
) -> None:
    """Write schedules of a no-op, by interval or by cron, with the time until the first tick."""
    django.setup()
    from datetime import datetime, timedelta, timezone

    from django_txtasks.models import Schedule

    every = None if cron else float(seconds)
    due = datetime.now(timezone.utc).replace(microsecond=0) + timedelta(seconds=int(wait))
    Schedule.objects.bulk_create(
        Schedule(
            name=f"{cron or 'every'} {key}", task_name=f"bench.tasks.{function}", args=[key], every=every,
            cron=cron, tz="Europe/Vienna", next_at=due, catch_up="all",
        )
        for key in range(int(count))
    )  # fmt: skip


def pace(count: str, seconds: str) -> None:
    """Enqueue one no-op at a time, each in a transaction."""
    django.setup()
    from bench import tasks
    from django.db import transaction

    for key in records.ticks(int(count), float(seconds)):
        with transaction.atomic():
            tasks.idempotent.enqueue(key)
        records.write(key)


def wait(count: str, way: str) -> None:
    """Enqueue one no-op and wait for its result, one after the other; record its key, and then -key - 1."""
    django.setup()
    from bench import tasks
    from django.db import transaction

    async def waits(key: int) -> None:
        handle = await sync_to_async(enqueue)(key)
        records.write(key)
        await handle.aresult(60)
        records.write(-key - 1)

    async def all_of_them() -> None:
        for key in range(int(count)):
            await waits(key)

    def enqueue(key: int) -> Any:
        with transaction.atomic():
            return tasks.idempotent.enqueue(key)

    if way == "aresult":
        asyncio.run(all_of_them())
        return
    for key in range(int(count)):
        handle = enqueue(key)
        records.write(key)
        handle.result(60)
        records.write(-key - 1)


def await_all(count: str, who: str = "") -> None:
    """Enqueue no-ops at once and wait for all; record the begin, the end, and the number of looks as a key."""
    django.setup()
    from bench import tasks
    from django.db import connection

    from django_txtasks import enqueue_many, hints

    seen = []

    def count_it(execute: Any, *call: Any) -> Any:
        seen.append(1)
        return execute(*call)

    async def all_of_them(handles: list[Any]) -> None:
        await sync_to_async(lambda: connection.execute_wrappers.append(count_it))()
        await asyncio.gather(*(handle.aresult(60) for handle in handles))

    handles = enqueue_many((tasks.idempotent, [key]) for key in range(int(count)))
    records.write(0)
    if who == "nobody":
        hints.flush()
        return
    asyncio.run(all_of_them(handles))
    records.write(1)
    records.write(len(seen))


def appoint(count: str, ahead: str, seconds: str) -> None:
    """Enqueue no-ops for random times within ``seconds``."""
    django.setup()
    from bench import tasks

    from django_txtasks import enqueue_many

    times = records.instants(int(count), float(ahead), float(seconds))
    enqueue_many((tasks.idempotent.using(run_after=at), [key]) for key, at in enumerate(times))


def rush(clients: str, seconds: str, slice_seconds: str = "0") -> None:
    """Enqueue one no-op after the other in as many processes at once; record how many each has committed.

    With a length of slices hints from the database are on in each first slice and off in each second one, and each
    process records two counts, in this order: the same processes at nearly the same time, so that what disturbs
    the machine disturbs both.
    """
    django.setup()
    begin = time.time() + 3
    children = []
    for _ in range(int(clients)):
        child = os.fork()
        if not child:
            _enqueue_until(begin, begin + float(seconds), float(slice_seconds))
            os._exit(0)
        children.append(child)
    for child in children:
        assert os.waitpid(child, 0)[1] == 0


def _enqueue_until(begin: float, end: float, slice_seconds: float) -> None:
    from bench import tasks
    from django.db import transaction

    from django_txtasks import hints

    tasks.idempotent.enqueue(0)  # it connects
    time.sleep(max(0.0, begin - time.time()))
    counts = [0, 0]
    for number in itertools.count():
        slice_end = min(end, begin + (number + 1) * slice_seconds) if slice_seconds else end
        if slice_seconds:
            _turn_database_hints(on=number % 2 == 0)
        count = 0
        while time.time() < slice_end:
            with transaction.atomic():
                tasks.idempotent.enqueue(count)
            count += 1
        counts[number % 2] += count
        if slice_end == end:
            break
    for count in counts if slice_seconds else counts[:1]:
        records.write(count)
    hints.flush()


def _turn_database_hints(*, on: bool) -> None:
    from django.conf import settings
    from django.test.signals import setting_changed

    settings.TXTASKS = {**settings.TXTASKS, "database_hints": on}
    setting_changed.send(sender=None, setting="TXTASKS", value=settings.TXTASKS, enter=True)


def flow(seconds: str, rate: str) -> None:
    """Enqueue no-ops at a rate for a number of seconds, in 100 transactions per second; record each commit."""
    django.setup()
    from bench import tasks

    from django_txtasks import enqueue_many

    many = int(rate) // 100
    for tick in records.ticks(int(float(seconds) * 100), 0.01):
        keys = range(tick * many, (tick + 1) * many)
        enqueue_many((tasks.idempotent, [key]) for key in keys)
        for key in keys:
            records.write(key)


def mix(count: str, seconds: str, seed: str) -> None:
    """Write tasks in a random order; those with odd keys sleep. Record the order."""
    django.setup()
    from django_txtasks import enqueue_many

    keys = _shuffled(int(count), int(seed))
    enqueue_many(_quick_or_slow(key, float(seconds)) for key in keys)
    for key in keys:
        records.write(key)


def stream(count: str, seconds: str, seed: str, every: str) -> None:
    """Enqueue the same tasks one at a time, each in a transaction; record when it has committed."""
    django.setup()
    from django_txtasks import enqueue_task

    keys = _shuffled(int(count), int(seed))
    for place in records.ticks(len(keys), float(every)):
        function, args = _quick_or_slow(keys[place], float(seconds))
        enqueue_task(function, *args)
        records.write(keys[place])


def lanes(name: str, first: str, count: str, number: str, seconds: str) -> None:
    """Write naps from this key on, in turns into the lanes of this name; record the commit."""
    django.setup()
    from bench import tasks

    from django_txtasks import enqueue_many

    keys = range(int(first), int(first) + int(count))
    for start in range(0, len(keys), 5000):
        some = keys[start : start + 5000]
        enqueue_many(
            (tasks.nap_in_lane, [key, float(seconds), f"{name}{key % int(number)}"]) for key in some
        )
    records.write(0)


def clash(count: str, together: str, seconds: str) -> None:
    """Enqueue under one unique key, in transactions of several clients."""
    django.setup()
    from bench import tasks
    from django.db import connection, transaction

    def one(commits: bool, work: Callable[[], None]) -> bool:
        with transaction.atomic():
            tasks.keyed.enqueue(0)
            work()
            transaction.set_rollback(not commits)
        connection.close()  # as the others do
        return False

    clashing.clash(count, together, seconds, one)


def _shuffled(count: int, seed: int) -> list[int]:
    keys = list(range(count))
    random.Random(seed).shuffle(keys)
    return keys


def _quick_or_slow(key: int, seconds: float) -> tuple[Any, list[Any]]:
    from bench import tasks

    return (tasks.nap, [key, seconds]) if key % 2 else (tasks.idempotent, [key])
