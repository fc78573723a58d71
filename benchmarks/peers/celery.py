"""Celery on RabbitMQ: an enqueue is not part of a transaction, not even by delay_on_commit()."""

from __future__ import annotations

import os
import sys

import records
from celery import Celery

from peers import launching

app = Celery("benchmark", broker=os.environ["BROKER_URL"])
app.conf.update(
    task_ignore_result=True,
    task_default_queue=os.environ["NAME"],
    worker_prefetch_multiplier=100,
    broker_connection_retry_on_startup=True,
)


@app.task
def no_op(key: int) -> None:
    """Say that it ran."""
    records.write(key)


def prepare() -> None:
    """Its queues are made when they are used."""


def enqueue(count: str) -> None:
    """Send ``count`` messages."""
    with app.producer_or_acquire() as producer:
        for key in range(int(count)):
            no_op.apply_async([key], producer=producer)


def work(processes: str) -> None:
    """Become its own command, with threads: they run a no-op three times as fast as child processes."""
    quiet = ["--without-gossip", "--without-mingle", "--without-heartbeat", "--loglevel=WARNING"]
    name = f"--hostname=worker{{number}}@{os.environ['NAME']}"  # of all that use this broker
    pool = ["--pool=threads", "--concurrency=1", name]
    command = ["-m", "celery", "--app=peers.celery", "worker", *pool, *quiet]
    launching.run(processes, sys.executable, *command)


def appoint(count: str, ahead: str, seconds: str) -> None:
    """Send messages for random times within ``seconds``."""
    times = records.instants(int(count), float(ahead), float(seconds))
    with app.producer_or_acquire() as producer:
        for key, at in enumerate(times):
            no_op.apply_async([key], eta=at, producer=producer)


def pace(count: str, seconds: str) -> None:
    """Send one message at a time, as its commit hook would."""
    for key in records.ticks(int(count), float(seconds)):
        no_op.delay(key)
        records.write(key)
