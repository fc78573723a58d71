"""The cost of an enqueue: one task beside a business row, and many tasks at a time.

    python benchmarks/enqueue.py [--tasks 100000] [--repeat 3] [--rounds 30]
        [--peers pgqueuer --peers-python X/bin/python] [--chart enqueue.svg]

Singly: one transaction with one INSERT by Django, with and without enqueue_task(), with RabbitMQ healthy,
stopped, or a black hole. The limit is one more raw INSERT on the same connection; beside it, a raw INSERT
of the task's row. The conditions take turns, 100 transactions each, for ``--rounds`` rounds.

In bulk: rows per second of enqueue_many(), 5,000 per transaction. The limit is a COPY of such rows from a
prepared text. Only ratios within one run count.
"""

from __future__ import annotations

import argparse
import logging
import os
import socket
import statistics
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import contest
import figures
import options
from contest import LIMIT, Contest, Run, ours

EACH = 100
TASK_ROW = "INSERT INTO txtasks_task (id, args, task_name, on_crash) VALUES (%s, %s, %s, %s)"
PLAIN, RAW = "no task", "one more raw INSERT"
Times = dict[str, list[float]]


def main() -> None:
    """Print both tables."""
    arguments = _arguments()
    with contest.contest() as servers:
        with servers.run(ours()) as run, _in_django(run):
            singles = [_singles(servers, run, arguments.rounds) for _ in range(arguments.repeat)]
        bulk = _bulk(servers, arguments)
    print(_table_of_singles(singles), _table_of_bulk(bulk), sep="\n\n")
    if arguments.chart:
        bars = [(title, figures.figure(rates)) for title, rates in bulk.items()]
        figures.chart(arguments.chart, "Rows per second, in bulk", bars)


def _arguments() -> argparse.Namespace:
    parser = options.parser(__doc__, tasks=100_000)
    parser.add_argument("--rounds", type=int, default=30)
    return parser.parse_args()


# ---- one task per transaction


@contextmanager
def _in_django(run: Run) -> Iterator[None]:
    """This process as a web server of the run's database."""
    os.environ.update(run.env)
    from peers import txtasks

    txtasks.django.setup()
    logging.getLogger("django_txtasks").setLevel(logging.CRITICAL)  # it tells of the broken brokers
    from django.db import connection

    try:
        yield
    finally:
        connection.close()


def _singles(servers: Contest, run: Run, rounds: int) -> Times:
    """Return the milliseconds of each transaction under each condition."""
    from django.test.utils import override_settings

    with socket.create_server(("127.0.0.1", 0)) as hole:
        conditions: dict[str, tuple[Callable[[], None], str | None]] = {
            PLAIN: (_plain, None),
            RAW: (_raw_insert, None),
            "the task's row, raw": (_raw_task, None),
            "task, no broker": (_with_task, None),
            "task, broker healthy": (_with_task, servers.rabbitmq.url),
            "task, broker stopped": (_with_task, "amqp://127.0.0.1:1"),
            "task, broker a black hole": (_with_task, f"amqp://127.0.0.1:{hole.getsockname()[1]}"),
        }
        times: Times = {name: [] for name in conditions}
        for number in range(rounds + 1):
            for name, (work, url) in conditions.items():
                settings = {"broker_url": url, "queue_prefix": run.directory.name}
                with override_settings(TXTASKS=settings):
                    measured = _measure(work)
                times[name] += measured if number else []  # the first round warms up
    return times


def _plain() -> None:
    from django.db import transaction
    from orders.models import Order

    with transaction.atomic():
        Order.objects.create(customer="Ada")


def _with_task() -> None:
    from bench.tasks import idempotent
    from django.db import transaction
    from orders.models import Order

    from django_txtasks import enqueue_task

    with transaction.atomic():
        order = Order.objects.create(customer="Ada")
        enqueue_task(idempotent, order.pk)


def _raw_insert() -> None:
    from django.db import connection, transaction
    from orders.models import Order

    with transaction.atomic():
        Order.objects.create(customer="Ada")
        with connection.cursor() as cursor:
            cursor.execute("INSERT INTO orders_order (customer) VALUES (%s)", ["Bob"])


def _raw_task() -> None:
    """Write the row that enqueue_task() writes, and do nothing else."""
    from django.db import connection, transaction
    from orders.models import Order

    with transaction.atomic():
        order = Order.objects.create(customer="Ada")
        with connection.cursor() as cursor:
            values = [uuid.uuid4().hex, f"[{order.pk}]", "bench.tasks.idempotent", "retry"]
            cursor.execute(TASK_ROW, values)


def _measure(work: Callable[[], None]) -> list[float]:
    times = []
    for _ in range(EACH):
        start = time.perf_counter()
        work()
        times.append((time.perf_counter() - start) * 1000)
    return times


def _table_of_singles(repeats: list[Times]) -> str:
    rows = []
    for name in repeats[0]:
        middle = [statistics.median(times[name]) for times in repeats]
        slow = [figures.percentile(times[name], 99) for times in repeats]
        added = [
            own - statistics.median(times[PLAIN])
            for own, times in zip(middle, repeats, strict=True)
        ]
        by_raw = [
            one / (statistics.median(times[RAW]) - statistics.median(times[PLAIN]))
            for one, times in zip(added, repeats, strict=True)
        ]
        share = [sum(times[PLAIN]) / sum(times[name]) for times in repeats]
        rows.append([name, *map(figures.figure, [middle, slow, added, by_raw, share])])
    return figures.table(
        [
            "one transaction",
            "p50 ms",
            "p99 ms",
            "added p50 ms",
            "by the raw INSERT",
            "of the plain rate",
        ],
        rows,
    )


# ---- many


def _bulk(servers: Contest, arguments: argparse.Namespace) -> Times:
    """Return rows per second of each way, the ways taking turns."""
    ways = [
        (LIMIT, "copy"),
        (ours(), "enqueue"),
        (ours("django-txtasks, no broker", broker_url=None), "enqueue"),
    ]
    ways += [(peer, "enqueue") for peer in options.peers(arguments)]
    rates: Times = {}
    for _ in range(arguments.repeat):
        for contender, verb in ways:
            with servers.run(contender) as run:
                servers.settle()
                seconds = run.seconds(verb, arguments.tasks)
            rates.setdefault(contender.title, []).append(arguments.tasks / seconds)
    return rates


def _table_of_bulk(rates: Times) -> str:
    rows = []
    for title, own in rates.items():
        share = [one / limit for one, limit in zip(own, rates[LIMIT.title], strict=True)]
        rows.append([title, figures.figure(own), figures.figure(share)])
    return figures.table([f"in bulk, {5000} to a transaction", "rows/s", "of a bare COPY"], rows)


if __name__ == "__main__":
    main()
