"""The cost of links from tasks to business objects.

    python benchmarks/links.py [--tasks 20000] [--links 300000] [--rounds 5] [--old /path/to/another/checkout]

On PostgreSQL, or the database of TXTASKS_DATABASE_URL, without a broker. Printed are medians:

* enqueue: milliseconds of a transaction with one INSERT by Django and enqueue_task(), with and without a subject,
  the two taking turns; rows per second of enqueue_many() with and without subjects, 5,000 per transaction
* read: milliseconds of tasks_of() for one object and for 1,000 objects, beside ``--links`` links
* old against new: with ``--old``, another version of this package takes turns with this one, without a subject:
  enqueue_task(), enqueue_many(), and the drain of one worker. A share below 1 says that the new version is slower.

Only ratios within one run count.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import figures
import stage

EACH = 200
"""Transactions of one kind before the other kind takes its turn."""
PER_TRANSACTION = 5_000
CHILD = """
import json, sys, time
import stage
with stage.project(broker=False, keep_finished=0):
    from django.core.management import call_command
    from django.db import transaction
    from orders.models import Order
    from probe.tasks import give
    from django_txtasks import enqueue_many, enqueue_task
    count, found = int(sys.argv[1]), {}
    for number in range(2):  # the first round warms up
        began = time.perf_counter()
        for key in range(count // 10):
            with transaction.atomic():
                Order.objects.create(customer="Ada")
                enqueue_task(give, key)
        found["enqueue_task()"] = (time.perf_counter() - began) / (count // 10)
        began = time.perf_counter()
        enqueue_many((give, (key,)) for key in range(count))
        found["enqueue_many()"] = time.perf_counter() - began
        began = time.perf_counter()
        call_command("runworkers", batch=True, threads=4, verbosity=0)
        found["drain"] = time.perf_counter() - began
    print(json.dumps(found))
"""


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tasks", type=int, default=20_000)
    parser.add_argument("--links", type=int, default=300_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--old", type=Path)
    arguments = parser.parse_args()
    print(f"load: {os.getloadavg()[0]:.1f}", flush=True)
    if arguments.old:
        print(_old_against_new(arguments), flush=True)
    with stage.project(broker=False):
        print(_enqueueing(arguments), flush=True)
        print(_reading(arguments))
    print(f"load: {os.getloadavg()[0]:.1f}")


def _old_against_new(arguments: argparse.Namespace) -> str:
    shares: dict[str, list[float]] = {}
    for number in range(arguments.rounds):
        order = [arguments.old, stage.ROOT]
        took = {
            tree: _child(tree, arguments.tasks) for tree in (order if number % 2 else order[::-1])
        }
        for name, seconds in took[arguments.old].items():
            shares.setdefault(name, []).append(seconds / took[stage.ROOT][name])
    rows = [[name, figures.figure(found)] for name, found in shares.items()]
    return figures.table(["without a subject", "new rate by old rate"], rows)


def _child(tree: Path, count: int) -> dict[str, float]:
    places = [tree, tree / "benchmarks", tree / "testproject", tree / "tests"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, places))}
    command = [sys.executable, "-c", CHILD, str(count)]
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def _enqueueing(arguments: argparse.Namespace) -> str:
    from django.db import transaction
    from orders.models import Order
    from probe.tasks import give

    from django_txtasks import enqueue_many

    orders = Order.objects.bulk_create([Order(customer="Ada") for _ in range(PER_TRANSACTION)])

    def one(with_subject: bool) -> float:
        began = time.perf_counter()
        for key in range(EACH):
            with transaction.atomic():
                order = Order.objects.create(customer="Ada")
                (give.using(subject=order) if with_subject else give).enqueue(key)
        return (time.perf_counter() - began) * 1000 / EACH

    def many(with_subject: bool) -> float:
        began = time.perf_counter()
        for _ in range(0, arguments.tasks, PER_TRANSACTION):
            enqueue_many(
                (give.using(subject=order) if with_subject else give, (order.pk,))
                for order in orders
            )
        return arguments.tasks / (time.perf_counter() - began)

    singles = list(_in_turns(one, 4 * arguments.rounds))
    bulk = list(_in_turns(many, arguments.rounds))
    rows: list[list[Any]] = [
        ["enqueue_task(), ms", *(figures.figure(list(kind)) for kind in zip(*singles, strict=True)),
         figures.figure([with_one - without for without, with_one in singles])],
        ["enqueue_many(), rows/s", *(figures.figure(list(kind)) for kind in zip(*bulk, strict=True)),
         figures.figure([with_one / without for without, with_one in bulk])],
    ]  # fmt: skip
    return figures.table(["", "no subject", "a subject", "added ms; share"], rows)


def _in_turns(measure: Callable[[bool], float], rounds: int) -> Iterator[tuple[float, float]]:
    """Yield both figures of each round, without and with a subject, after a round that warms up."""
    for number in range(rounds + 1):
        found = {kind: measure(kind) for kind in ((False, True) if number % 2 else (True, False))}
        if number:
            yield found[False], found[True]


def _reading(arguments: argparse.Namespace) -> str:
    from django.db import connection
    from django.db.models import Exists
    from orders.models import Order
    from probe.tasks import give

    from django_txtasks import enqueue_many, tasks_of

    made = [Order(customer=f"c{key}") for key in range(arguments.links // 3)]
    orders = Order.objects.bulk_create(made, batch_size=PER_TRANSACTION)
    for start in range(0, len(orders), PER_TRANSACTION):
        some = orders[start : start + PER_TRANSACTION]
        enqueue_many((give.using(subject=one), (one.pk,)) for one in some for _ in range(3))
    if connection.vendor != "sqlite":
        with connection.cursor() as cursor:
            word = "ANALYZE" if connection.vendor == "postgresql" else "ANALYZE TABLE"
            cursor.execute(f"{word} txtasks_link, txtasks_task, orders_order")
            cursor.fetchall() if cursor.description else None
    first = orders[len(orders) // 2].pk
    thousand = Order.objects.filter(pk__gte=first, pk__lt=first + 1000)
    reads: dict[str, Callable[[], Any]] = {
        "tasks_of(order)[:20]": lambda: list(tasks_of(orders[len(orders) // 2])[:20]),
        "tasks_of(1,000 orders)": lambda: list(tasks_of(thousand)),
        "1,000 orders with a task in a state": lambda: list(
            thousand.filter(Exists(tasks_of(Order).filter(task_state="pending")))
        ),
    }
    rows = [
        [name, f"{len(read()):,}", figures.short(_middle(read))] for name, read in reads.items()
    ]
    return figures.table([f"beside {arguments.links:,} links", "rows", "ms"], rows)


def _middle(read: Callable[[], Any]) -> float:
    times = []
    for _ in range(20):
        began = time.perf_counter()
        read()
        times.append((time.perf_counter() - began) * 1000)
    return statistics.median(times)


if __name__ == "__main__":
    main()
