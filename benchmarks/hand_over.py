"""The speed of drains that hand rows over to an exchange, with confirms.

    python benchmarks/hand_over.py [--rows 60000] [--repeat 3] [--drains 1,2]

On PostgreSQL, or the server of TXTASKS_DATABASE_URL: rows per second from the row to history, by this number of
drains, from the moment when the last of them is at work. Right before each figure, the limit is measured: the same
messages through the same channel, 500 at a time, without a database. Only ratios within one run count.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import time
import uuid
from typing import Any

import figures
import stage

QUEUE = "mail"
PASS = 500
LONGEST_SECONDS = 600


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=60_000)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--drains", default="1,2", help="numbers of drains, one case for each")
    options = parser.parse_args()
    exchange = f"benchmark-{uuid.uuid4().hex[:8]}"
    hand_over = {QUEUE: f"exchange:{exchange}"}
    measured: dict[int, list[tuple[float, float]]] = {}
    with stage.project(hand_over=hand_over), open(os.devnull, "wb") as log:
        channel = _declared(exchange)
        try:
            for _ in range(options.repeat):
                for count in map(int, options.drains.split(",")):
                    limit = _limit(exchange, options.rows)
                    channel.queue_purge(exchange)
                    rate = _rate(options.rows, count, log)
                    arrived = channel.queue_purge(exchange).method.message_count
                    if arrived < options.rows:
                        raise SystemExit(f"{arrived} of {options.rows} rows have arrived")
                    print(count, f"{rate:,.0f} rows/s, limit {limit:,.0f}", flush=True)
                    measured.setdefault(count, []).append((rate, limit))
        finally:
            channel.exchange_delete(exchange)
            channel.queue_delete(exchange)
            channel.connection.close()
    titles = ["drains", "rows/s", "limit/s", "share"]
    print(figures.table(titles, [_row(count, found) for count, found in measured.items()]))


def _row(count: int, found: list[tuple[float, float]]) -> list[str]:
    return [
        str(count),
        figures.figure([rate for rate, _ in found]),
        figures.figure([limit for _, limit in found]),
        figures.figure([rate / limit for rate, limit in found]),
    ]


def _declared(exchange: str) -> Any:
    import pika

    parameters = pika.URLParameters(os.environ["TXTASKS_TEST_AMQP_URL"])
    parameters.heartbeat = 0  # it is silent while the drains work
    channel = pika.BlockingConnection(parameters).channel()
    channel.exchange_declare(exchange, "topic")
    channel.queue_declare(exchange, durable=True)
    channel.queue_bind(exchange, exchange, "#")
    return channel


def _limit(exchange: str, rows: int) -> float:
    """Return the messages per second of one process without a database."""
    from django_txtasks.conf import get_config
    from django_txtasks.hints.broker.confirms import ConfirmedPublisher, Message

    publisher = ConfirmedPublisher(get_config(), "Benchmark")
    messages = [Message(str(uuid.uuid4()), "billing.paid", b'{"args":[1]}' * 12)] * PASS
    messages = [one._replace(id=str(uuid.uuid4())) for one in messages]
    publisher.look_after()
    begin = time.perf_counter()
    for _ in range(rows // PASS):
        said = publisher.publish(exchange, messages, time.monotonic() + 10)
        if len(said.confirmed) != PASS:
            raise SystemExit(f"not confirmed: {said.lost or said.closed}")
    seconds = time.perf_counter() - begin
    publisher.close()
    return rows / seconds


def _rate(rows: int, count: int, log: Any) -> float:
    """Return the rows per second of this number of drains, once all of them are at work."""
    from django.db.models import Max

    from django_txtasks import enqueue_many, external
    from django_txtasks.models import FinishedTask, Task, Worker

    FinishedTask.objects.all().delete()
    task = external("billing.paid", queue_name=QUEUE)
    for start in range(0, rows, 10_000):
        some = range(start, min(rows, start + 10_000))
        enqueue_many([(task, (number,), {"note": "a benchmark"}) for number in some])
    drains: list[subprocess.Popen[bytes]] = []
    try:
        drains += [stage.start("rundrain", log=log) for _ in range(count)]
        end = time.monotonic() + LONGEST_SECONDS
        while Task.objects.exists():
            if time.monotonic() > end:
                raise SystemExit("the rows are not handed over in time")
            time.sleep(0.2)
        began = Worker.objects.aggregate(began=Max("started_at"))["began"]
    finally:
        for drain in drains:
            drain.terminate()
            drain.wait()
    done = FinishedTask.objects.filter(finished_at__gt=began)
    last = done.aggregate(last=Max("finished_at"))["last"]
    first = done.order_by("finished_at").first().finished_at
    # the rows of the first pass were sent before its time
    return done.filter(finished_at__gt=first).count() / (last - first).total_seconds()


if __name__ == "__main__":
    main()
