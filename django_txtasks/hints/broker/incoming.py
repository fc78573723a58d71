"""Receives the messages of other applications for an intake, in a thread that never waits for the database."""

from __future__ import annotations

import math
import queue
import struct
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from pika import frame
from pika.channel import ContentFrameAssembler
from pika.exceptions import ChannelClosedByBroker

from django_txtasks.conf import Config
from django_txtasks.hints.broker.connection import Connection
from django_txtasks.hints.broker.dead_letters import DeadLetters
from django_txtasks.hints.broker.link import Listener, all_of
from django_txtasks.hints.broker.upkeep import NOT_FOUND

DOUBLE_BYTES = 8
"""Size of a double of AMQP."""


@dataclass(frozen=True, eq=False)
class IncomingMessage:
    """A message that RabbitMQ has delivered and that is not acknowledged yet.

    Attributes:
        properties: pika's BasicProperties.
        channel, tag: where it was delivered. On another channel it is delivered again.
    """

    body: bytes
    properties: Any
    channel: Any
    tag: int

    @property
    def unreadable(self) -> str:
        """The reason why the properties cannot be decoded, in which case they are empty. Empty = they can."""
        return getattr(self.properties, "unreadable", "")


class _WholeMessages(Connection):
    """A connection that delivers each message whole."""

    assembler = ContentFrameAssembler

    def _read_frame(self) -> Any:
        found = super()._read_frame()
        size, value = found
        _restore_fractions(self._frame_buffer[:size], value)  # other frames follow
        return found


def _restore_fractions(data: bytes, found: Any) -> None:
    """Replace the headers that were doubles, of which pika has cut the fraction off."""
    is_header = isinstance(found, frame.Header)
    headers: dict[str, Any] = (is_header and found.properties.headers) or {}
    for name, value in headers.items():
        if isinstance(value, int) and not isinstance(value, bool):
            key = name.encode()
            _, _, rest = data.partition(bytes([len(key)]) + key + b"d")
            double = struct.unpack_from(">d", rest)[0] if len(rest) >= DOUBLE_BYTES else math.nan
            if abs(double - value) < 1:  # otherwise these bytes stand there by chance
                headers[name] = double


class MessageConsumer(Listener):
    """Consumes one queue, which another application has declared.

    Args:
        name: name of the queue.
        prefetch: number of messages that may be unacknowledged.
        dead_letters: where refused messages go; it must be there before the first message is received.
        wake: called in the thread when a message has come.
    """

    kind = _WholeMessages

    def __init__(
        self,
        config: Config,
        name: str,
        prefetch: int,
        dead_letters: DeadLetters,
        wake: Callable[[], None],
    ) -> None:
        super().__init__(config, f"Intake of {name!r}")
        self._name, self._prefetch, self._wake = name, prefetch, wake
        self._dead_letters = dead_letters
        self._arrived: queue.SimpleQueue[IncomingMessage] = queue.SimpleQueue()

    def take(self) -> list[IncomingMessage]:
        """Return the messages that have come since the last call, in the order of the queue."""
        return all_of(self._arrived)

    def is_held(self, message: IncomingMessage) -> bool:
        """Return False if RabbitMQ delivers the message again, because its channel is gone."""
        return message.channel is self.channel and message.channel.is_open

    def acknowledge(self, messages: Iterable[IncomingMessage]) -> None:
        """Let RabbitMQ forget these messages, unless their channel is gone. Returns at once."""
        channel = self.channel
        tags = [one.tag for one in messages if one.channel is channel]

        def acknowledge_all() -> None:
            for tag in tags:
                channel.basic_ack(tag)

        if tags:
            self.soon(channel, acknowledge_all)

    def prepare(self, channel: Any) -> Any:
        """Consume the queue.

        Raises:
            ConnectionError: there is no such queue, or no place for refused messages.
        """
        self._dead_letters.prepare(channel.connection)
        try:
            channel.queue_declare(self._name, passive=True)
        except ChannelClosedByBroker as error:
            if error.reply_code != NOT_FOUND:
                raise
            raise ConnectionError(
                f"there is no queue {self._name!r}. Let its producer declare it, or correct --queue"
            ) from None
        channel.basic_qos(prefetch_count=self._prefetch)
        channel.basic_consume(self._name, self._receive)
        return channel

    def stop(self, seconds: float = 2.0) -> None:
        """Send the acknowledgements, and end. RabbitMQ delivers the other messages again."""
        sent = threading.Event()
        if self.connected:
            self.soon(self.channel, sent.set)
            sent.wait(seconds)
        super().stop(seconds)

    def _receive(self, channel: Any, method: Any, properties: Any, body: bytes) -> None:
        self._arrived.put(IncomingMessage(body, properties, channel, method.delivery_tag))
        self._wake()
