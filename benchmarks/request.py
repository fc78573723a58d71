"""What enqueueing adds to a request, with RabbitMQ healthy, stopped, or a black hole.

    python tests/services.py -- python benchmarks/request.py

One transaction with one INSERT of Django's, with and without enqueue_task(), on PostgreSQL. The
conditions take turns in rounds, so that only ratios within this run count.
"""

from __future__ import annotations

import os
import socket
import statistics
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "testproject")]
os.environ["DJANGO_SETTINGS_MODULE"] = "settings"
os.environ["TXTASKS_DATABASE_URL"] = os.environ["TXTASKS_TEST_POSTGRES_URL"]

import django  # noqa: E402

django.setup()

from django.db import connection, transaction  # noqa: E402
from django.test.utils import override_settings, setup_databases, teardown_databases  # noqa: E402
from orders.models import Order  # noqa: E402
from orders.tasks import send_receipt  # noqa: E402

from django_txtasks import enqueue_task  # noqa: E402

ROUNDS, EACH = 30, 100


def plain() -> None:
    """The request without a task."""
    with transaction.atomic():
        Order.objects.create(customer="Ada")


def with_task() -> None:
    """The request with one."""
    with transaction.atomic():
        order = Order.objects.create(customer="Ada")
        enqueue_task(send_receipt, order.pk)


def raw_insert() -> None:
    """The request with one more INSERT, as plain as can be: what a task cannot cost less than."""
    with transaction.atomic():
        Order.objects.create(customer="Ada")
        with connection.cursor() as cursor:
            cursor.execute("INSERT INTO orders_order (customer) VALUES (%s)", ["Bob"])


def measure(work: Callable[[], None]) -> list[float]:
    """Return the milliseconds of each request."""
    times = []
    for _ in range(EACH):
        start = time.perf_counter()
        work()
        times.append((time.perf_counter() - start) * 1000)
    return times


def main() -> None:
    """Print p50 and p99 of each condition."""
    with ExitStack() as stack:
        hole = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        conditions: dict[str, tuple[Callable[[], None], str | None]] = {
            "no task": (plain, None),
            "one more raw INSERT": (raw_insert, None),
            "task, no broker": (with_task, None),
            "task, broker healthy": (with_task, os.environ["TXTASKS_TEST_AMQP_URL"]),
            "task, broker stopped": (with_task, "amqp://127.0.0.1:1"),
            "task, broker a black hole": (with_task, f"amqp://127.0.0.1:{hole.getsockname()[1]}"),
        }
        times: dict[str, list[float]] = {name: [] for name in conditions}
        for number in range(ROUNDS + 1):
            for name, (work, url) in conditions.items():
                with override_settings(TXTASKS={"broker_url": url, "queue_prefix": "benchmark"}):
                    measured = measure(work)
                times[name] += measured if number else []  # the first round warms up
        base = statistics.median(times["no task"])
        print(f"{'':28}{'p50 ms':>8}{'p99 ms':>8}{'added p50':>11}")
        for name, found in times.items():
            p50, p99 = statistics.median(found), statistics.quantiles(found, n=100)[98]
            print(f"{name:28}{p50:8.3f}{p99:8.3f}{p50 - base:+11.3f}")


if __name__ == "__main__":
    databases = setup_databases(verbosity=0, interactive=False)
    try:
        main()
    finally:
        teardown_databases(databases, verbosity=0)
