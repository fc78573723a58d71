"""Celery with an outbox: the cost of a call, and the rate of one drain, beside Celery's own sending.

    python tests/services.py -- python benchmarks/celery_outbox.py [--tasks 10000] [--drains 1] [--repeat 3]

TXTASKS_DATABASE_URL may name another database than PostgreSQL. Each round measures, one after the other:

* ``delay()`` inside a transaction, which writes a row;
* plain ``delay()``, and plain ``delay()`` with ``confirm_publish``, in one process;
* the drains, in processes of their own: from the first row in history to the last.

No Celery worker runs, so RabbitMQ keeps all messages of a round. If it has no memory for more of them (seen with
15,500), the benchmark ends with the drain's log. Printed: tasks per second of each round, and the medians.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
import uuid
from collections.abc import Callable
from typing import Any

import stage

HAND_OVER = {
    "queues": ["default", "mail", "celery"],
    "hand_over": {"celery": "probe.on_celery.app"},
}


def main() -> None:
    """Print the rates."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", type=int, default=10_000)
    parser.add_argument("--drains", type=int, default=1)
    parser.add_argument("--repeat", type=int, default=3)
    arguments = parser.parse_args()
    with stage.project(broker=False, **HAND_OVER):
        found: dict[str, list[float]] = {}
        for _ in range(arguments.repeat):
            for name, rate in _round(arguments.tasks, arguments.drains).items():
                found.setdefault(name, []).append(rate)
        for name, rates in found.items():
            each = ", ".join(f"{rate:,.0f}" for rate in rates)
            print(f"{name:<40}{statistics.median(rates):>8,.0f}/s  ({each})")


def _round(count: int, drains: int) -> dict[str, float]:
    import json
    import os

    import celery_site
    import helpers
    from probe import on_celery

    queue = f"benchmark-{uuid.uuid4().hex[:8]}"
    usual = {
        "broker_url": helpers.url_of("AMQP").replace("amqp:", "pyamqp:"),
        "task_default_queue": queue,
        "result_backend": None,
        "broker_transport_options": {},
    }
    few = max(1000, count // 10)
    celery_site.declare(queue)
    try:
        celery_site.point(on_celery.app, usual)
        rates = {"plain delay()": _rate(on_celery.run.delay, few)}
        confirmed = {**usual, "broker_transport_options": {"confirm_publish": True}}
        celery_site.point(on_celery.app, confirmed)
        rates["plain delay(), confirm_publish"] = _rate(on_celery.run.delay, few)
        celery_site.point(on_celery.app, usual)
        rates["delay() as a row"] = _rate(on_celery.run.delay, count, in_transaction=True)
        os.environ["TXTASKS_TEST_CELERY"] = json.dumps(usual)
        rates[f"{drains} drain{'s' * (drains > 1)}, confirms"] = _drained(count, drains)
    finally:
        helpers.delete_queues(helpers.url_of("AMQP"), [queue])
    return rates


def _rate(send: Callable[[str], Any], count: int, *, in_transaction: bool = False) -> float:
    from contextlib import nullcontext

    from django.db import transaction

    send("first")
    began = time.perf_counter()
    with transaction.atomic() if in_transaction else nullcontext():
        for number in range(count):
            send(str(number))
    return count / (time.perf_counter() - began)


def _drained(count: int, drains: int) -> float:
    """Return the rate from a look at the history soon after the start to a look at the end."""
    import helpers
    from django.db import connection

    def handed() -> int:
        return int(helpers.execute("SELECT count(*) FROM txtasks_finishedtask")[0][0])

    if connection.vendor == "postgresql":
        helpers.execute("VACUUM ANALYZE txtasks_task")
    helpers.execute("DELETE FROM txtasks_finishedtask")
    with tempfile.TemporaryFile() as log:
        started = [stage.start("rundrain", "--batch", log=log) for _ in range(drains)]
        helpers.wait_until(lambda: handed() > 0)
        first, began = handed(), time.perf_counter()
        have_ended = False
        while (done := handed()) < count:
            if have_ended:
                log.seek(0)
                raise RuntimeError(
                    f"{done} of {count} rows were handed over:\n{log.read().decode()}"
                )
            have_ended = all(process.poll() is not None for process in started)
            time.sleep(0.02)
        seconds = time.perf_counter() - began
        for process in started:
            process.wait()
    return (done - first) / seconds


if __name__ == "__main__":
    main()
