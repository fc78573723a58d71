"""A connection to RabbitMQ that is opened again after each failure, later and later."""

from __future__ import annotations

import contextlib
import os
from datetime import timedelta
from typing import Any

import pika

from django_txtasks import signals
from django_txtasks.broker import topology
from django_txtasks.conf import Config
from django_txtasks.retry import backoff


class Link:
    """One thread's connection and channel.

    Args:
        who: shown in the log, and in RabbitMQ's list of connections.
    """

    def __init__(self, config: Config, who: str) -> None:
        self.config, self.who = config, who
        self.connection: pika.BlockingConnection | None = None
        self.channel: Any = None
        self._failures = 0

    def open(self) -> pika.BlockingConnection:
        """Connect; ``channel`` is there once the caller has prepared it and set it."""
        name = f"txtasks {self.who.lower()} {os.getpid()}"
        self.connection = topology.connect(self.config, name)
        return self.connection

    def ready(self, channel: Any) -> None:
        """The channel can be used; failures are forgotten."""
        self.channel, self._failures = channel, 0
        signals.broker_connected.tell(who=self.who, broker=topology.shown_url(self.config))

    def close(self) -> None:
        """Throw the connection away, whatever state it is in."""
        connection, self.connection, self.channel = self.connection, None, None
        if connection is not None and connection.is_open:
            with contextlib.suppress(Exception):
                connection.close()

    def failed(self, error: Exception) -> float:
        """Throw the connection away; return how many seconds to wait before the next one."""
        self.close()
        self._failures += 1
        pause = backoff(
            self._failures, base=timedelta(seconds=1), ceiling=timedelta(seconds=30)
        ).total_seconds()
        signals.broker_failed.tell(
            who=self.who, broker=topology.shown_url(self.config), error=repr(error), delay=pause
        )
        return pause
