"""The last will of a worker: the message that RabbitMQ gives to the cleaners when the worker's connection dies.

No plugin is needed. The worker receives its own message and never acknowledges it. When the connection dies, the
message returns to its queue, has expired there, and is dead-lettered. The will has a connection of its own,
because under a memory or disk alarm RabbitMQ blocks every connection that publishes, and a hint must not wait for
that. A will that cannot be written during an alarm is missing until the alarm ends; the lease still works.
"""

from __future__ import annotations

import queue
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from django_txtasks import signals
from django_txtasks.conf import Config
from django_txtasks.hints.broker import topology
from django_txtasks.hints.broker.connection import TRANSIENT
from django_txtasks.hints.broker.link import Listener, all_of, refuse_silence

RENEW_AFTER_SECONDS = 300.0
"""Seconds until a new will replaces the old one. RabbitMQ closes channels that do not acknowledge for 30 min."""
RENEW_PAUSE_SECONDS = 1.0
"""Minimum seconds between two wills that suspicions ask for. Each will has a queue, which stays for a minute."""
PREFETCH_WILLS = 100
RETURN_TIMEOUT_SECONDS = 2.0
"""Seconds after which a will that RabbitMQ did not return is written again."""


class LastWillConnection(Listener):
    """Holds one unacknowledged message in this worker's name.

    Each connection, worker id and repetition has a will with a new number, in a queue of its own, so that RabbitMQ
    cannot hand a new will to an old, half-open connection.

    Args:
        changed: called in the thread when a will is held, and when it is no longer held.
    """

    def __init__(self, config: Config, alias: str, changed: Callable[[], None]) -> None:
        super().__init__(config, "Worker (crash-detection connection)")
        self._alias, self._changed = alias, changed
        self._worker: uuid.UUID | None = None
        self._number = 0
        self._written: tuple[uuid.UUID, int] | None = None
        self._held: tuple[uuid.UUID, int] | None = None
        self._tag = 0
        self._written_at = 0.0
        self._renewed_at = float("-inf")

    def number_for(self, worker: uuid.UUID) -> int:
        """Return the number of the will that RabbitMQ holds for this worker; 0 = none yet."""
        if worker != self._worker:
            self._worker = worker
            self.soon(self.channel, self.follow)
        held = self._held
        return held[1] if held is not None and held[0] == worker else 0

    def renew(self) -> None:
        """Let the thread replace the present will, at most once in RENEW_PAUSE_SECONDS."""
        now = time.monotonic()
        if now - self._renewed_at >= RENEW_PAUSE_SECONDS:
            self._renewed_at = now
            self.soon(self.channel, self._renew)

    def prepare(self, channel: Any) -> Any:
        """Declare the cleaners' queue; without it a will would vanish."""
        self._written = None
        return topology.declare(
            channel, topology.lost_queue(self.config, self._alias), topology.LOST_ARGUMENTS
        )

    def follow(self) -> None:
        """Write a will for the present worker, if the worker has no will, or an old one."""
        refuse_silence(self.channel, self._written is not None)
        limit = RENEW_AFTER_SECONDS if self._held is not None else RETURN_TIMEOUT_SECONDS
        old = time.monotonic() - self._written_at > limit
        if self._worker is not None and (
            self._written is None or self._written[0] != self._worker or old
        ):
            self._write(self._worker)

    def broken(self) -> None:
        """Note that RabbitMQ now tells the cleaners, so the worker has to show that it lives."""
        self._held = None
        self._changed()

    def stop(self, seconds: float = 2.0) -> None:
        """Take the will back, and end."""
        self.soon(self.channel, self._take_back)
        super().stop(seconds)

    def _write(self, worker: uuid.UUID) -> None:
        """Consume first, because a message that is not received at once expires.

        Raises:
            ConnectionError: RabbitMQ refuses the queue.
        """
        self._take_back()
        for tag in list(self.channel.consumer_tags):
            self.channel.basic_cancel(tag)
        self._number += 1
        self._written, self._written_at = (worker, self._number), time.monotonic()
        name = topology.will_queue(self.config, worker, self._number)
        arguments = topology.will_arguments(self.config, self._alias)
        if topology.declare(self.channel, name, arguments) is not self.channel:
            raise ConnectionError(f"RabbitMQ refuses the queue {name}")
        self.channel.basic_consume(name, self._receive)
        self.channel.basic_publish("", name, topology.encode_will(*self._written), TRANSIENT)

    def _renew(self) -> None:
        if self._held is not None:
            self._write(self._held[0])

    def _receive(self, channel: Any, method: Any, properties: Any, body: bytes) -> None:
        """Keep the message unacknowledged."""
        self._held, self._tag = self._written, method.delivery_tag
        self._changed()

    def _take_back(self) -> None:
        if self._held is not None:
            self._held = None
            self.channel.basic_ack(self._tag)


@dataclass(frozen=True)
class DeliveredWill:
    """One last will that RabbitMQ has delivered.

    Attributes:
        settle: acknowledge it, because it is recorded. RabbitMQ then forgets it.
    """

    worker: uuid.UUID
    number: int
    settle: Callable[[], None]


class LastWillConsumer(Listener):
    """Receives the last wills of workers, for a cleaner.

    Args:
        wake: called in the thread when a will has come.
    """

    def __init__(self, config: Config, alias: str, wake: Callable[[], None]) -> None:
        super().__init__(config, f"Cleaner of {alias!r}")
        self._queue = topology.lost_queue(config, alias)
        self._wake = wake
        self._wills: queue.SimpleQueue[DeliveredWill] = queue.SimpleQueue()

    @property
    def unbroken(self) -> int:
        """Return a number that changes whenever the connection does; 0 = there is no connection now."""
        return self.generation if self.connected else 0

    def take(self) -> list[DeliveredWill]:
        """Return the wills that have come since the last call."""
        return all_of(self._wills)

    def prepare(self, channel: Any) -> Any:
        """Declare the queue, and consume."""
        channel = topology.declare(channel, self._queue, topology.LOST_ARGUMENTS)
        channel.basic_qos(prefetch_count=PREFETCH_WILLS)
        channel.basic_consume(self._queue, self._receive)
        return channel

    def _receive(self, channel: Any, method: Any, properties: Any, body: bytes) -> None:
        tag = method.delivery_tag
        try:
            worker, number = topology.decode_will(body)
        except ValueError as error:
            channel.basic_ack(tag)
            signals.hint_refused.emit(queue=self._queue, error=error)
            return
        self._wills.put(
            DeliveredWill(
                worker, number, lambda: self.soon(channel, lambda: channel.basic_ack(tag))
            )
        )
        self._wake()
