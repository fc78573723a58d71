"""Queues that RabbitMQ refuses, as one whose node of a cluster is away: others go on without them."""

from __future__ import annotations

import logging
import time

from pika.exceptions import ChannelClosedByBroker

from django_txtasks import signals
from django_txtasks.broker import failures

REFUSED_SECONDS = 30.0
"""Seconds until a queue that was refused is asked for again."""


class Refusals:
    """The queues that were refused lately, as one connection's owner knows them."""

    def __init__(self) -> None:
        self._until: dict[str, float] = {}

    def has(self, queue: str) -> bool:
        """Say whether it was refused lately."""
        return time.monotonic() < self._until.get(queue, 0.0)

    def note(self, queue: str, error: ChannelClosedByBroker) -> None:
        """Note that it is refused; the first time in a while it is a warning."""
        self._until[queue] = time.monotonic() + REFUSED_SECONDS
        text = f"{error.reply_code} {error.reply_text}"
        level = logging.WARNING if failures.news.is_news(queue, text) else logging.DEBUG
        signals.queue_refused.emit(level=level, queue=queue, error=text, delay=REFUSED_SECONDS)
