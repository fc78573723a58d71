"""Maintenance of RabbitMQ's queues, which are emptied or removed. No worker uses it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pika.exceptions import AMQPError, ChannelClosedByBroker

from django_txtasks.conf import Config
from django_txtasks.hints.broker import quiet, topology

NOT_FOUND = 404


def purge(config: Config, queue: str) -> int | None:
    """Drop the waiting hints of a queue. Return their number, or None if the broker is away."""
    return _ask(config, lambda channel: int(channel.queue_purge(queue).method.message_count))


def delete(config: Config, queue: str) -> bool:
    """Remove a queue. Return False if the broker is away."""
    return _ask(config, lambda channel: int(bool(channel.queue_delete(queue)))) is not None


def _ask(config: Config, work: Callable[[Any], int]) -> int | None:
    try:
        with quiet.ours(), topology.connect(config, "txtasks upkeep") as connection:
            return work(connection.channel())
    except ChannelClosedByBroker as error:
        if error.reply_code == NOT_FOUND:
            return 0
        raise
    except (AMQPError, OSError):
        return None
