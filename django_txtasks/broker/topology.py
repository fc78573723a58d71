"""Names, queues and the form of a hint: everything that two sides must agree on."""

from __future__ import annotations

import json
import logging
import uuid
from collections.abc import Sequence
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pika
from pika.exceptions import ChannelClosedByBroker

from django_txtasks import signals
from django_txtasks.broker.resolving import Connection
from django_txtasks.conf import Config

if TYPE_CHECKING:
    from pika.adapters.blocking_connection import BlockingChannel

IDS_PER_HINT = 100
MAX_BODY = 64 * 1024
MAX_HINTS = 100_000
"""A queue drops its oldest hints beyond this; the rows are still there."""
PRECONDITION_FAILED = 406

_pika_log = logging.getLogger("pika")
if _pika_log.level == logging.NOTSET:
    # It logs tracebacks of each failed attempt to connect; one sentence of ours says it better.
    _pika_log.setLevel(logging.CRITICAL)


def hint_queue(config: Config, alias: str, queue: str) -> str:
    """Return the name of RabbitMQ's queue: ``txtasks.mail``, or ``txtasks.mail@alias``."""
    suffix = "" if alias == "default" else f"@{alias}"
    return f"{config.queue_prefix}.{queue}{suffix}"


def encode_hint(ids: Sequence[uuid.UUID]) -> bytes:
    """Return the body of a hint: ``{"ids": ["…", …]}``."""
    return json.dumps({"ids": [str(task_id) for task_id in ids]}).encode()


def decode_hint(body: bytes) -> list[uuid.UUID]:
    """Return the ids in a hint.

    Raises:
        ValueError: the body is not a hint, or is too large to be looked at.
    """
    if len(body) > MAX_BODY:
        raise ValueError(f"{len(body):,} bytes, more than {MAX_BODY:,}")
    try:
        return [uuid.UUID(task_id) for task_id in json.loads(body)["ids"]]
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise ValueError(f"{type(error).__name__}: {error}") from None


def connect(config: Config, name: str) -> pika.BlockingConnection:
    """Return a new connection that gives up soon when the broker is silent or blocks.

    Args:
        name: shown in RabbitMQ's list of connections.
    """
    params = pika.URLParameters(config.broker_url or "")
    params.heartbeat = 30
    params.connection_attempts = 1
    params.socket_timeout = params.stack_timeout = params.blocked_connection_timeout = 2
    params.client_properties = {"connection_name": name}
    return pika.BlockingConnection(params, _impl_class=Connection)


def declare(
    connection: pika.BlockingConnection, channel: BlockingChannel, name: str
) -> BlockingChannel:
    """Make sure that the queue exists; return the channel to go on with."""
    try:
        channel.queue_declare(name, durable=True, arguments={"x-max-length": MAX_HINTS})
    except ChannelClosedByBroker as error:
        if error.reply_code != PRECONDITION_FAILED:
            raise
        signals.queue_differs.tell(queue=name, error=error.reply_text)
        return connection.channel()
    return channel


def shown_url(config: Config) -> str:
    """Return the broker's address without user and password."""
    parts = urlsplit(config.broker_url or "")
    return f"{parts.scheme}://{parts.hostname}:{parts.port or 5672}{parts.path}"
