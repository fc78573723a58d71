"""Task functions of every kind."""

import ast
import asyncio
import contextvars
import functools
import logging
import os
import re
import signal
import sys
import threading
import time
import types
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta, timezone
from pathlib import Path

from asgiref.sync import sync_to_async
from django.contrib.admin.models import LogEntry
from django.db import connection, transaction
from orders.models import Order

from django_txtasks import (
    ClaimLost,
    Reject,
    Retry,
    Snooze,
    Suspended,
    TaskCancelled,
    TaskContext,
    TimedOut,
    WaitTimedOut,
    batch,
    enqueue_many,
    signals,
    subscribe,
    task,
)
from django_txtasks.core.working import worker
from django_txtasks.management import console
from probe import asking, deadly, ends, framework, many, on_loop, programs, sessions  # noqa: F401 -- a worker finds tasks in modules called tasks
from probe.models import Run


def ran(key: str, attempt: int = 0) -> None:
    """Note a run, independent of the task's end."""
    Run.objects.create(key=key, attempt=attempt, pid=os.getpid())


@task
def note(key="note"):
    ran(key)


@task(queue_name="mail", priority=7, max_attempts=2)
def mail(key="mail"):
    ran(key)


@task(intake=True, atomic=True)
def taken(key, more=None):
    ran(key)


@task(intake=True, priority=7, once_for=3600)
def taken_first(key):
    ran(key)


@task
def give(value):
    return value


@task(max_attempts=1)
def wait_for_another():
    return give.enqueue(1).result(5)


def _with_more(function):
    """Decorate a function so that it gets an argument that was not enqueued."""

    @functools.wraps(function)
    def wrapped(*args, **kwargs):
        return function("more", *args, **kwargs)

    return wrapped


@task
@_with_more
def whatever(more, *args, **kwargs):
    return [more, args, kwargs]


@task(takes_context=True)
def tell_context(ctx: TaskContext):
    ran("context", ctx.attempt)
    return {
        "id": str(ctx.task_id),
        "attempt": ctx.attempt,
        "queue": ctx.queue_name,
        "failures": ctx.failures,
    }


@task(takes_context=True)
def fail_until_scheduled(ctx: TaskContext):
    """Fail once, then tell for which instant it was scheduled."""
    if not ctx.failures:
        raise ValueError("once")
    return ctx.scheduled_for and ctx.scheduled_for.isoformat()


@task
async def note_async(key="async"):
    await asyncio.sleep(0)
    await sync_to_async(ran)(key)
    return "from async"


