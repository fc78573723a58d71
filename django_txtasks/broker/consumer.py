"""Receives hints for a worker, on a thread and a connection of its own that only move ids."""

from __future__ import annotations

import contextlib
import functools
import threading
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pika

from django_txtasks import signals
from django_txtasks.broker import topology
from django_txtasks.broker.link import Link
from django_txtasks.conf import Config

PREFETCH = 10


@dataclass(frozen=True)
class Hint:
    """The ids of one message, and what can become of the message.

    Attributes:
        settle: it has been read; RabbitMQ forgets it.
        give_back: leave it to a worker that has room.
    """

    ids: list[uuid.UUID]
    settle: Callable[[], None]
    give_back: Callable[[], None]


class HintConsumer:
    """Consumes the hint queues while it is told to listen, and reconnects by itself.

    Args:
        queues: names of task queues.
        deliver: called on the consumer's thread with each Hint.
    """

    def __init__(
        self, config: Config, alias: str, queues: list[str], deliver: Callable[[Hint], None]
    ) -> None:
        self._queues = [topology.hint_queue(config, alias, queue) for queue in queues]
        self._deliver = deliver
        self._listen = True
        self._stopping = threading.Event()
        self._link = Link(config, "Worker")
        self._tags: list[str] = []
        self._thread = threading.Thread(target=self._run, name="txtasks-consumer", daemon=True)

    @property
    def connected(self) -> bool:
        """Whether hints can arrive at all."""
        return self._link.channel is not None

    def start(self) -> None:
        """Begin to connect, and return at once."""
        self._thread.start()

    def stop(self, seconds: float = 2.0) -> None:
        """Close the connection; RabbitMQ gives unread hints to others."""
        self._stopping.set()
        self._soon(self._link.channel, lambda: None)  # wakes the thread
        self._thread.join(seconds)

    def listen(self, on: bool) -> None:
        """Take hints from now on, or leave them to others. Returns at once, from any thread."""
        if on != self._listen:
            self._listen = on
            self._soon(self._link.channel, self._follow)

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                connection = self._connect()
                while not self._stopping.is_set():
                    connection.process_data_events(5)
                    self._refuse_silence()
            except (
                Exception
            ) as error:  # pika raises many kinds; without this thread the worker is deaf
                self._stopping.wait(self._link.failed(error))
        self._link.close()

    def _connect(self) -> pika.BlockingConnection:
        connection = self._link.open()
        channel = connection.channel()
        for queue in self._queues:
            channel = topology.declare(connection, channel, queue)
        channel.basic_qos(prefetch_count=PREFETCH)
        self._tags = []
        self._link.ready(channel)
        self._follow()
        return connection

    def _follow(self) -> None:
        """Make the channel consume, or not, as ``listen`` said last. On the consumer's thread."""
        channel = self._link.channel
        if self._listen and not self._tags:
            for queue in self._queues:
                self._tags.append(
                    channel.basic_consume(queue, functools.partial(self._receive, queue))
                )
        elif not self._listen and self._tags:
            tags, self._tags = self._tags, []
            for tag in tags:
                channel.basic_cancel(tag)

    def _refuse_silence(self) -> None:
        """A channel that RabbitMQ closed, or a consumer that it cancelled, says nothing for ever."""
        channel = self._link.channel
        if not channel.is_open or len(channel.consumer_tags) < len(self._tags):
            raise ConnectionError("RabbitMQ ended the consumer; its queue may have been deleted")

    def _receive(self, queue: str, channel: Any, method: Any, properties: Any, body: bytes) -> None:
        tag = method.delivery_tag
        try:
            ids = topology.decode_hint(body)
        except ValueError as error:
            channel.basic_ack(tag)
            signals.hint_refused.tell(queue=queue, error=error)
            return
        self._deliver(
            Hint(
                ids,
                settle=lambda: self._soon(channel, lambda: channel.basic_ack(tag)),
                give_back=lambda: self._soon(
                    channel, lambda: channel.basic_nack(tag, requeue=True)
                ),
            )
        )

    def _soon(self, channel: Any, action: Callable[[], None]) -> None:
        """Have the consumer's thread do it, unless that channel is gone: then RabbitMQ knows already."""
        connection = self._link.connection
        if connection is None or channel is None or channel is not self._link.channel:
            return
        with contextlib.suppress(pika.exceptions.AMQPError):  # closed in between
            connection.add_callback_threadsafe(lambda: action() if channel.is_open else None)
