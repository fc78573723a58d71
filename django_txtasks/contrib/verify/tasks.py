"""The task functions of a storm, one for each promise that ``@task`` can make."""

from __future__ import annotations

import os
import time
import zlib

from django.db.models import F

from django_txtasks import TaskContext, TaskFunction, task
from django_txtasks.contrib.verify import journal
from django_txtasks.contrib.verify.models import Counter, Effect
from django_txtasks.contrib.verify.project import LANE, Scene

SCENE = Scene.here()
SHELVES = 5
"""Number of unique keys."""


@task(takes_context=True)
def plain(ctx: TaskContext, key: str, seconds: float = 0.0) -> None:
    """May start once: after a crash nobody knows whether it may run again."""
    _run(ctx, key, "plain", seconds)


@task(takes_context=True)
def flaky(ctx: TaskContext, key: str, seconds: float = 0.0) -> None:
    """Fails first, then succeeds."""
    _run(ctx, key, "flaky", seconds, fails=ctx.failures == 0)


@task(idempotent=True, takes_context=True)
def idempotent(ctx: TaskContext, key: str, seconds: float = 0.0) -> None:
    """May run again after a crash."""
    _run(ctx, key, "idempotent", seconds)


def _same(key: str, seconds: float = 0.0) -> str:
    return f"{zlib.crc32(key.encode()) % SHELVES}"


@task(idempotent=True, takes_context=True, unique_key=_same, keep="oldest")
def unique(ctx: TaskContext, key: str, seconds: float = 0.0) -> None:
    """Stands for others of its key that wait when it is claimed."""
    _run(ctx, key, "unique", seconds)


@task(idempotent=True, takes_context=True, lane=LANE)
def laned(ctx: TaskContext, key: str, seconds: float = 0.0) -> None:
    """Runs beside so many others of its lane at most."""
    _run(ctx, key, "laned", seconds)


@task(atomic=True, takes_context=True)
def atomic(ctx: TaskContext, key: str, seconds: float = 0.0) -> None:
    """Write one row, which is there exactly once."""
    _run(ctx, key, "atomic", seconds)


@task(atomic=True, takes_context=True)
def increment(ctx: TaskContext, key: str, seconds: float = 0.0) -> None:
    """Add exactly one."""
    _run(ctx, key, "increment", seconds)
    Counter.objects.update(n=F("n") + 1)


def function_of(kind: str) -> TaskFunction[..., None]:
    """Return the task function of a kind."""
    return {
        "plain": plain,
        "flaky": flaky,
        "idempotent": idempotent,
        "unique": unique,
        "laned": laned,
        "atomic": atomic,
        "increment": increment,
    }[kind].using(using=SCENE.alias)


def _run(ctx: TaskContext, key: str, kind: str, seconds: float, *, fails: bool = False) -> None:
    _note("start", ctx, key, kind)
    try:
        time.sleep(seconds)
        if fails:
            raise RuntimeError("the first attempt fails, as planned")
        Effect.objects.create(key=key, kind=kind, attempt=ctx.attempt, pid=os.getpid())
    finally:
        _note("end", ctx, key, kind)


def _note(event: str, ctx: TaskContext, key: str, kind: str) -> None:
    journal.note(SCENE.journals, journal.RAN, event, key, kind, ctx.attempt)
