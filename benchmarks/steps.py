"""The time that a step of a task adds to the commit of its effects, in milliseconds.

    python tests/services.py -- python benchmarks/steps.py [--steps 300] [--repeat 5]

One process without a worker, and a claimed row. In turns: a row written in a transaction of its own, and
the same as a step; in the second attempt of the task the recorded value is returned. Printed are minimum,
median and maximum of the medians of all repetitions. PostgreSQL, unless TXTASKS_DATABASE_URL names another
server.
"""

from __future__ import annotations

import argparse
import statistics
import time
import uuid
from collections.abc import Callable

import figures
import stage


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--repeat", type=int, default=5)
    arguments = parser.parse_args()
    with stage.project(broker=False):
        measured = [_one(arguments.steps) for _ in range(arguments.repeat)]
    head = ["ms", "min / median / max"]
    names = ["commit alone", "as a step", "a step adds", "a step given back"]
    rows = [
        [name, figures.figure(values)]
        for name, values in zip(names, zip(*measured, strict=True), strict=True)
    ]
    print(figures.table(head, rows))


def _one(number: int) -> tuple[float, float, float, float]:
    from django.db import transaction
    from probe.models import Run
    from probe.tasks import note

    from django_txtasks.core.rows.attempts import Attempt
    from django_txtasks.features.steps.context import Steps
    from django_txtasks.models import DatabaseNow, Task

    handle, worker = note.enqueue("steps"), uuid.uuid4()
    Task.objects.filter(pk=handle.id).update(
        status="claimed", worker=worker, claimed_at=DatabaseNow(), attempt=1
    )
    steps = Steps("default", Attempt(handle.id, 1, worker))

    def effect() -> int:
        return int(Run.objects.create(key="effect").pk)

    def alone() -> None:
        with transaction.atomic(durable=True):
            effect()

    plain, kept = [], []
    for n in range(number):
        plain.append(_milliseconds(alone))
        kept.append(_milliseconds(lambda n=n: steps.run(f"step {n}", effect, (), {})))  # type: ignore[misc]
    Task.objects.filter(pk=handle.id).update(attempt=2)
    again = Steps("default", Attempt(handle.id, 2, worker))
    took = _milliseconds(lambda: [again.run(f"step {n}", effect, (), {}) for n in range(number)])
    Task.objects.filter(pk=handle.id).delete()
    middle, ours = statistics.median(plain), statistics.median(kept)
    return middle, ours, ours - middle, took / number


def _milliseconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return (time.perf_counter() - began) * 1000


if __name__ == "__main__":
    main()