@task(max_attempts=2)
def fail_loudly(length):
    raise ValueError("loud \x00 \ud800 " * (length // 10))


@task
def give_much(length):
    return "x" * length


@task(max_attempts=3)
def fail(text="out of paper"):
    secret = "a local variable"  # noqa: F841 -- must not be in the traceback
    ran("fail")
    raise ValueError(text)


@task(max_attempts=1, timeout=60)
async def fail_async():
    await asyncio.sleep(0)
    raise ValueError("async")


@task(takes_context=True)
def fail_until(ctx: TaskContext, attempt):
    ran("fail_until", ctx.attempt)
    if ctx.attempt < attempt:
        raise ValueError(f"not before attempt {attempt}")


@task(takes_context=True)
def tell_progress(ctx: TaskContext, key, *said):
    """Say this, and wait until the key is released."""
    for one in said:
        ctx.progress(*one)
    ran(key)
    released.wait(60)


@task(takes_context=True, max_attempts=1)
def tell_progress_strangely(ctx: TaskContext, text):
    ctx.progress(*eval(text, {"nan": float("nan"), "inf": float("inf")}))  # noqa: S307 -- a test's own


@task(takes_context=True)
def retry_once(ctx: TaskContext, seconds):
    ran("retry_once", ctx.attempt)
    if ctx.attempt == 1:
        raise Retry("later", after=timedelta(seconds=seconds))


@task
def reject():
    ran("reject")
    raise Reject("the address does not exist")


@task
def leave_python():
    sys.exit(3)


@task(atomic=True)
def atomic_note(key="atomic"):
    ran(key)


def _journal(key, attempt):
    """Note a run outside the database, independent of the database."""
    file = os.open(os.environ["PROBE_JOURNAL"], os.O_WRONLY | os.O_APPEND)
    try:
        os.write(file, f"{key} {attempt}\n".encode())
    finally:
        os.close(file)


@task(atomic=True, takes_context=True)
def journal_atomic(ctx: TaskContext, key, seconds):
    ran(key, ctx.attempt)
    time.sleep(seconds)


@task(takes_context=True)
def journal_default(ctx: TaskContext, key, seconds):
    _journal(key, ctx.attempt)
    time.sleep(seconds)


@task(idempotent=True, takes_context=True)
def journal_idempotent(ctx: TaskContext, key, seconds):
    _journal(key, ctx.attempt)
    time.sleep(seconds)


@task(atomic=True)
def atomic_quick():
    pass


@task(atomic=True, max_attempts=1)
def atomic_note_once(key="atomic"):
    ran(key)


@task(atomic=True, max_attempts=1)
def atomic_broken_key():
    """Refer to a user that is not there, of which a database with deferred checks tells at COMMIT."""
    LogEntry.objects.create(user_id=1_000_000, action_flag=1, object_repr="")


@task(atomic=True, max_attempts=1)
def atomic_deallocate(secretly=False):
    with connection.cursor() as cursor:
        raw = cursor.cursor if secretly else cursor
        cursor.execute("SELECT 1")
        raw.execute("DEALLOCATE ALL")


@task(atomic=True, max_attempts=2)
def atomic_fail():
    ran("atomic_fail")
    raise ValueError("after the effect")


@task(atomic=True, takes_context=True)
def atomic_slow(ctx: TaskContext, key, seconds):
    ran(key, ctx.attempt)
    time.sleep(seconds)


@task
def slow(key="slow", seconds=60):
    ran(key)
    time.sleep(seconds)
    ran(f"{key} ended")


released = threading.Event()
"""For workers in the test's own process."""


@task
def until_released(key):
    ran(key)
    released.wait(60)


@task
def fail_when_released(key):
    ran(key)
    released.wait(60)
    raise ValueError("released")


@task(idempotent=True, takes_context=True)
def slow_once(ctx: TaskContext, key="slow once", seconds=60):
    """Slow in its first attempt only."""
    ran(key, ctx.attempt)
    if ctx.attempt == 1:
        print(f"{key} is at sleep", flush=True)
        time.sleep(seconds)


@task(idempotent=True, max_crashes=2)
def die():
    ran("die")
    os.kill(os.getpid(), signal.SIGKILL)


@task(idempotent=True)
def poison(key="poison"):
    """End the process as the kernel does when memory runs out, at each attempt."""
    ran(key)
    os.kill(os.getpid(), signal.SIGKILL)


@task(idempotent=True)
def neighbour(key, seconds=1.0):
    time.sleep(seconds)
    ran(key)


NOW: set[str] = set()
"""The tasks of ``beside`` that run in this process now."""


@task(idempotent=True)
def beside(key, seconds=0.2):
    """Note the most tasks that ran at the same time as this one."""
    NOW.add(key)
    try:
        most = len(NOW)
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            time.sleep(0.01)
            most = max(most, len(NOW))
        ran(key, attempt=most)
    finally:
        NOW.discard(key)


@task
def bad_retry():
    raise Retry(after="soon")


@task
def leave_a_block_open():
    transaction.atomic().__enter__()
    ran("in an open block")


@task
def enqueue_another(key):
    with transaction.atomic():
        note.enqueue(key)


@task
def leave_autocommit_off():
    transaction.set_autocommit(False)
    Run.objects.create(key="never committed")


def spin(seconds):
    """Keep Python busy: a sleep would not see an exception from outside before its end."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        time.sleep(0.001)


@task(timeout=1, max_attempts=2)
def spin_too_long(key="spin"):
    ran(key)
    spin(30)
    ran(f"{key} ended")


@task(timeout=1)
def clean_up(key):
    try:
        spin(30)
    except TimedOut:
        ran(key)


@task(timeout=1, max_attempts=1)
async def wait_too_long(key):
    try:
        await asyncio.sleep(30)
    except asyncio.CancelledError:
        await sync_to_async(ran)(key)
        raise


@task(timeout=1, atomic=True, max_attempts=1)
def atomic_too_long(key):
    ran(key)
    spin(30)


@task(timeout=2, max_attempts=1)
def hang(key="hang"):
    """In C code, which no exception ends."""
    ran(key)
    time.sleep(60)


@task(timeout=60)
def in_time(key="in time"):
    spin(0.05)
    ran(key)


@task(takes_context=True, max_attempts=1)
def check_after(ctx: TaskContext, key):
    ran(key)
    released.wait(60)
    ctx.check()
    ran(f"{key} checked")


@task
def tell(event):
    ran(f"{event['event']} {event['task_name'].rsplit('.')[-1]}", event["attempt"])
    return event


@task(on_success=tell, on_retry=tell, on_failure=tell, takes_context=True, max_attempts=3)
def told(ctx: TaskContext, value, failures=0):
    if ctx.attempt <= failures:
        raise ValueError(value)
    return value


@task(on_success=tell, atomic=True)
def told_atomic(value):
    return value


@task
def add_up(numbers):
    ran(f"sum {numbers if numbers is None else sum(numbers)}")
    return numbers


@task
def tell_size(texts):
    ran(f"{len(texts)} of {len(texts[0])}")


@task(on_success=add_up.with_result(), max_attempts=1)
def numbers(values):
    if values == "none":
        raise ValueError(values)
    return values


@task(on_success=add_up.with_result(), atomic=True)
def numbers_atomic(values):
    return values


@task(on_failure=tell)
def told_of_an_end(key):
    ran(key)


@task(on_failure=tell)
def told_of_a_crash(key):
    ran(key)
    time.sleep(60)


@task
def undo(key, *, amount):
    ran(f"undo {key} {amount}")


@task(compensate=undo)
def pay(key, *, amount):
    ran(key)
    time.sleep(60)


@task(compensate=undo, idempotent=True)
def try_to_pay(key, *, amount):
    ran(key)


@task(compensate=undo, max_attempts=1)
def pay_too_much(key, *, amount):
    raise ValueError("too much")


@task(compensate=undo, timeout=0.2, max_attempts=3)
def hang_paying(key, *, amount):
    """Wait in C code, where no exception gets through."""
    ran(key)
    released.wait(60)


@task(compensate=undo, idempotent=True, timeout=0.2, max_attempts=2, max_crashes=3)
def hang_trying_to_pay(key, *, amount):
    ran(key)
    released.wait(60)


@task(atomic=True, timeout=0.2, max_attempts=1)
def hang_in_transaction(key):
    ran(key)
    released.wait(60)


@task
def doze(key, seconds):
    """Touch the database in the beginning only."""
    ran(key)
    time.sleep(seconds)


@task(compensate=undo)
def doze_or_undo(key, *, amount):
    ran(key)
    time.sleep(amount)


@task
def notice(event):
    ran(f"notice {event['task_name'].rsplit('.')[-1]}")


@task(max_attempts=1)
def failing_notice(event):
    ran("failing notice")
    raise ValueError("nobody can be told")


def plain():
    """Declared by tests, in one way after another."""


@task(idempotent=True)
def nothing():
    pass


@task(idempotent=True)
def quick(key="quick"):
    ran(key)


DOOR = threading.Event()


@task(idempotent=True)
def at_the_door(key):
    """Run briefly; a task called "held" waits until the test opens the door."""
    ran(key)
    if key == "held":
        DOOR.wait(60)


@task
def break_the_transaction():
    with connection.cursor() as cursor:
        cursor.execute("SELECT nothing FROM nowhere")


@task
def write_durably(key):
    with transaction.atomic(durable=True):
        ran(key)


@task
def enqueue_itself():
    enqueue_itself.enqueue()


@task
def log_something(text):
    try:
        1 / 0  # noqa: B018 -- for its error
    except ZeroDivisionError:
        logging.getLogger(__name__).warning(text, extra={"shelf": 3}, exc_info=True)


@task(max_attempts=1)
def log_lines(texts, fails=True, level="WARNING", name="shop.orders"):
    for text in texts:
        logging.getLogger(name).log(logging.getLevelName(level), text)
    if fails:
        raise ValueError("after the log")


@task(max_attempts=1)
def log_what_cannot_be_formatted():
    class Strange:
        def __str__(self):
            raise RuntimeError("no text")

    log = logging.getLogger("shop.orders")
    log.warning("%s", Strange())
    log.warning("%d of %d", *[1])
    log.warning("the next one")
    raise ValueError("after the log")


def _deeper(depth):
    return _deeper(depth - 1) if depth else released.wait(60)


@task
def wait_deep(depth, secret=""):
    _deeper(depth)


def _with_odd_name():
    """Make a function whose name and file try to control a terminal and a page."""
    code = (lambda: released.wait(60)).__code__
    name = "<script>\x1b[2J\n"
    return types.FunctionType(code.replace(co_name=name, co_filename=f"/{name}.py"), globals())


@task
def wait_with_odd_name():
    _with_odd_name()()


@task
def wait_for_threads():
    with ThreadPoolExecutor(1, thread_name_prefix="helper") as pool:
        pool.submit(until_released, "pool").result()


@task
def sleep_in_c(key):
    ran(key)
    time.sleep(5)


@task
def keep_the_gil(key):
    ran(key)
    re.match(r"(a+)+$", "a" * 60 + "b")


@task
async def keep_the_gil_of_the_loop(key):
    await sync_to_async(ran)(key)
    re.match(r"(a+)+$", "a" * 60 + "b")


@task(max_attempts=1)
def log_from_threads():
    log = logging.getLogger("shop.orders")
    in_context = contextvars.copy_context()
    for thread in (
        threading.Thread(target=log.warning, args=["without the context"]),
        threading.Thread(target=in_context.run, args=[log.warning, "in the context"]),
    ):
        thread.start()
        thread.join()
    raise ValueError("after the log")


@task(max_attempts=1)
async def log_async(text):
    logging.getLogger("shop.orders").warning(text)
    await asyncio.gather(asyncio.to_thread(logging.getLogger("shop.orders").warning, "in a thread"))
    raise ValueError("after the log")


@task
def hang_the_log():
    """Block every later log line of this process, without a long wait for it."""

    class Hanging(logging.Handler):
        def emit(self, record):
            threading.Event().wait()

    signals.FLUSH_SECONDS = console.LAST_WORDS_SECONDS = 0.1
    logging.getLogger("django_txtasks").addHandler(Hanging())


@task(idempotent=True, takes_context=True)
def stay(ctx: TaskContext):
    """Let the log hang, for hours, and note if this attempt goes on for long after the next one has begun."""
    ran("stay", ctx.attempt)
    if ctx.attempt == 1:
        hang_the_log.function()
        signals.FLUSH_SECONDS, worker.LOG_FIRST_SECONDS = 3600.0, 0.1
        while not Run.objects.filter(key="stay", attempt=2).exists():
            time.sleep(0.02)
        time.sleep(2.0)  # more than that moment
        ran("twice for long")


@task(idempotent=True, on_retry=tell, on_failure=tell)
def rest(key):
    """Wait for the test; may run again."""
    ran(key)
    released.wait(60)


@task(timeout=0.2, max_attempts=1)
def rest_too_long():
    """Wait in C code, where no exception gets through."""
    released.wait(60)


@task(takes_context=True)
def until_cancelled(ctx: TaskContext, key):
    ran(key)
    end = time.monotonic() + 60
    while not ctx.cancelled and time.monotonic() < end:
        time.sleep(0.02)
    ran(f"{key} saw it")


@task(takes_context=True, atomic=True)
def atomic_until_cancelled(ctx: TaskContext, key):
    ran(key)
    end = time.monotonic() + 60
    while time.monotonic() < end:
        ctx.check()
        time.sleep(0.02)


@task
async def sleep_async(key):
    await sync_to_async(ran)(key)
    try:
        await asyncio.sleep(60)
    except asyncio.CancelledError:
        await sync_to_async(ran)(f"{key} cleaned up")
        raise


@task(interruptible=True)
def spin_interruptibly(key):
    ran(key)
    spin(60)
    ran(f"{key} ended")


@task
def cancel_itself():
    raise TaskCancelled("not needed any more")


@task(takes_context=True, max_snoozes=3, max_attempts=1)
def snooze(ctx: TaskContext, key, times):
    ran(key, ctx.attempt)
    if ctx.snoozes < times:
        raise Snooze(after=1)
    return ctx.snoozes


@task(atomic=True, takes_context=True)
def snooze_atomic(ctx: TaskContext, key):
    ran(key, ctx.attempt)
    if not ctx.snoozes:
        raise Snooze(after=timedelta(seconds=1))


def after_a_while(failures, error):
    """A task's own waits."""
    return {1: 0, 2: timedelta(seconds=30)}.get(failures, "soon" if "text" in str(error) else 9)


@task(backoff=after_a_while, max_attempts=9)
def fail_at_its_own_pace(text=""):
    raise ValueError(text)


def shelf(key, shelf="a", **_):
    """The unique key of ``tidy``."""
    return f"shelf {shelf}" if shelf else None


@task(unique_key=shelf, idempotent=True)
def tidy(key, shelf="a"):
    ran(key)
    return key


@task(unique_key="only one", keep="oldest")
def tidy_oldest(key):
    ran(key)


@task(unique_key="settles", settle=timedelta(seconds=1))
def tidy_later(key):
    ran(key)


@task(unique_key="fails", max_attempts=2, on_failure=tell, on_success=tell)
def tidy_told(key, fails=False):
    ran(key)
    if fails:
        raise ValueError(key)


@task(unique_key="slow", idempotent=True)
def tidy_slowly(key, seconds=60):
    ran(key)
    released.wait(seconds)


@task(unique_key="storm", idempotent=True, max_attempts=50, max_crashes=50, takes_context=True)
def tidy_in_a_storm(ctx: TaskContext, key, fails=False):
    time.sleep(0.005)
    if fails and ctx.failures < 2:
        raise ValueError(key)


# -- lanes ----------------------------------------------------------------------------------------


@task(lane="api", idempotent=True)
def call_api(key="api", seconds=0.0):
    ran(key)
    time.sleep(seconds)
    ran(f"{key} ended")


@task(lane="api", atomic=True)
def call_api_atomically(key="api"):
    ran(key)


@task(lane=lambda key, tenant="a": f"tenant:{tenant}" if tenant else None)
def serve_tenant(key, tenant="a"):
    ran(key)


@task(lane="api")
def api_until_released(key):
    ran(key)
    released.wait(60)


@task(lane="api", takes_context=True)
def asked_to_wait(ctx: TaskContext, key, seconds):
    ran(key, ctx.attempt)
    if ctx.attempt == 1:
        raise Retry("429", after=seconds, lane=True)


@task(lane="api", unique_key=lambda key: "one")
def call_api_once(key):
    ran(key)


@task(lane="api")
def hook_in_a_lane(event):
    ran(f"{event['event']} in a lane")


@task(idempotent=True)
def nap(seconds):
    time.sleep(seconds)


@task(once=lambda event, kind="paid": f"{kind} {event}" if event else None)
def receive(event, kind="paid"):
    ran(f"{kind} {event}")


# -- steps ----------------------------------------------------------------------------------------


def effect(key, value=None, error=None):
    """Record the effect of a step."""
    ran(key)
    if error:
        raise ValueError(error)
    return value


@task(takes_context=True, max_attempts=9)
def two_steps(ctx: TaskContext, key, value="1"):
    """Fail between the steps, once; the first one's value is written as in Python."""
    first = ctx.step("first", effect, f"{key} first", ast.literal_eval(value))
    if ctx.attempt == 1:
        raise ValueError(repr(first))
    return [repr(first), ctx.step("second", effect, key=f"{key} second", value=2)]


@task(takes_context=True, idempotent=True)
async def two_steps_async(ctx: TaskContext, key):
    first = await ctx.astep("first", effect, f"{key} first", 1)
    if ctx.attempt == 1:
        raise ValueError(repr(first))
    return [repr(first), await ctx.astep("second", effect, f"{key} second", 2)]


async def effect_async():
    return 1


def step_in_a_step(ctx):
    return ctx.step("inner", effect, "inner")


def _with_autocommit_off(ctx):
    transaction.set_autocommit(False)
    try:
        ctx.step("autocommit off", effect, "autocommit off")
    finally:
        transaction.rollback()
        transaction.set_autocommit(True)


WRONG_STEPS = {
    "in a block": lambda ctx: transaction.atomic(ctx.step)("in a block", effect, "in a block"),
    "in a step": lambda ctx: ctx.step("outer", step_in_a_step, ctx),
    "twice": lambda ctx: [ctx.step("one", effect, "one"), ctx.step("one", effect, "two")],
    "without a name": lambda ctx: ctx.step(effect, "unnamed"),
    "long name": lambda ctx: ctx.step("n" * 101, effect, "long"),
    "async": lambda ctx: ctx.step("async", effect_async),
    "no JSON": lambda ctx: ctx.step("no JSON", effect, "no JSON", {1, 2}),
    "autocommit off": _with_autocommit_off,
    "key": lambda ctx: ctx.key(""),
}


@task(takes_context=True, max_attempts=1)
def wrong_step(ctx: TaskContext, how):
    WRONG_STEPS[how](ctx)


@task(takes_context=True, max_attempts=1, atomic=True)
def atomic_step(ctx: TaskContext):
    ctx.step("atomic", effect, "atomic")


@task(takes_context=True)
def steps_of_keys(ctx: TaskContext, names):
    if ctx.attempt == 1:
        ctx.step("keys", lambda: [ctx.key(name) for name in names])
        raise ValueError("again")
    return [ctx.step("keys", list), [ctx.key(name) for name in names]]


# -- waits ----------------------------------------------------------------------------------------


@task(takes_context=True, max_attempts=1, idempotent=True, expires=3600)
def ask(ctx: TaskContext, key, timeout=None):
    """Wait for an answer. Returns it, and the number of the attempt."""
    ran(key)
    ctx.step("asked", effect, f"{key} asked", ctx.token("answer"))
    try:
        answer = ctx.wait_for("answer", timeout=timeout)
    except WaitTimedOut:
        answer = "nobody"
    return [answer, ctx.attempt]


@task(takes_context=True, max_attempts=1, unique_key="same")
def ask_once(ctx: TaskContext, key):
    return [key, ctx.wait_for("answer")]


@task(takes_context=True, max_attempts=1)
async def ask_async(ctx: TaskContext, key):
    await ctx.asleep_until("moment", 0)
    return [await ctx.await_for("answer", timeout=timedelta(days=1)), ctx.attempt]


if sys.version_info < (3, 11):
    from exceptiongroup import BaseExceptionGroup  # pytest needs it there

ERRORS = {
    "retry": lambda: Retry("not yet", after=timedelta(hours=1)),
    "snooze": lambda: Snooze(after=timedelta(hours=1)),
    "suspended": lambda: Suspended("never brought"),
    "cancelled": lambda: TaskCancelled("enough"),
    "reject": lambda: Reject("never"),
    "lost": lambda: ClaimLost("elsewhere"),
    "foreign": lambda: ValueError("no paper"),
}


@task(takes_context=True, idempotent=True)
async def raise_in_task_group(ctx: TaskContext, name, *others):
    """Raise the error, or wait, in a child task of a TaskGroup, beside one that would continue.

    At its cancel, each of the others raises its error, too.
    """

    async def child():
        if name == "suspended":
            await ctx.asleep_until("an hour", timedelta(hours=1))
        raise ERRORS[name]()

    async def other(name):
        try:
            await asyncio.sleep(60)
        finally:
            raise ERRORS[name]()

    async with asyncio.TaskGroup() as group, asyncio.TaskGroup() as inner:
        group.create_task(asyncio.sleep(60))
        for one in others:
            inner.create_task(other(one))
        await asyncio.sleep(0)
        inner.create_task(child())


def wait_in_a_group(ctx):
    try:
        ctx.sleep_until("an hour", timedelta(hours=1))
    except Suspended as suspended:
        return suspended


@task(takes_context=True, idempotent=True)
def raise_group(ctx: TaskContext, *names):
    """Raise a group of these errors in a group, as libraries that run several things do."""
    first, *others = [
        wait_in_a_group(ctx) if name == "suspended" else ERRORS[name]() for name in names
    ]
    nested = BaseExceptionGroup("inside", others) if others else None
    raise BaseExceptionGroup("outside", [one for one in (first, nested) if one is not None])


@task(takes_context=True, max_attempts=1)
def ask_twice(ctx: TaskContext):
    return [ctx.wait_for("first"), ctx.wait_for("second"), ctx.attempt]


@task(takes_context=True, max_attempts=1)
def sleep_between(ctx: TaskContext, key, seconds):
    """Two steps with a pause between them."""
    ctx.step("before", effect, f"{key} before")
    try:
        ctx.sleep_until("pause", timedelta(seconds=seconds))
    except Exception:
        ran(f"{key} caught")
    ctx.step("after", effect, f"{key} after")
    return ctx.attempt


WRONG_WAITS = {
    "in a block": lambda ctx: transaction.atomic(ctx.wait_for)("in a block"),
    "twice": lambda ctx: [ctx.step("one", effect, "one"), ctx.sleep_until("one", 1)],
    "without a name": lambda ctx: ctx.sleep_until(timedelta(seconds=1), "pause"),
    "naive": lambda ctx: ctx.sleep_until("naive", datetime(2030, 1, 1)),
    "no time": lambda ctx: ctx.sleep_until("no time", "tomorrow"),
    "unix": lambda ctx: ctx.sleep_until("unix", 1_800_000_000),
    "a date as timeout": lambda ctx: ctx.wait_for(
        "date", timeout=datetime(2030, 1, 1, tzinfo=timezone.utc)
    ),
    "token": lambda ctx: ctx.token(""),
}


@task(takes_context=True, max_attempts=1)
def wrong_wait(ctx: TaskContext, how):
    WRONG_WAITS[how](ctx)


@task(takes_context=True, max_attempts=1, atomic=True)
def atomic_wait(ctx: TaskContext):
    ctx.wait_for("answer")


# -- events ---------------------------------------------------------------------------------------


@subscribe("probe.happened")
@task(max_attempts=3)
def hear(key, fails=False):
    ran(f"{key} heard")
    if fails:
        raise ValueError(key)


@subscribe("probe.happened")
@subscribe("probe.also")
@task(atomic=True, priority=7)
def hear_too(key, fails=False):
    ran(f"{key} heard, too")


@task(idempotent=True, max_attempts=50, max_crashes=50)
def tell_of_batch(event):
    outcome = "failed" if event["failed"] else "fine"
    ran(f"{event['event']} {event['name']} {outcome}")
    return event


@task(takes_context=True, idempotent=True, max_crashes=50)
def grow(ctx: TaskContext, depth):
    """Add two members, which add two more, for a number of levels."""
    ran(f"member {depth}")
    if depth:
        with ctx.batch():
            grow.enqueue(depth - 1)
            enqueue_many([(grow, [depth - 1])])


@task(takes_context=True, atomic=True)
def grow_atomic(ctx: TaskContext, depth):
    ran(f"member {depth}")
    if depth:
        with ctx.batch():
            grow_atomic.enqueue(depth - 1)


@task(idempotent=True, max_crashes=50)
def fan_out(levels=1, member="note"):
    """Open a batch whose one member opens the next one, for some levels; the last member is another task."""
    with batch(name=f"level {levels}"):
        _last_member(member) if levels == 1 else fan_out.enqueue(levels - 1, member)


@task(idempotent=True, max_crashes=50)
def fan_out_in_stages(stages=1, member="note"):
    """Open a batch whose hook opens the next one, for a number of stages; the last hook is another task."""
    hook = open_next_stage if stages > 1 else tell_of_batch
    with batch(name=f"{stages} {member}", on_success=hook):
        _last_member(member) if stages == 1 else note.enqueue(f"stage {stages}")


@task(idempotent=True, max_crashes=50)
def open_next_stage(event):
    stages, member = event["name"].split()
    fan_out_in_stages(int(stages) - 1, member)


def _last_member(member):
    {"note": note, "fail": fail_once}[member].enqueue()


@task(max_attempts=1)
def fail_once():
    raise ValueError("a member fails")


@task(atomic=True)
def fan_out_atomic():
    fan_out()


@task(idempotent=True)
async def fan_out_async():
    await sync_to_async(fan_out)()


@task(idempotent=True)
def fan_out_elsewhere():
    """Open a batch in another database than that of the task."""
    with batch(using="second"):
        note.using(using="second").enqueue()


@task(idempotent=True, max_crashes=50)
def step_of_batch(key):
    ran(key)
    time.sleep(0.02)


@task
def fragile():
    """Dead if its worker is killed meanwhile."""
    time.sleep(1)


def _split(end):
    """Fork without care; return in both processes, or end as it says in the child."""
    child = os.fork()
    if not child:
        if end == "raise":
            raise ZeroDivisionError
        if end == "exit":
            sys.exit(7)
        return "child"
    return ["parent", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])]


