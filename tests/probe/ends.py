"""Async task functions whose ends are not simple. The same bodies run in threads and on an event loop."""

import asyncio
import contextlib
import gc
import os

from asgiref.sync import sync_to_async
from django.db import transaction

from django_txtasks import Retry, Snooze, TaskContext, task
from probe.models import Run

kept: list[object] = []
"""What a body of this process keeps after its end."""


async def note(key):
    await Run.objects.acreate(key=key, pid=os.getpid())


class Follower:
    """A tracer that does nothing."""

    name = "follower"

    @contextlib.contextmanager
    def enqueueing(self, call):
        yield {}

    @contextlib.contextmanager
    def running(self, run, headers):
        yield {}


@task(idempotent=True, max_attempts=2, takes_context=True, lane=lambda key, how: f"end:{key}")
async def hold_lane(ctx: TaskContext, key, how):
    """Ask for a pause of the lane at the first attempt, after what ``how`` names."""
    if how in ("orm", "pinned"):
        await note(f"{key} attempt {ctx.attempt}")
    if how == "pinned":
        await sync_to_async(transaction.set_autocommit)(False)
    if how == "cancelled":  # as a timer that the function has left would
        asyncio.get_running_loop().call_soon(asyncio.current_task().cancel)
    if ctx.attempt == 1:
        raise Retry(after=0, lane=True)


# -- generators ---------------------------------------------------------------------------------


async def numbers(key):
    """Yield numbers. The clean-up takes some rounds of the loop, and two queries."""
    try:
        for number in range(10):
            yield number
    finally:
        await asyncio.sleep(0.05)
        await note(f"{key} closing")
        await note(f"{key} closed")


async def nested(key):
    async for number in numbers(key):
        yield number


async def numbers_of_child(key):
    """Yield numbers, beside a child that ends only when it is told to."""
    is_over = asyncio.Event()

    async def flush():
        await is_over.wait()
        await note(f"{key} flushed")

    child = asyncio.ensure_future(flush())
    try:
        for number in range(10):
            yield number
    finally:
        is_over.set()
        await child
        await note(f"{key} closed")


async def broken(key):
    try:
        yield 2
    finally:
        raise OSError("cannot close")


async def endless(key):
    try:
        yield 2
    finally:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            kept.append("cancelled")


KINDS = {"nested": nested, "child": numbers_of_child, "broken": broken, "endless": endless}


@task(idempotent=True, takes_context=True, max_attempts=1, timeout=60)
async def leave_generator(ctx: TaskContext, key, how):
    """Leave an ``async for`` in one of many ways."""
    if how.endswith("by a child"):
        await _leave_in_child(key, is_kept=how == "kept by a child")
        return
    generator = KINDS.get(how, numbers)(key)
    if how == "global":
        kept.append(generator)
    if how == "cycle":
        cycle = [generator]
        cycle.append(cycle)
    async for number in generator:
        if number < 2:
            continue
        if how == "break":
            break
        if how == "snooze" and ctx.snoozes == 0:
            raise Snooze(after=1)
        if how == "error":
            raise ValueError("own error")
        return
    del generator
    gc.collect()


async def _leave_in_child(key, *, is_kept):
    async def iterate():
        async for number in numbers(key):
            if number == 2:
                if not is_kept:
                    return
                await asyncio.sleep(60)

    child = asyncio.ensure_future(iterate())
    kept.append(child)
    await (asyncio.sleep(0.1) if is_kept else child)


# -- own errors in place of a cancel ------------------------------------------------------------------


@task(idempotent=True, max_attempts=1)
async def answer_a_cancel(key, how):
    """Wait. When the attempt is cancelled, raise an error of its own."""
    await note(key)
    if how == "group":
        async with asyncio.TaskGroup() as group:  # Python 3.11
            group.create_task(_turn_into_error())
            await asyncio.sleep(60)
    elif how == "finally":
        try:
            await asyncio.sleep(60)
        finally:
            raise OSError("cannot close")
    elif how == "retry":
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            raise Retry("aborted") from None
    else:
        await _turn_into_error()


async def _turn_into_error():
    """Wait as a library does that has an error of its own for a cancel."""
    try:
        await asyncio.sleep(60)
    except asyncio.CancelledError:
        raise ConnectionError("the session was aborted") from None
