"""The task functions of a storm, one for each guarantee of ``@task``."""

from __future__ import annotations

import os
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.db.models import F

from django_txtasks import TaskContext, TaskFunction, task
from django_txtasks.contrib.verify import journal
from django_txtasks.contrib.verify.models import Counter, Effect
from django_txtasks.contrib.verify.plan import NAP_SECONDS, STEPS
from django_txtasks.contrib.verify.project import LANE, WAIT, Scene, key_of

SCENE = Scene.here()
SHELVES = 5
"""Number of unique keys."""


@task(takes_context=True)
def plain(ctx: TaskContext, key: str, seconds: float = 0.0) -> None:
    """Run at most once: after a crash it is unknown whether it may run again."""
    _run(ctx, key, "plain", seconds)


@task(takes_context=True)
def flaky(ctx: TaskContext, key: str, seconds: float = 0.0) -> None:
    """Fail first, then succeed."""
    _run(ctx, key, "flaky", seconds, fails=ctx.failures == 0)


@task(max_attempts=1, takes_context=True)
def doomed(ctx: TaskContext, key: str, seconds: float = 0.0) -> None:
    """Fail and become dead, so that its batch fails."""
    _run(ctx, key, "doomed", seconds, fails=True)


@task(idempotent=True, takes_context=True)
def idempotent(ctx: TaskContext, key: str, seconds: float = 0.0) -> None:
    """Run again after a crash."""
    _run(ctx, key, "idempotent", seconds)


def shelf(key: str, seconds: float = 0.0) -> str:
    """Return the unique key of a task."""
    return f"{zlib.crc32(key.encode()) % SHELVES}"


@task(idempotent=True, takes_context=True, unique_key=shelf, keep="oldest")
def unique(ctx: TaskContext, key: str, seconds: float = 0.0) -> None:
    """Run once for all tasks of its key that wait when it is claimed."""
    _run(ctx, key, "unique", seconds)


@task(idempotent=True, takes_context=True, lane=LANE)
def laned(ctx: TaskContext, key: str, seconds: float = 0.0) -> None:
    """Run beside a limited number of others of its lane."""
    _run(ctx, key, "laned", seconds)


@task(atomic=True, takes_context=True)
def atomic(ctx: TaskContext, key: str, seconds: float = 0.0) -> None:
    """Write one row, which must exist exactly once."""
    _run(ctx, key, "atomic", seconds)


@task(atomic=True, takes_context=True)
def increment(ctx: TaskContext, key: str, seconds: float = 0.0) -> None:
    """Add exactly one to the counter."""
    _run(ctx, key, "increment", seconds)
    Counter.objects.update(n=F("n") + 1)


@task(idempotent=True, takes_context=True)
def stepped(ctx: TaskContext, key: str, seconds: float = 0.0) -> None:
    """Write one row in each step, which must exist exactly once; fail once after the first step."""
    with noted(ctx, key, "stepped"):
        for step in STEPS:
            ctx.step(step, leave_effect, ctx, key, step)
            if ctx.failures == 0:
                raise RuntimeError("this attempt fails, as planned")
            time.sleep(seconds / len(STEPS))


@task(idempotent=True, takes_context=True)
def sleeping(ctx: TaskContext, key: str, seconds: float = 0.0) -> None:
    """Sleep, and continue when the time has come."""
    with noted(ctx, key, "sleeping"):
        asleep = ctx.step("asleep", time.time)
        ctx.sleep_until("nap", NAP_SECONDS)
        awake = ctx.step("awake", time.time)
        time.sleep(seconds)
        leave_effect(ctx, key, "sleeping", f"{awake - asleep:.3f}")


@task(idempotent=True, takes_context=True)
def waiting(ctx: TaskContext, key: str, seconds: float = 0.0) -> None:
    """Wait for a value, which the producer brings."""
    with noted(ctx, key, "waiting"):
        value = ctx.wait_for(WAIT)
        time.sleep(seconds)
        leave_effect(ctx, key, "waiting", value)


@task(idempotent=True, takes_context=True, priority=100)
def tick(ctx: TaskContext) -> None:
    """Run for one tick of the schedule."""
    _run(ctx, key_of(ctx.task_id, []), "tick", 0.0)


@task(idempotent=True, takes_context=True)
def ended(ctx: TaskContext, data: dict[str, Any]) -> None:
    """Receive the end of a batch."""
    _run(ctx, key_of(ctx.task_id, [data]), "ended", 0.0)


def by_kind(*functions: TaskFunction[..., Any]) -> dict[str, TaskFunction[..., Any]]:
    """Return task functions by their names, which are their kinds."""
    return {one.declaration.name.rpartition(".")[2]: one for one in functions}


_FUNCTIONS = by_kind(
    plain, flaky, doomed, idempotent, unique, laned, stepped, sleeping, waiting, atomic, increment
)


def function_of(kind: str, key: str) -> TaskFunction[..., Any]:
    """Return the task function of a task. With an event loop, half of the tasks that can be async are."""
    functions = _FUNCTIONS
    if SCENE.async_tasks and zlib.crc32(f"{key} is async?".encode()) % 2:
        from django_txtasks.contrib.verify import async_tasks

        functions = {**functions, **async_tasks.FUNCTIONS}
    return functions[kind].using(using=SCENE.alias)


def _run(ctx: TaskContext, key: str, kind: str, seconds: float, *, fails: bool = False) -> None:
    with noted(ctx, key, kind):
        time.sleep(seconds)
        if fails:
            raise RuntimeError("this attempt fails, as planned")
        leave_effect(ctx, key, kind)


def leave_effect(ctx: TaskContext, key: str, kind: str, value: str = "") -> None:
    """Write the row by which the account sees that a task has run."""
    Effect.objects.create(key=key, kind=kind, attempt=ctx.attempt, pid=os.getpid(), value=value)


@contextmanager
def noted(ctx: TaskContext, key: str, kind: str) -> Iterator[None]:
    """Note the start and the end of an attempt."""
    _note("start", ctx, key, kind)
    try:
        yield
    finally:
        _note("end", ctx, key, kind)


def _note(what: str, ctx: TaskContext, key: str, kind: str) -> None:
    journal.note(SCENE.journals, journal.RAN, what, key, kind, ctx.attempt)
