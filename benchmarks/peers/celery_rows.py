"""Celery on RabbitMQ with tasks that write a row by Django's ORM, in one child process for each core."""

from __future__ import annotations

import os
import sys

from celery import Celery

from peers import launching, with_django

app = Celery("benchmark", broker=os.environ["BROKER_URL"])
app.conf.update(
    task_ignore_result=True,
    task_default_queue=os.environ["NAME"],
    broker_connection_retry_on_startup=True,
)


@app.task
def row(key: int) -> None:
    """Write a row."""
    with_django.write_row(key)


def prepare() -> None:
    """Make the table; its queues are made when they are used."""
    with_django.make_table()


def enqueue(count: str) -> None:
    """Send ``count`` messages."""
    with app.producer_or_acquire() as producer:
        for key in range(int(count)):
            row.apply_async([key], producer=producer)


def work(processes: str, threads: str) -> None:
    """Become its own command, with child processes: with threads it is slower."""
    quiet = ["--without-gossip", "--without-mingle", "--without-heartbeat", "--loglevel=WARNING"]
    pool = [f"--concurrency={2 * int(processes)}", "--hostname=worker"]
    launching.run(
        "1", sys.executable, "-m", "celery", "--app=peers.celery_rows", "worker", *pool, *quiet
    )
