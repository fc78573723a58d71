"""Messages about the queue itself to an exchange of other programs: the load, and the life of workers and tasks.

Such a message is transient: the next one replaces it. RabbitMQ drops it if no queue is bound.
"""

from __future__ import annotations

import json
import threading
from collections import deque
from collections.abc import Iterable
from typing import Any

from django_txtasks.conf import Config
from django_txtasks.core.ground.wakeup import WakeUp
from django_txtasks.hints.broker import failures, quiet
from django_txtasks.hints.broker.connection import TRANSIENT
from django_txtasks.hints.broker.link import Link
from django_txtasks.hints.sending.sender import SendersOfProcess

MOST_WAITING = 1_000
"""Number of messages that wait for RabbitMQ in a process. Beyond it, the oldest are dropped."""
LOOK_SECONDS = 5.0
"""Seconds between two looks at an idle connection: much less than its heartbeat."""
Message = tuple[str, dict[str, Any]]
"""A routing key and the data of a message."""


class Announcer:
    """A connection that publishes to one exchange. One thread at a time uses it.

    Args:
        exchange: its name. It must be there: this package declares no exchange of others.
    """

    def __init__(self, config: Config, exchange: str) -> None:
        self._config, self._exchange = config, exchange
        self.link = Link(config, "Announcer")

    def publish(self, messages: Iterable[Message]) -> None:
        """Publish messages, and wait until RabbitMQ has them.

        Raises:
            Exception: RabbitMQ cannot be reached or has no such exchange; pika raises many kinds. Then call
                ``link.failed``.
        """
        with quiet.ours():
            if self.link.channel is None:
                channel = self.link.open().channel()
                channel.confirm_delivery()
                self.link.ready(channel)
            for key, data in messages:
                self.link.channel.basic_publish(
                    self._exchange, key, json.dumps(data).encode(), TRANSIENT
                )

    def look_after(self) -> None:
        """Answer RabbitMQ's heartbeats."""
        if self.link.connection is not None:
            with quiet.ours():
                self.link.connection.process_data_events(0)

    def close(self) -> None:
        """End the connection, if there is one."""
        with quiet.ours():
            self.link.close()

    def reason(self, error: Exception) -> str:
        """Return why RabbitMQ did not take a message, as a sentence."""
        words = failures.in_words(error, self._config)
        return f"Exchange {self._exchange!r} of RabbitMQ got no message: {words}."


class Announcements:
    """Publishes announcements of one process in a thread, so that no task waits for RabbitMQ."""

    def __init__(self, announcer: Announcer) -> None:
        self._announcer = announcer
        self._waiting: deque[Message] = deque(maxlen=MOST_WAITING)
        self._wake_up, self._closing = WakeUp(), threading.Event()
        self._starting = threading.Lock()
        self._thread: threading.Thread | None = None

    def add(self, key: str, data: dict[str, Any]) -> None:
        """Publish a message soon."""
        with self._starting:
            self._waiting.append((key, data))
            if self._thread is None:  # also after the end of a thread that was told to close
                thread = threading.Thread(target=self._run, name="txtasks-announcer", daemon=True)
                thread.start()
                self._thread = thread
        self._wake_up.wake()

    def ask_to_close(self) -> None:
        """Tell the thread to end when it has published everything."""
        self._closing.set()
        self._wake_up.wake()

    def join(self, seconds: float) -> None:
        """Wait for the thread's end, at most ``seconds``."""
        thread = self._thread
        if thread not in (None, threading.current_thread()):
            thread.join(seconds)

    def _run(self) -> None:
        while self._goes_on():
            try:
                if not self._waiting:
                    self._wake_up.wait(LOOK_SECONDS)
                    self._announcer.look_after()
                while self._waiting:
                    self._announcer.publish([self._waiting[0]])
                    self._waiting.popleft()
            except (
                Exception
            ) as error:  # pika raises many kinds; without this thread nothing is published
                pause = self._announcer.link.failed(error)
                if self._closing.is_set():
                    return
                self._closing.wait(pause)
        self._announcer.close()

    def _goes_on(self) -> bool:
        with self._starting:
            goes_on = bool(self._waiting) or not self._closing.is_set()
            if not goes_on:
                self._thread = None
        return goes_on


def announce(config: Config, exchange: str, key: str, data: dict[str, Any]) -> None:
    """Publish a message soon, by a thread of this process. Never waits and never raises for RabbitMQ."""
    announcer = Announcer(config, exchange)
    _announcements.get((config.broker_url, exchange), Announcements, announcer).add(key, data)


_announcements: SendersOfProcess[Announcements] = SendersOfProcess()
close_all = _announcements.close_all
