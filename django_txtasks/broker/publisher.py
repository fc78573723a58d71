"""Sends hints so that no request waits for, or fails by, the broker.

A thread connects, looks after the connection, and sends what waits. Where nothing is in the way, a hint does
not wait for it: the thread that has committed gives it to the socket, which takes it at once or not at all. Waking
another thread costs both of them more, as they share the GIL. Where hints come quickly after one another, the
thread packs them together: see ``sending.rest``.

Hints are transient and unconfirmed: losing one costs latency until the next scan, no more.
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
"""Seconds between two looks at a quiet connection: well within its heartbeat."""
BUSY_LOOK_SECONDS = 1.0
"""Seconds between two looks at a busy connection."""


def of_process(config: Config) -> Publisher:
    """Return this process's publisher; the first call makes it, and one in each forked child."""
    return _publishers.get((config.broker_url, config.queue_prefix), Publisher, config)


class Publisher(HintSender):
    """Sends hints to RabbitMQ's queues, through a connection of its own.

    Attributes:
        is_away: the last connection has failed, and there is no new one yet: it tries again by itself.
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
        """Send a hint from the calling thread, without waiting. False = the publisher's thread has to do it."""
        lock = self._in_use.take_at_once() if len(ids) <= topology.IDS_PER_HINT else None
        if lock is None:
            return False
        try:
            if queue not in self._queues or self._waiting.get(queue) or queue in self._more:
                return False
            return topology.publish_now(self._link.channel, queue, hint_message.encode(ids))
        except INTERRUPTIONS:
            raise
        except Exception:  # pika raises many kinds; its thread finds out, and says so
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
        """Hear what RabbitMQ has to say, if it has said something, or that was not done a moment ago.

        It costs more than a hint does, and the requests of this process wait for the GIL meanwhile.
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
        """Make sure that the queue is there. False = RabbitMQ refuses it: what waits for it is dropped."""
        self._link.channel = self._queues.declare(self._link.channel, queue)
        if queue in self._queues:
            return True
        self._waiting[queue].clear()
        self._more.discard(queue)
        return False

    def _publish(self, queue: str, ids: deque[uuid.UUID]) -> int:
        """Pack ids that wait for one queue into one hint; return how many. It waits for no more of them.

        That there are more is said by all hints, so that as many workers look for them.
        """
        more = queue in self._more
        if more and len(ids) <= topology.IDS_PER_HINT:
            self._more.discard(queue)
        packed = [ids.popleft() for _ in range(min(len(ids), topology.IDS_PER_HINT))]
        try:
            topology.publish(self._link.channel, queue, hint_message.encode(packed, more=more))
        except Exception:  # these ids are lost; that others wait is said by the next connection
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
