"""Sends messages that an intake refuses to an exchange, with the reason."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import pika
from pika.data import encode_table
from pika.exceptions import AMQPError, ChannelClosedByBroker

from django_txtasks.broker import failures, quiet, topology
from django_txtasks.broker.upkeep import NOT_FOUND
from django_txtasks.conf import Config

if TYPE_CHECKING:
    from django_txtasks.broker.incoming import IncomingMessage

REASON, CAME_FROM = "txtasks-reason", "txtasks-queue"
"""Headers of a refused message: the reason, and the queue from which it came."""
MAX_HEADER_BYTES = 64 * 1024
"""Longest headers that are sent along. All properties of a message must fit into one frame of 128 kB."""
_KEPT = (
    "content_type",
    "content_encoding",
    "correlation_id",
    "message_id",
    "timestamp",
    "type",
    "app_id",
)
_NOT_KEPT = {"CC", "BCC", REASON, CAME_FROM}
"""Headers that are left out. RabbitMQ would send a copy to each queue that CC or BCC names."""


class DeadLetters(NamedTuple):
    """The place for refused messages.

    Attributes:
        queue: the queue from which they come.
        exchange: an exchange that is there. Empty = the queue with ``.refused`` behind its name, which is
            declared.
    """

    queue: str
    exchange: str = ""

    @property
    def routing_key(self) -> str:
        """Routing key of refused messages."""
        return self.queue if self.exchange else f"{self.queue}.refused"

    @property
    def place(self) -> str:
        """The place in words."""
        return f"exchange {self.exchange!r}" if self.exchange else f"queue {self.routing_key!r}"

    def prepare(self, connection: Any) -> None:
        """Declare the queue, or check that the exchange is there.

        Raises:
            ConnectionError: there is no such exchange.
        """
        channel = connection.channel()
        try:
            if self.exchange:
                channel.exchange_declare(self.exchange, passive=True)
            else:  # if it is there, its arguments and our permissions do not matter
                channel.queue_declare(self.routing_key, passive=True)
        except ChannelClosedByBroker as error:
            if error.reply_code != NOT_FOUND:
                raise
            if self.exchange:
                raise ConnectionError(
                    f"there is no exchange {self.exchange!r}. Declare it, or correct --dead-letters"
                ) from None
            channel = connection.channel()
            channel.queue_declare(self.routing_key, durable=True)
        channel.close()

    def send(
        self, config: Config, refused: Sequence[tuple[IncomingMessage, str]]
    ) -> tuple[int, str]:
        """Send messages with the reasons of their refusal, in order, until RabbitMQ does not confirm one.

        Returns:
            The number of messages that RabbitMQ has confirmed, and the reason why it is not all; empty = it is.
        """
        count = 0
        try:
            with quiet.ours(), topology.connect(config, f"txtasks refused {os.getpid()}") as amqp:
                channel = amqp.channel()
                channel.confirm_delivery()
                for message, reason in refused:
                    properties = _properties(message.properties, reason, self.queue)
                    channel.basic_publish(
                        self.exchange, self.routing_key, message.body, properties, mandatory=True
                    )
                    count += 1
        except (AMQPError, OSError) as error:
            return count, failures.in_words(error, config)
        return count, ""


def _properties(theirs: Any, reason: str, queue: str) -> pika.BasicProperties:
    """Return the properties of a refused message.

    Left out is what RabbitMQ would act on: ``expiration``, ``priority``, ``reply_to``, and ``user_id``, which it
    accepts from that user alone.
    """
    kept = {name: getattr(theirs, name) for name in _KEPT}
    own = {REASON: reason, CAME_FROM: queue}
    headers = {
        name: value for name, value in (theirs.headers or {}).items() if name not in _NOT_KEPT
    }
    if not _can_be_sent(headers):
        headers = {}
    return pika.BasicProperties(headers={**headers, **own}, delivery_mode=2, **kept)


def _can_be_sent(headers: dict[Any, Any]) -> bool:
    try:
        return bool(encode_table([], headers) <= MAX_HEADER_BYTES)
    except Exception:  # a value that pika can decode, but not encode
        return False
