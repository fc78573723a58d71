"""Dramatiq on RabbitMQ: an enqueue is not part of a transaction."""

from __future__ import annotations

import os
import sys

import dramatiq
import records
from dramatiq.brokers.rabbitmq import RabbitmqBroker

from peers import launching

dramatiq.set_broker(RabbitmqBroker(url=os.environ["BROKER_URL"]))


@dramatiq.actor(queue_name=os.environ["NAME"])
def no_op(key: int) -> None:
    """Say that it ran."""
    records.write(key)


def prepare() -> None:
    """Its queues are made when they are used."""


def enqueue(count: str) -> None:
    """Send ``count`` messages."""
    for key in range(int(count)):
        no_op.send(key)


def work(processes: str) -> None:
    """Become its own command."""
    command = ["-m", "dramatiq", "peers.dramatiq", "--threads=8", f"--processes={processes}"]
    launching.run("1", sys.executable, *command)


def pace(count: str, seconds: str) -> None:
    """Send one message at a time, as a commit hook would."""
    for key in records.ticks(int(count), float(seconds)):
        no_op.send(key)
        records.write(key)
