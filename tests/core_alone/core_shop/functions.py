"""The task functions of the shop, declared as the core itself declares them."""

import time

from core_shop.models import Done
from django_txtasks.core.declaring import registry
from django_txtasks.core.declaring.declaring import declaration_of
from django_txtasks.core.enqueueing import enqueue_task


class Function:
    """A task function. The whole package has ``functions.TaskFunction``, whose options know the features."""

    def __init__(self, function, declared=None, **options):
        self.declaration = declared or declaration_of(
            function, name=f"core_shop.{function.__name__}", options=options
        )
        self.options = {}
        registry.register(self.declaration)

    def using(self, **options):
        other = Function(None, self.declaration)
        other.options = options
        return other

    def enqueue(self, *args, **kwargs):
        return enqueue_task(self, *args, **kwargs)


def task(**options):
    return lambda function: Function(function, **options)


@task()
def note(what):
    Done.objects.create(what=what)
    return what


@task()
def tell(event):
    Done.objects.create(what=f"{event['event']} of {event['task_name']}")


@task(on_success=tell)
def told(what):
    Done.objects.create(what=what)


@task(max_attempts=3, takes_context=True)
def fail_twice(ctx, what):
    Done.objects.create(what=what, attempt=ctx.attempt)
    if ctx.failures < 2:
        raise ValueError(f"no {what} yet")


@task(max_attempts=2, on_failure=tell)
def fail(what):
    raise ValueError(f"no {what}")


@task(atomic=True)
def write_and_fail(what):
    Done.objects.create(what=what)
    raise ValueError("all of it is undone")


@task()
def undo(what):
    Done.objects.create(what=f"undone: {what}")


@task(idempotent=True, takes_context=True)
def again(ctx, what):
    is_first = not Done.objects.filter(what=what).exists()
    Done.objects.create(what=what, attempt=ctx.attempt)
    if (
        is_first
    ):  # perhaps not attempt 1: a claim of a busy worker may be released before its task starts
        time.sleep(60)


@task()
def once_only(what):
    Done.objects.create(what=what)
    time.sleep(60)


@task(compensate=undo)
def compensated(what):
    Done.objects.create(what=what)
    time.sleep(60)


@task(timeout=0.3, max_attempts=1)
def too_long():
    end = time.monotonic() + 30
    while time.monotonic() < end:
        time.sleep(0.01)
