"""A task function for each crash policy. Each run is noted outside the database, each effect inside."""

import os
import time
from pathlib import Path

from probe.models import Run

from django_txtasks import task
from failpoints import points

KINDS = ("default", "idempotent", "atomic")
LENGTH = 0.3
"""Seconds: so that a process that dies has several tasks running."""


@task
def default(key):
    work("default", key)


@task(idempotent=True)
def idempotent(key):
    work("idempotent", key)


@task(atomic=True)
def atomic(key):
    work("atomic", key)


def work(kind, key):
    with Path(os.environ["TXTASKS_RUNS"]).open("a") as lines:  # survives a rollback
        lines.write(f"{key}\n")
    points.reached("run", kind)
    Run.objects.create(key=key, pid=os.getpid())
    points.reached("effects", kind)
    time.sleep(LENGTH)
