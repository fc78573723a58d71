"""The task functions of the grocery. Each release has other names for the functions declared with ``renamed``.

The first argument of each is a key. Each run adds a line, ``KIND KEY TASK``, to the file GROCERY_RUNS before it
does anything else, and rows of ``Effect`` to the database.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from typing import Any

from asgiref.sync import sync_to_async
from django.conf import settings

from django_txtasks import (
    Item,
    Reject,
    Snooze,
    TaskContext,
    WaitTimedOut,
    periodic,
    subscribe,
    task,
)
from grocery.models import Effect, Token

SAFE = {"max_attempts": 20}
"""Options of tasks that shall survive each fault of the database: many failures."""
WAIT_SECONDS = 4
TICKS_A_DAY = 10
MOST_FAILURES = 3


def renamed(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """Declare a function under the name of this release; it also runs the tasks of all earlier names."""

    def declare(function: Callable[..., Any]) -> Any:
        names = [f"{function.__name__}_{release}" for release in range(settings.RELEASE + 1)]
        function.__name__ = function.__qualname__ = names[-1]
        was = [f"{__name__}.{name}" for name in names[:-1]]
        globals()[names[-1]] = declared = task(was=was, **options)(function)
        return declared

    return declare


def begin(kind: str, key: object, ctx: Any) -> None:
    """Note the beginning of a run, whatever happens to the database."""
    file = os.open(os.environ["GROCERY_RUNS"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(file, f"{kind}\t{key}\t{ctx.task_id}\n".encode())
    os.close(file)


def act(kind: str, key: object, number: int = 0) -> None:
    """Have an effect in the database."""
    Effect.objects.create(kind=kind, key=str(key), number=number)


def run(kind: str, key: object, ctx: Any, seconds: float = 0.0) -> None:
    """Begin, have an effect, and take some time."""
    begin(kind, key, ctx)
    act(kind, key)
    time.sleep(seconds)


# -- the policies for crashes, and what follows a task ------------------------------------------------


@task(atomic=True, takes_context=True, **SAFE)
def book(ctx: TaskContext, key: str) -> None:
    run("atomic", key, ctx, 0.2)


@renamed(atomic=True, takes_context=True, **SAFE)
def thank(ctx: TaskContext, key: str) -> None:
    run("thanks", key, ctx)


@renamed(idempotent=True, takes_context=True, on_success=thank.with_result(), **SAFE)
def ship(ctx: TaskContext, key: str) -> str:
    run("idempotent", key, ctx, 0.3)
    return key


@task(takes_context=True, **SAFE)
def call(ctx: TaskContext, key: str) -> None:
    run("default", key, ctx, 0.4)


@task(atomic=True, takes_context=True, **SAFE)
def refund(ctx: TaskContext, key: str) -> None:
    run("refund", key, ctx)


@task(compensate=refund, takes_context=True, **SAFE)
def charge(ctx: TaskContext, key: str) -> None:
    run("compensated", key, ctx, 0.8)


@renamed(atomic=True, takes_context=True, **SAFE)
def hear(ctx: TaskContext, event: dict[str, Any]) -> None:
    run("heard", event["args"][0], ctx)


@task(atomic=True, takes_context=True, max_attempts=MOST_FAILURES, on_failure=hear)
def fail(ctx: TaskContext, key: str) -> None:
    begin("failing", key, ctx)
    raise ValueError(key)


@task(atomic=True, takes_context=True, **SAFE)
def retry(ctx: TaskContext, key: str) -> None:
    run("retrying", key, ctx)
    if ctx.attempt < 3:
        raise ValueError(key)


@task(idempotent=True, takes_context=True, timeout=0.5, max_attempts=2)
def hang(ctx: TaskContext, key: str) -> None:
    begin("timed out", key, ctx)
    while True:
        time.sleep(0.05)


@task(idempotent=True, takes_context=True, queue_name="mail", priority=-5, **SAFE)
def mail(ctx: TaskContext, key: str) -> None:
    run("mail", key, ctx, 0.3)


# -- time, keys, lanes, groups ------------------------------------------------------------------------


@task(idempotent=True, takes_context=True, **SAFE)
def snooze(ctx: TaskContext, key: str) -> None:
    begin("snoozing", key, ctx)
    if ctx.snoozes < 2:
        raise Snooze(after=1)
    act("snoozing", key)


@task(idempotent=True, takes_context=True, **SAFE)
def later(ctx: TaskContext, key: str) -> None:
    run("later", key, ctx, 0.3)


def _article(article: str, **_: object) -> str:
    return article


@renamed(unique_key=_article, settle=1, idempotent=True, takes_context=True, **SAFE)
def reindex(ctx: TaskContext, article: str, number: int) -> None:
    begin("unique", article, ctx)
    act("unique", article, number)
    time.sleep(0.3)


@renamed(once=_article, once_for=7200, idempotent=True, takes_context=True, **SAFE)
def receive(ctx: TaskContext, article: str) -> None:
    run("once", article, ctx)


def _till(key: str, till: int) -> str:
    return f"till:{till}"


@task(lane=_till, idempotent=True, takes_context=True, **SAFE)
def print_bill(ctx: TaskContext, key: str, till: int) -> None:
    run("lane", key, ctx, 0.3)


@renamed(atomic=True, takes_context=True, **SAFE)
def tell(ctx: TaskContext, event: dict[str, Any]) -> None:
    begin("told", event["batch_id"], ctx)
    act("told", event["batch_id"], int(event["failed"]))


@task(idempotent=True, takes_context=True, **SAFE)
def pack(ctx: TaskContext, key: str, is_broken: bool) -> None:
    run("member", key, ctx)
    if is_broken:
        raise Reject("broken")


@task(many=20, idempotent=True, **SAFE)
def label(items: list[Item[list[Any]]]) -> None:
    for item in items:
        key, is_torn = item.value
        begin("many", key, item)
        with item:
            act("many", key)
            if is_torn:
                raise Reject("torn")


@subscribe("order.paid")
@task(atomic=True, takes_context=True, **SAFE)
def keep_receipt(ctx: TaskContext, key: str) -> None:
    run("receipt", key, ctx)


@subscribe("order.paid")
@renamed(idempotent=True, takes_context=True, **SAFE)
def tell_carrier(ctx: TaskContext, key: str) -> None:
    run("carrier", key, ctx)


# -- steps and waits ----------------------------------------------------------------------------------


def _ask(key: str, token: str) -> None:
    act("step 2", key)
    Token.objects.create(key=key, token=token, is_silent=int(key.rpartition("-")[2]) % 5 == 0)


@renamed(idempotent=True, takes_context=True, **SAFE)
def approve(ctx: TaskContext, key: str) -> str:
    begin("steps", key, ctx)
    ctx.step("one", act, "step 1", key)
    ctx.sleep_until("pause", 1)
    ctx.step("two", _ask, key, ctx.token("answer"))
    try:
        answer = str(ctx.wait_for("answer", timeout=WAIT_SECONDS))
    except WaitTimedOut:
        answer = "silence"
    ctx.step("three", act, "step 3", key)
    return answer


@task(idempotent=True, takes_context=True, **SAFE)
async def deliver(ctx: TaskContext, key: str) -> str:
    await sync_to_async(begin)("async steps", key, ctx)
    await ctx.astep("one", act, "step 1", key)
    await ctx.asleep_until("pause", 1)
    await ctx.astep("two", act, "step 2", key)
    return key


# -- on the loop --------------------------------------------------------------------------------------


@renamed(idempotent=True, takes_context=True, **SAFE)
async def ask_supplier(ctx: TaskContext, key: str) -> str:
    begin("async", key, ctx)
    await asyncio.sleep(1.5)
    await Effect.objects.acreate(kind="async", key=key)
    return key


@task(takes_context=True, **SAFE)
async def pay_supplier(ctx: TaskContext, key: str) -> None:
    begin("async default", key, ctx)
    await Effect.objects.acreate(kind="async default", key=key)
    await asyncio.sleep(0.2)


if settings.RELEASE % 2:

    @task(idempotent=True, takes_context=True, **SAFE)
    async def count_stock(ctx: TaskContext, key: str) -> None:
        begin("flips", key, ctx)
        await Effect.objects.acreate(kind="flips", key=key)

else:

    @task(idempotent=True, takes_context=True, **SAFE)
    def count_stock(ctx: TaskContext, key: str) -> None:
        run("flips", key, ctx)


# -- schedules ----------------------------------------------------------------------------------------


@periodic(
    every=max(1, settings.DAY_SECONDS // TICKS_A_DAY),
    name="tick",
    args=["tick"],
    catch_up="all",
)
@task(atomic=True, takes_context=True, priority=50, **SAFE)
def tick(ctx: TaskContext, name: str) -> None:
    assert ctx.scheduled_for is not None
    run(name, int(ctx.scheduled_for.timestamp()), ctx)


@periodic(every=settings.DAY_SECONDS, args=["night"], catch_up="all")
@renamed(atomic=True, takes_context=True, priority=50, **SAFE)
def close_books(ctx: TaskContext, name: str) -> None:
    assert ctx.scheduled_for is not None
    run(name, int(ctx.scheduled_for.timestamp()), ctx, 0.5)
