"""A task function for each crash policy. Each run is noted outside the database, each effect inside."""

import os
import time
from pathlib import Path

from probe.models import Run

from django_txtasks import TaskContext, task
from failpoints import points, steps

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


@task(takes_context=True, idempotent=True, max_attempts=1000, max_crashes=1000)
def five_steps(ctx: TaskContext, key, place, kind, directory):
    """Meet the fault at that place in one of the attempts. Returns the number of each step's effect."""
    steps.plan(place, kind, Path(directory) / key)
    done = []
    for number in steps.NUMBERS:
        steps.reached(f"before {number}")
        done.append(ctx.step(f"step {number}", effect, key, number))
    steps.reached("at the end")
    return done


def effect(key, number):
    one = Run.objects.create(key=f"{key} {number}", pid=os.getpid())
    steps.reached(f"in {number}")
    return one.pk
