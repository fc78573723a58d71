"""Sends hints to RabbitMQ, so that no request waits for the broker, or fails because of it.

A thread connects, looks after the connection, and sends the hints that a committing thread cannot send without
waiting. If many hints come within a short time, the sender's thread packs them together: see
``hints.sending.rest``.

Hints are transient and unconfirmed: a lost hint costs only latency until the next scan.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping, Sequence

from django_txtasks.conf import Config
from django_txtasks.exceptions import INTERRUPTIONS
from django_txtasks.hints.broker import quiet, topology
from django_txtasks.hints.broker.hint_queues import HintQueues
from django_txtasks.hints.broker.link import Link
from django_txtasks.hints.sending.buffer import Packed
from django_txtasks.hints.sending.sender import HintSender, SendersOfProcess

QUIET_LOOK_SECONDS = 5.0
"""Seconds between two looks at an idle connection: much less than its heartbeat."""
BUSY_LOOK_SECONDS = 1.0
"""Seconds between two looks at a busy connection."""


def of_process(config: Config) -> Publisher:
    """Return this process's publisher. The first call creates it; each forked child creates its own."""
    return _publishers.get((config.broker_url, config.queue_prefix), Publisher, config)


def notify(config: Config, alias: str, of_queue: Mapping[str, Sequence[uuid.UUID]]) -> None:
    """Send hints of these ids, by task queue, now, or let the publisher's thread do it."""
    queue = topology.hint_queue
    of_process(config).notify({queue(config, alias, name): ids for name, ids in of_queue.items()})


class Publisher(HintSender):
    """Sends hints to RabbitMQ's queues, through a connection of its own.

    Attributes:
        is_away: True if the last connection has failed and there is no new one yet. The thread keeps trying.
    """

    def __init__(self, config: Config) -> None:
        super().__init__("txtasks-publisher", QUIET_LOOK_SECONDS, topology.IDS_PER_HINT)
        self.config = config
        self._link = Link(config, "Publisher")
        self._queues = HintQueues()
        self._looked_at = 0.0
        self.is_away = False

    def _may_give(self, queue: str) -> bool:
        return queue in self._queues

    def _give(self, packed: Packed) -> bool:
        try:
            return topology.publish_now(self._link.channel, packed.queue, packed.message())
        except INTERRUPTIONS:
            raise
        except Exception:  # pika raises many kinds of errors; its thread notices and logs them
            return False

    def _run(self) -> None:
        with quiet.ours():
            super()._run()

    def _send_what_waits(self) -> None:
        if self._link.connection is not None:
            self._look_after()
        else:
            self._connect()
        while self._buffer:
            queues = [queue for queue in self._buffer.queues() if self._declare(queue)]
            begin = time.monotonic()
            number = sum(self._publish(self._buffer.pack(queue)) for queue in queues)
            self._rest.begin(begin, number)

    def _look_after(self) -> None:
        """Read what RabbitMQ has sent, if it has sent anything, or if the last look is not recent.

        This costs more than a hint, and the requests of this process wait for the GIL meanwhile.
        """
        connection, now = self._link.connection, time.monotonic()
        if connection is None:
            return
        is_due = now - self._looked_at > BUSY_LOOK_SECONDS
        if is_due or topology.has_something_to_say(connection):
            self._looked_at = now
            connection.process_data_events(0)

    def _has_to_do(self) -> bool:
        return bool(self._buffer) or (self.is_away and not self._closing.is_set())

    def _failed(self, error: Exception) -> float:
        self.is_away = True
        return self._link.failed(error)

    def _close(self) -> None:
        self._link.close()

    def _declare(self, queue: str) -> bool:
        """Declare the queue. Return False if RabbitMQ refuses it; then its waiting hints are dropped."""
        self._link.channel = self._queues.declare(self._link.channel, queue)
        if queue in self._queues:
            return True
        self._buffer.drop(queue)
        return False

    def _publish(self, packed: Packed) -> int:
        """Send a hint. Return the number of its ids."""
        try:
            topology.publish(self._link.channel, packed.queue, packed.message())
        except Exception:
            self._buffer.put_back(packed)
            raise
        return len(packed.ids)

    def _connect(self) -> None:
        self._queues = HintQueues()
        self._link.ready(self._link.open().channel())
        self.is_away = False


_publishers: SendersOfProcess[Publisher] = SendersOfProcess()
close_all = _publishers.close_all
