"""Messages to an exchange, many at a time, each confirmed by RabbitMQ or not.

pika's blocking channel waits for each confirm, or looks for confirms once in its time limit. So this drives pika's
own loop, and writes the frames of many messages at once.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple

from pika import frame, spec
from pika.exceptions import ConnectionClosedByBroker

from django_txtasks.conf import Config
from django_txtasks.hints.broker import failures, quiet
from django_txtasks.hints.broker.connection import Connection
from django_txtasks.hints.broker.link import Link

OF_MESSAGE = range(501, 506)
"""Codes with which RabbitMQ ends the connection because of a message, such as headers beyond a frame."""
OPEN_SECONDS = 5.0
"""Longest time to open a channel."""
BYTES_AT_ONCE = 64 * 1024
_FRAME_END = bytes([spec.FRAME_END])


class Message(NamedTuple):
    """A persistent message of JSON.

    Attributes:
        id: different for each message of one call.
        headers: AMQP headers.
        properties: pika's, in place of all others. Such a message must be the only one of its call.
    """

    id: str
    routing_key: str
    body: bytes
    priority: int = 0
    headers: dict[str, Any] | None = None
    properties: Any = None


@dataclass
class Confirms:
    """RabbitMQ's answers about messages, by their ids; nothing, if there is no answer.

    Attributes:
        confirmed: it has them, in all queues to which they were routed.
        returned: no queue takes them, with the reason.
        unsendable: they cannot be written as AMQP, with the reason. Nothing of them was sent.
        closed: RabbitMQ has closed the channel, or the connection, because of one of them, with the reason. Empty:
            it has not.
        lost: the connection is gone, or answers are missing, with the reason. Empty: neither.
        overtaken: messages without an answer, although later ones have one.
    """

    confirmed: set[str] = field(default_factory=set)
    returned: dict[str, str] = field(default_factory=dict)
    unsendable: dict[str, str] = field(default_factory=dict)
    closed: str = ""
    lost: str = ""
    overtaken: set[str] = field(default_factory=set)

    @property
    def known(self) -> set[str]:
        """The messages with an answer."""
        return self.confirmed | self.returned.keys() | self.unsendable.keys()


class _Patient(Connection):
    """A connection that stays open while RabbitMQ blocks it, for want of memory or disk space.

    RabbitMQ takes earlier messages later, also after the end of the connection. With a new connection for each
    attempt, the messages of each attempt would arrive.

    Attributes:
        blocked: the reason why RabbitMQ takes nothing; empty: it takes messages.
    """

    blocked = ""

    def _on_connection_blocked(self, connection: Any, method: Any) -> None:
        self.blocked = f"it takes no messages for now: {method.method.reason}"

    def _on_connection_unblocked(self, connection: Any, method: Any) -> None:
        self.blocked = ""


class ConfirmedPublisher:
    """Publishes on a connection of its own, which it opens when it needs it.

    Args:
        who: name in the log and in RabbitMQ's list of connections.
    """

    def __init__(self, config: Config, who: str) -> None:
        self._config, self._link = config, Link(config, who, _Patient)
        self._channel: _Channel | None = None
        self._answers = Confirms()

    def look_after(self) -> None:
        """Connect if necessary, and read what RabbitMQ has sent.

        Raises:
            ConnectionError: there is no connection, or it is blocked; the text has the reason.
        """
        with quiet.ours(), self._as_connection_error():
            if self._link.connection is not None:
                self._link.connection.process_data_events(0)
            else:
                self._link.open()
            if self._channel is None or not self._channel.is_open:
                self._open()
        if self.blocked:
            raise ConnectionError(self.blocked)

    def publish(self, exchange: str, messages: Sequence[Message], until: float) -> Confirms:
        """Send these messages, and wait for the answers until that time by ``time.monotonic()``."""
        self._answers = Confirms()
        return self._attempt(lambda: self._publish(exchange, messages, until))

    def wait(self, until: float) -> Confirms:
        """Wait for missing answers to the last call, as after an alarm. Return all of its answers."""
        self._answers.lost = ""
        return self._attempt(lambda: self._wait(until))

    def _publish(self, exchange: str, messages: Sequence[Message], until: float) -> None:
        if self._channel is None or not self._channel.is_open:
            self.look_after()
        if self._channel is not None:
            self._channel.publish(exchange, messages, self._answers)
        self._wait(until)

    def _wait(self, until: float) -> None:
        if self._channel is not None:
            self._channel.wait(until)

    def _attempt(self, action: Callable[[], None]) -> Confirms:
        answers = self._answers
        with quiet.ours():
            try:
                action()
            except Exception as error:  # pika raises many kinds
                words = failures.in_words(error, self._config)
                if isinstance(error, ConnectionClosedByBroker) and error.reply_code in OF_MESSAGE:
                    answers.closed = words
                    self._give_up()
                else:
                    answers.lost = words
        if answers.lost and self.blocked:
            answers.lost = self.blocked
        elif answers.lost:
            self._give_up()
        return answers

    def close(self) -> None:
        """Close the connection, or cut it if it is blocked, because RabbitMQ would not answer."""
        if self.blocked:
            self._give_up()
        else:
            self._drop()

    def _drop(self) -> None:
        self._channel = None
        with quiet.ours():
            self._link.close()

    @property
    def blocked(self) -> str:
        """The reason why RabbitMQ takes nothing for now, although the connection is open; empty: it does."""
        connection: Any = self._link.connection
        is_open = connection is not None and connection.is_open
        return str(connection._impl.blocked) if is_open else ""

    def _open(self) -> None:
        self._channel = _Channel(self._link.connection)
        self._link.channel = self._channel

    def _give_up(self) -> None:
        """Cut the connection, because closing it would wait for a broker that may be silent."""
        connection: Any = self._link.connection
        with contextlib.suppress(OSError, AttributeError):  # it has no socket any more
            connection._impl._transport._sock.shutdown(socket.SHUT_RDWR)
        self._drop()

    @contextlib.contextmanager
    def _as_connection_error(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            self._give_up()
            raise ConnectionError(failures.in_words(error, self._config)) from error


class _Channel:
    """A channel with confirms, on the loop inside a blocking connection."""

    def __init__(self, connection: Any) -> None:
        self._connection, self._impl = connection, connection._impl
        self._tag = self._latest = 0
        self._waiting: dict[int, str] = {}
        self._ids: set[str] = set()
        self._without_id: str | None = None
        self._answers = Confirms()
        self._is_ready = False
        until = time.monotonic() + OPEN_SECONDS
        self._channel = self._impl.channel(on_open_callback=self._opened)
        self._channel._set_cookie(self._channel)  # the connection closes it
        self._turn(until, lambda: self._is_ready or self._channel.is_closed)
        if not self._is_ready:
            raise TimeoutError

    @property
    def is_open(self) -> bool:
        return bool(self._channel.is_open)

    def publish(self, exchange: str, messages: Sequence[Message], answers: Confirms) -> None:
        """Send the messages. ``wait`` fills the answers in."""
        self._answers, self._waiting, self._latest = answers, {}, 0
        self._ids = {message.id for message in messages}
        self._without_id = next((one.id for one in messages if one.properties is not None), None)
        self._send(exchange, messages)

    def wait(self, until: float) -> None:
        """Wait for the answers that are missing."""
        answers = self._answers
        self._turn(
            until, lambda: not self._waiting or self._impl.blocked or not self._channel.is_open
        )
        if not self._channel.is_open:
            reason = self._channel._closing_reason
            answers.closed = f"{reason.reply_code} {reason.reply_text}"
        elif self._waiting:
            if not self._impl.blocked:
                answers.overtaken = {
                    one for tag, one in self._waiting.items() if tag < self._latest
                }
            answers.lost = f"{len(self._waiting)} confirms are missing, because it does not answer"

    def _send(self, exchange: str, messages: Sequence[Message]) -> None:
        parts: list[bytes] = []
        size, most = 0, self._impl._body_max_length
        for message in messages:
            try:
                frames = _frames(self._channel.channel_number, exchange, message, most)
            except Exception as error:  # struct.error, ShortStringTooLong, UnicodeEncodeError, ...
                self._answers.unsendable[message.id] = f"{type(error).__name__}: {error}"
                continue
            self._tag += 1
            self._waiting[self._tag] = message.id
            parts += frames
            size += sum(map(len, frames))
            if size >= BYTES_AT_ONCE:
                self._impl._output_marshaled_frames(parts)
                parts, size = [], 0
        if parts:
            self._impl._output_marshaled_frames(parts)

    def _turn(self, until: float, is_done: Callable[[], bool]) -> None:
        """Let pika's loop turn until it is done, or until that time.

        Raises:
            AMQPError: the connection is gone.
        """
        loop, closed = self._impl.ioloop, self._connection._closed_result
        timer = self._impl._adapter_call_later(
            max(0.0, until - time.monotonic()), lambda: None
        )  # so that the loop wakes up
        try:
            while not (is_done() or closed.ready or time.monotonic() >= until):
                loop.poll()
                loop.process_timeouts()
        finally:
            self._impl._adapter_remove_timeout(timer)
        if closed.ready:
            raise closed.value.error

    def _opened(self, channel: Any) -> None:
        channel.add_on_return_callback(self._returned)
        channel.confirm_delivery(self._answered, callback=self._selected)

    def _selected(self, method: Any) -> None:
        self._is_ready = True

    def _returned(self, channel: Any, method: Any, properties: Any, body: bytes) -> None:
        """Note a message that comes back. It is confirmed afterwards, too."""
        message_id = self._without_id or properties.message_id
        if (
            message_id in self._ids
        ):  # else it is of an earlier call, and RabbitMQ had no memory for it
            text = f"no queue takes it: {method.reply_code} {method.reply_text}"
            self._answers.returned[message_id] = text

    def _answered(self, answer: Any) -> None:
        method, waiting = answer.method, self._waiting
        tags = [method.delivery_tag]
        if method.multiple:
            tags = [tag for tag in waiting if tag <= method.delivery_tag]
        for tag in tags:
            message_id = waiting.pop(tag, None)
            if message_id is None or message_id in self._answers.returned:
                continue
            if isinstance(method, spec.Basic.Ack):
                self._answers.confirmed.add(message_id)
                self._latest = max(self._latest, tag)
            else:
                self._answers.returned[message_id] = "RabbitMQ refused it, as a full queue does"


def _frames(channel: int, exchange: str, message: Message, most: int) -> list[bytes]:
    """Return the frames of one message.

    Raises:
        Exception: AMQP has no form for a value of it.
    """
    body = message.body
    is_usual = len(message.id) == len(_ANY_ID) and not (message.headers or message.properties)
    if is_usual:
        header = _usual_header(channel, len(body), message.priority)
        header = header.replace(_ANY_ID, message.id.encode("ascii"))
    else:
        header = _header(channel, len(body), message)
    frames = [_method(channel, exchange, message.routing_key), header]
    for start in range(0, len(body), most):
        part = body[start : start + most]
        frames += [struct.pack(">BHI", spec.FRAME_BODY, channel, len(part)), part, _FRAME_END]
    return frames


def _header(channel: int, length: int, message: Message) -> bytes:
    properties = message.properties or spec.BasicProperties(
        content_type="application/json",
        delivery_mode=2,
        message_id=message.id,
        priority=message.priority or None,
        headers=message.headers or None,
    )
    return bytes(frame.Header(channel, length, properties).marshal())


_ANY_ID = b"00000000-0000-0000-0000-000000000000"


@lru_cache(maxsize=1000)
def _usual_header(channel: int, length: int, priority: int) -> bytes:
    """Return the header of a message without headers, with ``_ANY_ID``, because pika takes long for it."""
    return _header(channel, length, Message(_ANY_ID.decode(), "", b"", priority))


@lru_cache(maxsize=1000)
def _method(channel: int, exchange: str, routing_key: str) -> bytes:
    publish = spec.Basic.Publish(exchange=exchange, routing_key=routing_key, mandatory=True)
    return bytes(frame.Method(channel, publish).marshal())
