"""Tasks declared with Django's own decorator."""

import asyncio
import sys
import threading

from asgiref.sync import sync_to_async

from django_txtasks import Reject, Retry, Snooze, Suspended, TaskCancelled, enqueue_task
from django_txtasks.backends import task
from probe.models import Run

if sys.version_info < (3, 11):
    from exceptiongroup import BaseExceptionGroup  # pytest needs it there


def ran(key, attempt=0):
    """Note a run, independent of the task's end."""
    Run.objects.create(key=key, attempt=attempt)


@task
def add(a, b=1):
    return a + b


@task
def give(value):
    return value


@task
def note(key="note"):
    ran(key)


@task(priority=5, queue_name="mail")
def mail():
    return "sent"


@task
def fail(text="out of paper"):
    ran("fail")
    raise ValueError(text)


@task(max_attempts=1)
def fail_once_for_all():
    raise KeyError("key")


@task
def reject():
    raise Reject("never")


@task(max_attempts=1)
def wait_in_a_group():
    ran("waits in a group")
    raise BaseExceptionGroup("outside", [Suspended("what nobody brings")])


@task
def interrupt():
    raise KeyboardInterrupt


@task(max_attempts=3, takes_context=True)
def fail_until(context, attempt):
    ran("fail_until", context.attempt)
    if context.attempt < attempt:
        raise Retry("not yet", after=0)
    return context.attempt


@task
def give_what_is_no_json():
    return object()


@task(max_attempts=1)
def give_nul():
    return "a\x00b"


@task
def login(user, password):
    pass


@task(takes_context=True)
def login_with_context(context, password):
    pass


@task
async def add_async(a, b=1):
    await asyncio.sleep(0)
    await sync_to_async(ran)("async")
    return a + b


@task
async def give_async(value):
    return value


@task(max_attempts=1)
async def fail_async():
    raise ValueError("async")


@task(takes_context=True)
def tell_context(context):
    context.check()
    result = context.task_result
    return {
        "attempt": context.attempt,
        "attempt_id": context.attempt_id,
        "failures": context.failures,
        "id": result.id,
        "status": str(result.status),
        "args": result.args,
        "enqueued": result.enqueued_at is not None,
        "started": result.started_at is not None,
        "finished": result.is_finished,
        "workers": len(result.worker_ids),
        "errors": [one.exception_class_path for one in result.errors],
    }


@task(takes_context=True)
async def tell_context_async(context):
    await context.acheck()
    return [context.attempt, context.task_result.enqueued_at is not None]


@task(atomic=True)
def note_and_fail_later(key):
    ran(key)
    raise ValueError("rolled back")


@task(atomic=True)
def enqueue_other(key):
    ran(key)
    enqueue_task(note, f"{key} follows")


@task(idempotent=True)
def die(key):
    """Take the worker along, once."""
    import os
    import signal

    ran(key)
    if Run.objects.filter(key=key).count() == 1:
        os.kill(os.getpid(), signal.SIGKILL)


@task(timeout=0.2, max_attempts=1)
def sleep_too_long():
    import time

    while True:  # an exception cannot end one long sleep
        time.sleep(0.01)


@task
def compensation(*args):
    ran("compensated")


@task(compensate=compensation)
def charge(amount):
    return amount


not_a_module_function = lambda: None  # noqa: E731 -- what Django refuses has to be tried


@task(once=lambda value: f"received {value}")
def received(value):
    return value


@task(unique_key="keyed")
def keyed(value):
    return value


def effect(key, value):
    ran(key)
    return (value,)


@task(takes_context=True)
def steps(context, key):
    """Two steps, and a key twice."""
    first = context.step("first", effect, key, 1)
    return [first, context.step("second", effect, key, value=2), context.key("k"), context.key("k")]


@task(takes_context=True)
def grow(context, depth):
    ran(f"member {depth}")
    if depth:
        with context.batch():
            grow.enqueue(depth - 1)


@task(takes_context=True)
def waits(context):
    context.sleep_until("moment", 0)
    return context.wait_for("answer")


BEGUN, MAY_END = threading.Event(), threading.Event()


@task(max_attempts=1)
def wait_for_release(fails=False):
    BEGUN.set()
    MAY_END.wait()
    if fails:
        raise ValueError("late")


@task(max_attempts=1, takes_context=True)
def snooze_once(context):
    if not context.snoozes:
        raise Snooze(after=3600)


@task(max_attempts=3)
def stop():
    raise TaskCancelled
