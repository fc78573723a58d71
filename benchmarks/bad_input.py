"""The delay of real tasks behind garbage: in the queue of hints, and in the table.

    python tests/services.py -- python benchmarks/bad_input.py

A worker of 4 threads in this process, on PostgreSQL and RabbitMQ, with the default settings. Each round
enqueues real tasks behind nothing, behind hints of every wrong kind, behind hints of ids that do not exist,
behind rows that no worker can run, and behind rows that can only fail. The conditions take turns, so only
ratios within this run count. The number is the time from the first real task's commit to the end of the
last one.
"""

from __future__ import annotations

import json
import logging
import os
import random
import statistics
import sys
import time
import uuid
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "testproject"), str(ROOT / "tests")]
os.environ["DJANGO_SETTINGS_MODULE"] = "settings_for_tests"
os.environ["TXTASKS_DATABASE_URL"] = os.environ["TXTASKS_TEST_POSTGRES_URL"]
os.environ["TXTASKS_BROKER_URL"] = os.environ["TXTASKS_TEST_AMQP_URL"]
PREFIX = f"bench-{uuid.uuid4().hex[:8]}"
os.environ["TXTASKS_SETTINGS"] = json.dumps({"queue_prefix": PREFIX})

import django  # noqa: E402

django.setup()

import helpers  # noqa: E402
import pika  # noqa: E402
from django.test.utils import setup_databases, teardown_databases  # noqa: E402
from probe import tasks  # noqa: E402

from django_txtasks import enqueue_many  # noqa: E402
from django_txtasks.models import FinishedTask  # noqa: E402

ROUNDS, REAL, GARBAGE = 5, 200, 1000
CHANCE = random.Random(7)


def nothing() -> None:
    """No garbage: what the others are compared with."""


def wrong_hints() -> None:
    """Bodies that are no hints at all."""
    large = b'{"ids":' + b"[" * 30_000
    send([large if number % 50 == 0 else CHANCE.randbytes(200) for number in range(GARBAGE)])


def void_hints() -> None:
    """Well-formed hints of one id each, which no row has."""
    send([json.dumps({"ids": [str(uuid.uuid4())]}).encode() for _ in range(GARBAGE)])


def unknown_rows() -> None:
    """Names that no app declares: they stay."""
    insert(GARBAGE, "os.system", "[]")


def broken_rows() -> None:
    """Write as many rows as real tasks, with invalid arguments: each ends dead, and costs as much as a task."""
    insert(REAL, "probe.tasks.note", '{"a": 1}')


def insert(count: int, name: str, args: str) -> None:
    """Rows by plain SQL, of the highest priority and long due."""
    for _ in range(count):
        helpers.execute(
            "INSERT INTO txtasks_task (id, task_name, args, priority, run_after, max_attempts) "
            "VALUES (%s, %s, %s, 100, '2001-01-01', 1)",
            uuid.uuid4().hex, name, args,
        )  # fmt: skip


def send(bodies: list[bytes]) -> None:
    """Send a message, as any AMQP client can."""
    with pika.BlockingConnection(pika.URLParameters(os.environ["TXTASKS_BROKER_URL"])) as amqp:
        channel = amqp.channel()
        for body in bodies:
            channel.basic_publish("", f"{PREFIX}.default", body)


def measure(garbage: Callable[[], None], real: int) -> float:
    """Return the seconds that the real tasks took."""
    garbage()
    done = FinishedTask.objects.count()
    start = time.perf_counter()
    enqueue_many((tasks.note, ()) for _ in range(real))
    while FinishedTask.objects.count() < done + real:
        time.sleep(0.005)
    seconds = time.perf_counter() - start
    helpers.wait_until(lambda: not hints_left() and helpers.counts()["claimed"] == 0, 120)
    helpers.execute("DELETE FROM txtasks_task")
    return seconds


def hints_left() -> int:
    """Return how many hints RabbitMQ still keeps."""
    with pika.BlockingConnection(pika.URLParameters(os.environ["TXTASKS_BROKER_URL"])) as amqp:
        queue = amqp.channel().queue_declare(f"{PREFIX}.default", passive=True)
        return int(queue.method.message_count)


def compare(real: int) -> None:
    """Measure in turns and print the medians and their ratios to nothing."""
    conditions = [nothing, wrong_hints, void_hints, unknown_rows, broken_rows]
    times: dict[str, list[float]] = {one.__name__: [] for one in conditions}
    for _ in range(ROUNDS):
        for one in conditions:
            times[one.__name__].append(measure(one, real))
    medians = {name: statistics.median(seconds) for name, seconds in times.items()}
    print(f"{real} real tasks behind {GARBAGE} pieces of garbage, median of {ROUNDS}:")
    for name, seconds in medians.items():
        ratio, worst = seconds / medians["nothing"], max(times[name]) * 1000
        print(f"  {name:12} {seconds * 1000:8.1f} ms  x {ratio:5.2f}  (longest {worst:.1f} ms)")


def main() -> None:
    """Measure many tasks, then one."""
    logging.disable()  # a line for each row that ends dead
    old = setup_databases(verbosity=0, interactive=False)
    try:
        with helpers.working(threads=4):
            measure(nothing, REAL)
            compare(REAL)
            compare(1)
    finally:
        teardown_databases(old, verbosity=0)
        helpers.delete_queues(
            os.environ["TXTASKS_BROKER_URL"], [f"{PREFIX}.default", f"{PREFIX}.mail"]
        )


if __name__ == "__main__":
    main()
