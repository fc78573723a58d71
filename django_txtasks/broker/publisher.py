"""Sends hints, so that no request waits for the broker, or fails because of it.

A thread connects, looks after the connection, and sends waiting hints. If nothing is in the way, a hint does not
wait for this thread: the thread that has committed gives it to the socket, which takes it at once or not at all.
To wake another thread would cost both threads more, because they share the GIL. If many hints come within a short
time, the thread packs them together: see ``sending.rest``.

Hints are transient and unconfirmed: a lost hint costs only latency until the next scan.
"""

from __future__ import annotations

import time
import uuid
from collections import deque
from collections.abc import Mapping, Sequence

from django_txtasks.broker import quiet, topology
from django_txtasks.broker.hint_queues import HintQueues
from django_txtasks.broker.link import Link
from django_txtasks.conf import Config
from django_txtasks.exceptions import INTERRUPTIONS
from django_txtasks.sending import message as hint_message
from django_txtasks.sending.sender import HintSender, SendersOfProcess

QUIET_LOOK_SECONDS = 5.0
"""Seconds between two looks at an idle connection: much less than its heartbeat."""
BUSY_LOOK_SECONDS = 1.0
"""Seconds between two looks at a busy connection."""


def of_process(config: Config) -> Publisher:
    """Return this process's publisher. The first call creates it; each forked child creates its own."""
    return _publishers.get((config.broker_url, config.queue_prefix), Publisher, config)


class Publisher(HintSender):
    """Sends hints to RabbitMQ's queues, through a connection of its own.

    Attributes:
        is_away: True if the last connection has failed and there is no new one yet. The thread keeps trying.
    """

    def __init__(self, config: Config) -> None:
        super().__init__("txtasks-publisher", QUIET_LOOK_SECONDS)
        self.config = config
        self._link = Link(config, "Publisher")
        self._queues = HintQueues()
        self._looked_at = 0.0
        self.is_away = False

    def notify(self, alias: str, of_queue: Mapping[str, Sequence[uuid.UUID]]) -> None:
        """Send hints of these ids, by queue, now, or put them into the buffer."""
        is_resting, begin, sent = not self._rest.is_over(), time.monotonic(), 0
        for name, ids in of_queue.items():
            queue = topology.hint_queue(self.config, alias, name)
            if is_resting or not self._send_now(queue, ids):
                self._keep(queue, ids)
                self._have_it_sent()
            else:
                sent += len(ids)
        if sent:
            self._rest.begin(begin, sent)

    def _send_now(self, queue: str, ids: Sequence[uuid.UUID]) -> bool:
        """Send a hint from the calling thread, without waiting. Return False if it is left to the thread."""
        lock = self._in_use.take_at_once() if len(ids) <= topology.IDS_PER_HINT else None
        if lock is None:
            return False
        try:
            if queue not in self._queues or self._waiting.get(queue) or queue in self._more:
                return False
            return topology.publish_now(self._link.channel, queue, hint_message.encode(ids))
        except INTERRUPTIONS:
            raise
        except Exception:  # pika raises many kinds of errors; its thread notices and logs them
            return False
        finally:
            lock.release()

    def _run(self) -> None:
        with quiet.ours():
            super()._run()

    def _send_what_waits(self) -> None:
        if self._link.connection is not None:
            self._look_after()
        else:
            self._connect()
        while self._something_waits():
            of_queue = {
                queue: ids
                for queue, ids in list(self._waiting.items())
                if (ids or queue in self._more) and self._declare(queue)
            }
            begin = time.monotonic()
            number = sum(self._publish(queue, ids) for queue, ids in of_queue.items())
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
        return self._something_waits() or (self.is_away and not self._closing.is_set())

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
        self._waiting[queue].clear()
        self._more.discard(queue)
        return False

    def _publish(self, queue: str, ids: deque[uuid.UUID]) -> int:
        """Send the waiting ids of one queue in one hint. Return their number. It does not wait for more ids.

        Each hint says whether more tasks wait, so that as many workers as possible look for them.
        """
        more = queue in self._more
        if more and len(ids) <= topology.IDS_PER_HINT:
            self._more.discard(queue)
        packed = [ids.popleft() for _ in range(min(len(ids), topology.IDS_PER_HINT))]
        try:
            topology.publish(self._link.channel, queue, hint_message.encode(packed, more=more))
        except Exception:  # these ids are lost; the next connection says that other tasks wait
            if more:
                self._more.add(queue)
            raise
        return len(packed)

    def _connect(self) -> None:
        self._queues = HintQueues()
        self._link.ready(self._link.open().channel())
        self.is_away = False


_publishers: SendersOfProcess[Publisher] = SendersOfProcess()
close_all = _publishers.close_all
