"""Sends messages that an intake refuses to an exchange, with the reason."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import pika
from pika.data import encode_table
from pika.exceptions import ChannelClosedByBroker

from django_txtasks.conf import Config
from django_txtasks.hints.broker.confirms import ConfirmedPublisher, Message
from django_txtasks.hints.broker.upkeep import NOT_FOUND

if TYPE_CHECKING:
    from django_txtasks.hints.broker.incoming import IncomingMessage

REASON, CAME_FROM = "txtasks-reason", "txtasks-queue"
"""Headers of a refused message: the reason, and the queue from which it came."""
CONFIRM_SECONDS = 2.0
"""Longest time to wait for a confirm. No task is written meanwhile."""
_ID = "refused"
"""Name of the one message of a call."""
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


class DeadLetterPublisher:
    """Sends refused messages to their place, and waits for the confirm of each.

    Its connection is closed when all are sent. It stays while RabbitMQ takes no messages, because it lacks memory
    or disk space: RabbitMQ takes the sent message later, and then confirms it. Each new connection leaves a copy.
    """

    def __init__(self, config: Config, letters: DeadLetters) -> None:
        self._letters = letters
        self._publisher = ConfirmedPublisher(config, "Refused")
        self._unanswered: IncomingMessage | None = None

    def send(self, refused: Sequence[tuple[IncomingMessage, str]]) -> tuple[int, str]:
        """Send messages with the reasons of their refusal, in order, until RabbitMQ does not confirm one.

        Returns:
            The number of messages that RabbitMQ has confirmed, and why it is not all; empty = it is.
        """
        count, trouble = 0, ""
        try:
            self._publisher.look_after()
            for message, reason in refused:
                if trouble := self._send_one(message, reason):
                    break
                count += 1
        except ConnectionError as error:
            trouble = str(error)
        if not self._publisher.blocked:
            self.close()
        return count, trouble

    def close(self) -> None:
        """Close the connection."""
        self._unanswered = None
        self._publisher.close()

    def _send_one(self, message: IncomingMessage, reason: str) -> str:
        """Return the reason why RabbitMQ does not have the message; empty = it has it."""
        letters, until = self._letters, time.monotonic() + CONFIRM_SECONDS
        if self._unanswered is message:
            said = self._publisher.wait(until)
        else:
            properties = _properties(message.properties, reason, letters.queue)
            one = Message(_ID, letters.routing_key, message.body, properties=properties)
            said = self._publisher.publish(letters.exchange, [one], until)
        self._unanswered = message if self._publisher.blocked else None
        if said.confirmed:
            return ""
        others = [*said.returned.values(), *said.unsendable.values()]
        return next(filter(None, [said.closed, said.lost, *others]), "it has no answer")


def _properties(theirs: Any, reason: str, queue: str) -> pika.BasicProperties:
    """Return the properties of a refused message.

    Left out is what RabbitMQ would act on: ``expiration``, ``priority``, ``reply_to``, and ``user_id``, which it
    accepts from that user alone.
    """
    kept = {name: getattr(theirs, name) for name in _KEPT}
    own = {REASON: reason, CAME_FROM: queue}
    headers = {
        name: repr(value) if isinstance(value, float) else value  # pika sends no doubles
        for name, value in (theirs.headers or {}).items()
        if name not in _NOT_KEPT
    }
    if not _can_be_sent(headers):
        headers = {}
    return pika.BasicProperties(headers={**headers, **own}, delivery_mode=2, **kept)


def _can_be_sent(headers: dict[Any, Any]) -> bool:
    try:
        return bool(encode_table([], headers) <= MAX_HEADER_BYTES)
    except Exception:  # a value that pika can decode, but not encode
        return False
