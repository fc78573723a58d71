"""The async task functions of a storm with an event loop: most kinds of ``tasks``, under the same names."""

from __future__ import annotations

import asyncio
import time

from asgiref.sync import sync_to_async

from django_txtasks import TaskContext, task
from django_txtasks.contrib.verify.plan import NAP_SECONDS, STEPS
from django_txtasks.contrib.verify.project import LANE, WAIT
from django_txtasks.contrib.verify.tasks import by_kind, leave_effect, noted, shelf


@task(takes_context=True)
async def plain(ctx: TaskContext, key: str, seconds: float = 0.0) -> None:
    """Run at most once."""
    await _run(ctx, key, "plain", seconds)


@task(takes_context=True)
async def flaky(ctx: TaskContext, key: str, seconds: float = 0.0) -> None:
    """Fail first, then succeed."""
    await _run(ctx, key, "flaky", seconds, fails=ctx.failures == 0)


@task(max_attempts=1, takes_context=True)
async def doomed(ctx: TaskContext, key: str, seconds: float = 0.0) -> None:
    """Fail and become dead."""
    await _run(ctx, key, "doomed", seconds, fails=True)


@task(idempotent=True, takes_context=True)
async def idempotent(ctx: TaskContext, key: str, seconds: float = 0.0) -> None:
    """Run again after a crash."""
    await _run(ctx, key, "idempotent", seconds)


@task(idempotent=True, takes_context=True, unique_key=shelf, keep="oldest")
async def unique(ctx: TaskContext, key: str, seconds: float = 0.0) -> None:
    """Run once for all tasks of its key that wait when it is claimed."""
    await _run(ctx, key, "unique", seconds)


@task(idempotent=True, takes_context=True, lane=LANE)
async def laned(ctx: TaskContext, key: str, seconds: float = 0.0) -> None:
    """Run beside a limited number of others of its lane, of both kinds."""
    await _run(ctx, key, "laned", seconds)


@task(idempotent=True, takes_context=True)
async def stepped(ctx: TaskContext, key: str, seconds: float = 0.0) -> None:
    """Write one row in each step, which must exist exactly once; fail once after the first step."""
    with noted(ctx, key, "stepped"):
        for step in STEPS:
            await ctx.astep(step, leave_effect, ctx, key, step)
            if ctx.failures == 0:
                raise RuntimeError("this attempt fails, as planned")
            await asyncio.sleep(seconds / len(STEPS))


@task(idempotent=True, takes_context=True)
async def sleeping(ctx: TaskContext, key: str, seconds: float = 0.0) -> None:
    """Sleep, and continue when the time has come."""
    with noted(ctx, key, "sleeping"):
        asleep = await ctx.astep("asleep", time.time)
        await ctx.asleep_until("nap", NAP_SECONDS)
        awake = await ctx.astep("awake", time.time)
        await asyncio.sleep(seconds)
        await sync_to_async(leave_effect)(ctx, key, "sleeping", f"{awake - asleep:.3f}")


@task(idempotent=True, takes_context=True)
async def waiting(ctx: TaskContext, key: str, seconds: float = 0.0) -> None:
    """Wait for a value, which the producer brings."""
    with noted(ctx, key, "waiting"):
        value = await ctx.await_for(WAIT)
        await asyncio.sleep(seconds)
        await sync_to_async(leave_effect)(ctx, key, "waiting", value)


FUNCTIONS = by_kind(plain, flaky, doomed, idempotent, unique, laned, stepped, sleeping, waiting)
"""The functions by kind. An atomic task cannot be async."""


async def _run(
    ctx: TaskContext, key: str, kind: str, seconds: float, *, fails: bool = False
) -> None:
    with noted(ctx, key, kind):
        await asyncio.sleep(seconds)
        if fails:
            raise RuntimeError("this attempt fails, as planned")
        await sync_to_async(leave_effect)(ctx, key, kind)