@task(max_attempts=1)
def fork(key, end):
    found = _split(end)
    if found != "child":
        ran(f"{key} parent")
    return found


@task(max_attempts=1)
async def fork_async(key, end):
    found = _split(end)
    if found != "child":
        await sync_to_async(ran)(f"{key} parent")
    return found


@task(atomic=True, max_attempts=1)
def fork_atomic(key, end):
    ran(f"{key} before")
    found = _split(end)
    if found != "child":
        ran(f"{key} parent")
    return found


@task(max_attempts=1, idempotent=True)
def fail_while_away(key):
    """Fail as long as the file exists that the environment names."""
    if Path(os.environ["PROBE_AWAY"]).exists():
        raise ConnectionError(f"no answer for {key}")


# -- links ----------------------------------------------------------------------------------------


@task(takes_context=True)
def link_order(ctx: TaskContext, order_id):
    """Link in each of two attempts."""
    ctx.link(Order.objects.get(pk=order_id))
    if not ctx.failures:
        raise Retry("once more", after=1)


@task(takes_context=True)
async def link_order_async(ctx: TaskContext, order_id):
    await ctx.alink(await Order.objects.aget(pk=order_id))


@task(takes_context=True, max_attempts=1)
def link_anything(ctx: TaskContext, what):
    order = Order(customer="Ada")
    if what == "elsewhere":
        order.pk, order._state.adding, order._state.db = 1, False, "second"
    ctx.link(order if what in ("unsaved", "elsewhere") else what)
