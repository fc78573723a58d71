"""Task functions that only record their run, and some that write one row by Django's ORM."""

import os
import time

import records

from bench.models import Row
from django_txtasks import TaskContext, task

if os.environ.get("BENCHMARK_WAITS"):
    from bench import waits  # noqa: F401 -- a worker finds tasks in modules called tasks
if os.environ.get("BENCHMARK_MANY"):
    from bench.many import (  # noqa: F401
        index_but_three,
        index_many,
        index_one,
        mail_many,
        mail_one,
    )


@task(idempotent=True)
def idempotent(key: int, payload: str = "") -> None:
    """A no-op that may run twice."""
    records.write(key)


@task
def default(key: int, payload: str = "") -> None:
    """A no-op that says nothing about crashes."""
    records.write(key)


@task(atomic=True)
def atomic(key: int, payload: str = "") -> None:
    """A no-op that commits with its finish."""
    records.write(key)


@task(idempotent=True)
def idempotent_row(key: int) -> None:
    """A row that may be written twice."""
    write_row(key)


@task
def default_row(key: int) -> None:
    """A row of a task that says nothing about crashes."""
    write_row(key)


@task(atomic=True)
def atomic_row(key: int) -> None:
    """A row that commits with the finish of its task."""
    write_row(key)


@task(idempotent=True, takes_context=True)
def five_steps(ctx: TaskContext, key: int) -> None:
    """Five steps, each of which writes a row and commits."""
    for number in range(5):
        ctx.step(f"row {number}", add_row, key)
    records.write(key)


@task(idempotent=True, takes_context=True)
def tick(ctx: TaskContext, key: int) -> None:
    """A no-op of a schedule, which says when it was due, in seconds of Unix time."""
    assert ctx.scheduled_for is not None
    records.write(int(ctx.scheduled_for.timestamp()))


def add_row(key: int) -> None:
    """Write one row, as the function of a step."""
    Row.objects.create(key=key)


@task(idempotent=True)
def end_of_batch(event: dict[str, object]) -> None:
    """The hook of a batch."""
    records.write(-1)


@task(idempotent=True)
def nap(key: int, seconds: float) -> None:
    """A task that waits for something."""
    records.write(key)
    time.sleep(seconds)


def write_row(key: int) -> None:
    """Do the least that a task of a real project does: an INSERT by the ORM."""
    Row.objects.create(key=key)
    records.write(key)


@task(idempotent=True, unique_key="all")
def keyed(key: int) -> None:
    """A no-op of which all are the same."""
    records.write(key)


def hundred(key: int) -> str:
    """The unique key of ``keyed_by_hundreds``."""
    return f"hundred {key // 100}"


@task(idempotent=True, unique_key=hundred)
def keyed_by_hundreds(key: int) -> None:
    """A no-op of which each hundred are the same."""
    records.write(key)


def own_lane(key: int, seconds: float, lane: str) -> str:
    """The lane of ``nap_in_lane``."""
    return lane


@task(idempotent=True, lane=own_lane)
def nap_in_lane(key: int, seconds: float, lane: str) -> None:
    """A task that waits for something, in a lane; it says when it ends, too."""
    records.write(key)
    time.sleep(seconds)
    records.write(-key - 1)
