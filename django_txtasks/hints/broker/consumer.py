"""Receives hints for a worker, in a thread and a connection of its own that only pass ids on."""

from __future__ import annotations

import functools
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from django_txtasks import signals
from django_txtasks.conf import Config
from django_txtasks.hints.broker import topology
from django_txtasks.hints.broker.hint_queues import HintQueues
from django_txtasks.hints.broker.link import Listener, refuse_silence
from django_txtasks.hints.sending import message as hint_message

PREFETCH_HINTS = 10


@dataclass(frozen=True)
class Hint:
    """The ids of one message, with the ways to acknowledge it.

    Attributes:
        more: True if other tasks wait that no hint names.
        settle: acknowledge this message and those before it, so that RabbitMQ forgets them.
        decline: return this message and those before it to RabbitMQ, for a worker with free slots.
    """

    ids: list[uuid.UUID]
    more: bool
    settle: Callable[[], None]
    decline: Callable[[], None]


class HintConsumer(Listener):
    """Consumes the hint queues while it should listen, and reconnects by itself.

    Args:
        queues: names of task queues.
        deliver: called in the consumer's thread with each Hint.

    Attributes:
        on_link: called in this thread: with True every few seconds while connected, with False after each failure.
    """

    def __init__(
        self, config: Config, alias: str, queues: list[str], deliver: Callable[[Hint], None]
    ) -> None:
        super().__init__(config, "Worker")
        self._queues = [topology.hint_queue(config, alias, queue) for queue in queues]
        self._deliver = deliver
        self._listen = True
        self.on_link: Callable[[bool], None] = lambda is_there: None
        self._declared = HintQueues()
        self._tags: dict[str, str] = {}
        self._hears = False

    @property
    def connected(self) -> bool:
        """True if hints can arrive: RabbitMQ has refused neither all queues nor the consumers."""
        return super().connected and self._hears

    def listen(self, on: bool) -> None:
        """Take hints from now on, or leave them to others. Returns at once, from any thread."""
        if on != self._listen:
            self._listen = on
            self.soon(self.channel, self.follow)

    def prepare(self, channel: Any) -> Any:
        """Declare the hint queues."""
        self._declared, self._tags, self._hears = HintQueues(), {}, False
        for queue in self._queues:
            channel = self._declared.declare(channel, queue)
        channel.basic_qos(prefetch_count=PREFETCH_HINTS)
        return channel

    def follow(self) -> None:
        """Start or stop to consume, as ``listen`` last said. Ask again for queues that were refused."""
        refuse_silence(self.channel, len(self._tags))
        for queue in self._queues:
            if self._declared.is_to_be_asked_for(queue):
                self._declared.declare(self.channel.connection.channel(), queue).close()
        for queue in self._queues if self._listen else ():
            if queue in self._declared and queue not in self._tags:
                receive = functools.partial(self._receive, queue)
                self._tags[queue] = self.channel.basic_consume(queue, receive)
        while self._tags and not self._listen:
            self.channel.basic_cancel(self._tags.popitem()[1])
        # a worker that is full has no consumers, and gets them again at once
        self._hears = any(queue in self._declared for queue in self._queues)
        self.on_link(self._hears)

    def broken(self) -> None:
        """Report that the connection is gone."""
        self.on_link(False)

    def _receive(self, queue: str, channel: Any, method: Any, properties: Any, body: bytes) -> None:
        tag = method.delivery_tag
        try:
            ids, more = hint_message.decode(body)
        except ValueError as error:
            channel.basic_ack(tag)
            signals.hint_refused.emit(queue=queue, error=error)
            return
        self._deliver(
            Hint(
                ids,
                more,
                settle=lambda: self.soon(channel, lambda: channel.basic_ack(tag, multiple=True)),
                decline=lambda: self.soon(
                    channel, lambda: channel.basic_nack(tag, multiple=True, requeue=True)
                ),
            )
        )
