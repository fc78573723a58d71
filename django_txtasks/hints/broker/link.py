"""Connections to RabbitMQ that reconnect after each failure."""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any, TypeVar

import pika

from django_txtasks import signals
from django_txtasks.conf import Config
from django_txtasks.core.ground.retry import backoff
from django_txtasks.hints.broker import failures, quiet, topology
from django_txtasks.hints.broker.connection import Connection

Item = TypeVar("Item")
STABLE_AFTER_SECONDS = 3.0
"""Seconds after which a connection counts as good, so that its end is a new failure."""


class Link:
    """One thread's connection and channel.

    Args:
        who: name in the log and in RabbitMQ's list of connections.
        kind: class of the connection.
    """

    def __init__(self, config: Config, who: str, kind: type[Connection] = Connection) -> None:
        self.config, self.who, self._kind = config, who, kind
        self.connection: pika.BlockingConnection | None = None
        self.channel: Any = None
        self._failures = 0
        self._ready_at = float("inf")
        self._warned = False

    def open(self) -> pika.BlockingConnection:
        """Connect. The caller then prepares ``channel`` and sets it."""
        name = f"txtasks {self.who.lower()} {os.getpid()}"
        self.connection = topology.connect(self.config, name, self._kind)
        return self.connection

    def ready(self, channel: Any) -> None:
        """Note that the channel is usable. Failures are forgotten once it has lived for a while."""
        self.channel, self._ready_at = channel, time.monotonic()
        level = logging.INFO if self._warned else logging.DEBUG  # the warning is over
        self._warned = False
        address = self.config.broker_address
        failures.news.forget(address)
        signals.broker_connected.emit(level=level, who=self.who, broker=address)

    def close(self) -> None:
        """Drop the connection, whatever its state."""
        connection, self.connection, self.channel = self.connection, None, None
        if connection is not None:
            with contextlib.suppress(Exception):
                if connection.is_open:
                    connection.close()
                else:  # if pika's loop has ended by itself, it keeps the sockets that wake it
                    connection._cleanup()

    def failed(self, error: Exception) -> float:
        """Drop the connection. Return the seconds to wait before the next one.

        It is 0 after a good connection, because a cut connection is often back at once.
        """
        self.close()
        lived = time.monotonic() - self._ready_at  # minus infinity if the link was never ready
        self._ready_at = float("inf")
        self._failures = 1 if lived > STABLE_AFTER_SECONDS else self._failures + 1
        pause = 0.0
        if lived < 0 or self._failures > 1:
            pause = backoff(
                self._failures, base=timedelta(seconds=1), ceiling=timedelta(seconds=30)
            ).total_seconds()
        address, reason = self.config.broker_address, failures.in_words(error, self.config)
        is_news = failures.news.is_news(address, reason)
        self._warned = self._warned or is_news
        signals.broker_failed.emit(
            level=logging.WARNING if is_news else logging.DEBUG,
            who=self.who,
            broker=address,
            error=reason,
            delay=pause,
            when=f"in {pause:.1f} s" if pause else "now",
        )
        return pause


class Listener:
    """A thread that consumes on a connection of its own. Subclasses choose the queues in ``prepare``.

    Attributes:
        kind: class of the connection.
    """

    kind: type[Connection] = Connection

    def __init__(self, config: Config, who: str) -> None:
        self.config = config
        self.generation = 0
        self._link = Link(config, who, self.kind)
        self._stopping = threading.Event()
        self._thread = threading.Thread(
            target=self._run, name=f"txtasks-{who.lower().replace(' ', '-')}", daemon=True
        )

    @property
    def connected(self) -> bool:
        """True if messages can arrive."""
        return self._link.channel is not None

    def start(self) -> None:
        """Start to connect. Returns at once."""
        self._thread.start()

    def stop(self, seconds: float = 2.0) -> None:
        """Close the connection. RabbitMQ gives unacknowledged messages to others."""
        self._stopping.set()
        self.soon(self._link.channel, lambda: None)  # wakes the thread
        self._thread.join(seconds)

    def prepare(self, channel: Any) -> Any:
        """Declare queues on a new channel. Return the channel to use from now on."""
        raise TypeError(f"{type(self).__name__} does not say what it listens to")

    def follow(self) -> None:
        """Called in the thread: once the channel is ready, and every few seconds from then on.

        It notices a deleted queue, if there is one consumer.
        """
        refuse_silence(self.channel, 1)

    def broken(self) -> None:
        """Called in the thread when the connection is gone."""

    def soon(self, channel: Any, action: Callable[[], None]) -> None:
        """Let the thread call a function, unless that channel is gone, because then RabbitMQ knows already."""
        connection = self._link.connection
        if connection is None or channel is None or channel is not self._link.channel:
            return
        with contextlib.suppress(pika.exceptions.AMQPError):  # closed in between
            connection.add_callback_threadsafe(lambda: action() if channel.is_open else None)

    @property
    def channel(self) -> Any:
        """The present channel."""
        return self._link.channel

    def _run(self) -> None:
        with quiet.ours():
            self._follow_for_ever()

    def _follow_for_ever(self) -> None:
        while not self._stopping.is_set():
            try:
                connection = self._link.open()
                channel = self.prepare(connection.channel())
                self.generation += 1
                self._link.ready(channel)
                while not self._stopping.is_set():
                    self.follow()
                    connection.process_data_events(5)
            except Exception as error:
                # pika raises many kinds; without this thread nothing is received.
                pause = self._link.failed(error)
                self.broken()
                self._stopping.wait(pause)
        self._link.close()


def all_of(waiting: queue.SimpleQueue[Item]) -> list[Item]:
    """Return what waits in a queue, in its order."""
    found: list[Item] = []
    with contextlib.suppress(queue.Empty):
        while True:
            found.append(waiting.get_nowait())
    return found


def refuse_silence(channel: Any, consumers: int) -> None:
    """Raise if RabbitMQ closed the channel or cancelled the consumer, because then nothing would ever arrive.

    Raises:
        ConnectionError: RabbitMQ did.
    """
    if not channel.is_open or len(channel.consumer_tags) < consumers:
        raise ConnectionError("RabbitMQ ended the consumer; its queue may have been deleted")
