"""Dramatiq on RabbitMQ with tasks that write a row by Django's ORM."""

from __future__ import annotations

import os
import sys

import dramatiq
from dramatiq.brokers.rabbitmq import RabbitmqBroker

from peers import launching, with_django

dramatiq.set_broker(RabbitmqBroker(url=os.environ["BROKER_URL"]))


@dramatiq.actor(queue_name=os.environ["NAME"])
def row(key: int) -> None:
    """Write a row."""
    with_django.write_row(key)


def prepare() -> None:
    """Make the table; its queues are made when they are used."""
    with_django.make_table()


def enqueue(count: str) -> None:
    """Send ``count`` messages."""
    for key in range(int(count)):
        row.send(key)


def work(processes: str, threads: str) -> None:
    """Become its own command."""
    command = ["-m", "dramatiq", "peers.dramatiq_rows", threads, f"--processes={processes}"]
    launching.run("1", sys.executable, *command)
