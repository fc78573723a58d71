"""The hint queues of a connection. If RabbitMQ refuses a queue, for example because its node is down, others
continue.
"""

from __future__ import annotations

import logging
import time
from typing import Any

from pika.exceptions import ChannelClosedByBroker

from django_txtasks import signals
from django_txtasks.conf import MAX_NAME_BYTES
from django_txtasks.hints.broker import failures, topology

REFUSED_SECONDS = 30.0
"""Seconds until a refused queue is tried again."""


class HintQueues:
    """The queues that this connection has declared, and the queues that were refused lately."""

    def __init__(self) -> None:
        self._declared: set[str] = set()
        self._refused_until: dict[str, float] = {}

    def __contains__(self, queue: str) -> bool:
        """Return True if the queue is declared."""
        return queue in self._declared

    def is_to_be_asked_for(self, queue: str) -> bool:
        """Return True if the queue is not declared, and was not refused lately."""
        is_refused = time.monotonic() < self._refused_until.get(queue, 0.0)
        return not is_refused and queue not in self._declared

    def declare(self, channel: Any, queue: str) -> Any:
        """Declare the queue, unless RabbitMQ refuses it. Return the channel to use from now on."""
        if not self.is_to_be_asked_for(queue):
            return channel
        size = len(queue.encode())
        if size > MAX_NAME_BYTES:  # pika would raise, and no other queue would get hints
            text = f"the name has {size} bytes, and RabbitMQ takes {MAX_NAME_BYTES}"
            self._note_refusal(queue, text)
            return channel
        connection = channel.connection
        try:
            channel = topology.declare(channel, queue)
            self._declared.add(queue)
        except ChannelClosedByBroker as error:
            self._note_refusal(queue, f"{error.reply_code} {error.reply_text}")
            channel = connection.channel()
        return channel

    def _note_refusal(self, queue: str, text: str) -> None:
        """Leave the queue alone for a while. The first refusal in a while is a warning."""
        self._refused_until[queue] = time.monotonic() + REFUSED_SECONDS
        level = logging.WARNING if failures.news.is_news(queue, text) else logging.DEBUG
        signals.queue_refused.emit(level=level, queue=queue, error=text, delay=REFUSED_SECONDS)
