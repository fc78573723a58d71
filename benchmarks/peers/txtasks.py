"""django-txtasks itself, through its public functions and commands."""

from __future__ import annotations

import json
import os
import sys

import django
import records

os.environ["DJANGO_SETTINGS_MODULE"] = "bench.settings"
os.environ["TXTASKS_DATABASE_URL"] = os.environ["DATABASE_URL"]
_SETTINGS = {"queue_prefix": os.environ["NAME"], "broker_url": os.environ["BROKER_URL"]}
_ASKED = json.loads(os.environ.get("TXTASKS_SETTINGS", "{}"))
os.environ["TXTASKS_SETTINGS"] = json.dumps({**_SETTINGS, **_ASKED})


def prepare() -> None:
    """Migrate."""
    django.setup()
    from django.core.management import call_command

    call_command("migrate", verbosity=0)


def enqueue(count: str, policy: str = "idempotent", size: str = "0") -> None:
    """Write so many no-ops, of this crash policy and with so many bytes of arguments."""
    django.setup()
    from bench import tasks

    from django_txtasks import enqueue_many

    function, more = getattr(tasks, policy), ["x" * int(size)] if int(size) else []
    with records.timed():
        for start in range(0, int(count), 5000):
            keys = range(start, min(start + 5000, int(count)))
            enqueue_many((function, [key, *more]) for key in keys)


def work(processes: str, *options: str) -> None:
    """Become runworkers."""
    command = ["-m", "django", "runworkers", "--verbosity=0", f"--processes={processes}"]
    os.execv(sys.executable, [sys.executable, *command, *options])  # noqa: S606 -- no shell


def pace(count: str, seconds: str) -> None:
    """Enqueue one no-op at a time, each in a transaction."""
    django.setup()
    from bench import tasks
    from django.db import transaction

    for key in records.ticks(int(count), float(seconds)):
        with transaction.atomic():
            tasks.idempotent.enqueue(key)
        records.write(key)
