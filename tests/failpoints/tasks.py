"""A task function for each crash policy. Each run is noted outside the database, each effect inside."""

import os
import time
from pathlib import Path

from django.db import transaction
from probe.models import Run

from django_txtasks import Suspended, TaskContext, WaitTimedOut, resume, task
from failpoints import points, steps, waits

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


patient = task(takes_context=True, idempotent=True, max_attempts=1000, max_crashes=1000)


@patient
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


@patient
def ask(ctx: TaskContext, name):
    """Wait under a name that says the planned fault, between two steps; return the value."""
    ctx.step("before", note, f"{name} before")
    value = answer(ctx, name)
    waits.reached("got", name)
    ctx.step("after", note, f"{name} after")
    return value


def answer(ctx, name):
    when = name.partition(":")[0]
    waits.reached("before", name)
    try:
        return ctx.wait_for(name, timeout=0.5 if when == "never" else None)
    except WaitTimedOut:
        return "nobody"
    except Suspended:
        waits.reached("asked", name)
        if when == "between":
            bring_value(ctx.token(name), name, ctx.attempt)
        raise


@patient
def bring(ctx: TaskContext, token, name):
    """Bring a value, another one in each attempt."""
    bring_value(token, name, ctx.attempt)


def bring_value(token, name, value):
    with transaction.atomic():
        if resume(token, value):
            note(f"{name} counted", value)
    waits.reached("brought", name)


def note(key, value=0):
    Run.objects.create(key=key, attempt=value, pid=os.getpid())
