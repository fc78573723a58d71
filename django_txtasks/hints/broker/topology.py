"""Names, queues and the form of a last will: everything on which two sides must agree."""

from __future__ import annotations

import json
import uuid
from typing import TYPE_CHECKING, Any

import pika
from pika.exceptions import ChannelClosedByBroker, ChannelWrongStateError

from django_txtasks import signals
from django_txtasks.conf import Config
from django_txtasks.hints.broker.connection import Connection

if TYPE_CHECKING:
    from pika.adapters.blocking_connection import BlockingChannel

IDS_PER_HINT = 100
MAX_WILL_BYTES = 64 * 1024
MAX_HINTS = 100_000
"""Length of a queue. Beyond it, the queue drops its oldest hints; the rows remain."""
LOST_ARGUMENTS = {"x-max-length": 10_000}
PRECONDITION_FAILED = 406


def hint_queue(config: Config, alias: str, queue: str) -> str:
    """Return the name of RabbitMQ's queue: ``txtasks.mail``, or ``txtasks.mail@alias``."""
    suffix = "" if alias == "default" else f"@{alias}"
    return f"{config.queue_prefix}.{queue}{suffix}"


def lost_queue(config: Config, alias: str) -> str:
    """Return the name of the queue to which RabbitMQ sends last wills, for cleaners."""
    return hint_queue(config, alias, "@lost")


def will_queue(config: Config, worker: uuid.UUID, number: int) -> str:
    """Return the name of the queue of one last will."""
    return f"{config.queue_prefix}.@will.{worker.hex}.{number}"


def will_arguments(config: Config, alias: str) -> dict[str, Any]:
    """Return the arguments that make a queue hold a last will.

    A message does not expire while a consumer has it unacknowledged. When the consumer's connection dies, RabbitMQ
    puts the message back, finds it expired, and hands it to the cleaners.
    """
    return {
        "x-queue-type": "classic",  # even if the virtual host has another default
        "x-message-ttl": 100,
        "x-expires": 60_000,
        "x-dead-letter-exchange": "",
        "x-dead-letter-routing-key": lost_queue(config, alias),
    }


def encode_will(worker: uuid.UUID, number: int) -> bytes:
    """Return the body of a last will."""
    return json.dumps({"worker": str(worker), "will": number}).encode()


def decode_will(body: bytes) -> tuple[uuid.UUID, int]:
    """Return the worker's id and the number of a last will.

    Raises:
        ValueError: the body is no last will.
    """
    if len(body) > MAX_WILL_BYTES:
        raise ValueError(f"{len(body):,} bytes, more than {MAX_WILL_BYTES:,}")
    try:
        will = json.loads(body)
        number = will["will"]
        if not isinstance(number, int) or not 0 < number < 2**31:
            raise ValueError(f"the number is {str(number)[:50]}")
        return uuid.UUID(will["worker"]), number
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise ValueError(f"{type(error).__name__}: {error}") from None


def connect(
    config: Config, name: str, kind: type[Connection] = Connection
) -> pika.BlockingConnection:
    """Return a new connection that gives up soon if the broker is silent or blocks.

    If there are several hosts, it connects to the first host that answers.

    Args:
        name: name in RabbitMQ's list of connections.
        kind: class of the connection inside the ``BlockingConnection``.
    """
    hosts = [_parameters(url, name) for url in config.broker_urls]
    return pika.BlockingConnection(hosts, _impl_class=kind)


def _parameters(url: str, name: str) -> pika.URLParameters:
    params = pika.URLParameters(url)
    params.heartbeat = 30
    params.connection_attempts = 1
    params.retry_delay = 0
    params.socket_timeout = params.stack_timeout = params.blocked_connection_timeout = 2
    params.client_properties = {"connection_name": name}
    return params


def declare(
    channel: BlockingChannel, name: str, arguments: dict[str, Any] | None = None
) -> BlockingChannel:
    """Declare the queue. Return the channel to use from now on."""
    try:
        channel.queue_declare(
            name, durable=True, arguments=arguments or {"x-max-length": MAX_HINTS}
        )
    except ChannelClosedByBroker as error:
        if error.reply_code != PRECONDITION_FAILED:
            raise
        signals.queue_differs.emit(queue=name, error=error.reply_text)
        return channel.connection.channel()
    return channel


def publish(channel: BlockingChannel, queue: str, body: bytes) -> None:
    """Send a hint, which RabbitMQ may lose.

    Raises:
        AMQPError: the connection or the channel is gone.
    """
    connection = channel.connection
    if not channel.is_open:
        raise ChannelWrongStateError(f"the channel to {queue} is closed")
    if not connection._impl.publish(channel.channel_number, queue, body):
        connection.process_data_events(0)  # sends the rest, or raises


def publish_now(channel: BlockingChannel | None, queue: str, body: bytes) -> bool:
    """Send a hint, which RabbitMQ may lose, if that is possible at once. Return True if it was."""
    if channel is None or not channel.is_open:
        return False
    return bool(channel.connection._impl.publish_now(channel.channel_number, queue, body))


def has_something_to_say(connection: pika.BlockingConnection) -> bool:
    """Return True if RabbitMQ has sent unread data, or is gone."""
    return bool(connection._impl.has_something_to_read())
