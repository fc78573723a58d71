"""Sends hints so that no request waits for, or fails by, the broker.

A thread connects, looks after the connection, and sends what waits. Where nothing is in the way, a hint does
not wait for it: the thread that has committed gives it to the socket, which takes it at once or not at all. Waking
another thread costs both of them more, as they share the GIL. Where hints come quickly after one another, the
thread packs them together: see ``resting``.

Hints are transient and unconfirmed: losing one costs latency until the next scan, no more.
"""

from __future__ import annotations

import atexit
import os
import threading
import time
import uuid
from collections import deque
from collections.abc import Iterable

import pika

from django_txtasks.brief_lock import BriefLock
from django_txtasks.broker import BUFFER_IDS, quiet, topology
from django_txtasks.broker.link import Link
from django_txtasks.conf import Config
from django_txtasks.resting import Rest
from django_txtasks.wakeup import WakeEvent

FLUSH_SECONDS = 2.0
IDLE_SECONDS = 5.0
"""Seconds between two looks at a quiet connection: well within its heartbeat."""
LOOK_SECONDS = 1.0
"""Seconds between two looks at a busy connection."""

_publishers: dict[tuple[str | None, str], Publisher] = {}
_lock = threading.Lock()


def of_process(config: Config) -> Publisher:
    """Return this process's publisher; the first call makes it, and one in each forked child."""
    key = (config.broker_url, config.queue_prefix)
    publisher = _publishers.get(key)
    if publisher is None:
        with _lock:
            publisher = _publishers.setdefault(key, Publisher(config))
    return publisher


def _start_afresh() -> None:
    """Begin anew in a forked child: it has no thread, and the socket belongs to its parent."""
    global _publishers, _lock
    _publishers, _lock = {}, threading.Lock()


os.register_at_fork(after_in_child=_start_afresh)


def close_all() -> None:
    """Send what waits, for at most FLUSH_SECONDS, and end."""
    for publisher in list(_publishers.values()):
        publisher.close(FLUSH_SECONDS)


atexit.register(close_all)


class Publisher:
    """A bounded buffer of ids for each of RabbitMQ's queues, and the thread that packs them into hints.

    The connection is used by one thread at a time, which holds ``_in_use``.
    """

    def __init__(self, config: Config) -> None:
        self.config = config
        self._waiting: dict[str, deque[uuid.UUID]] = {}
        self._more: set[str] = set()
        self._wake_event = WakeEvent()
        self._woken = False
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None
        self._starting = threading.Lock()
        self._in_use = BriefLock()
        self._link = Link(config, "Publisher")
        self._declared: set[str] = set()
        self._looked_at = 0.0
        self._rest = Rest()

    def notify(self, alias: str, tasks: Iterable[tuple[uuid.UUID, str]]) -> None:
        """Send hints for (id, queue) pairs now, or put them into the buffer."""
        of_queue: dict[str, list[uuid.UUID]] = {}
        for task_id, name in tasks:
            of_queue.setdefault(name, []).append(task_id)
        is_resting, begin, sent = not self._rest.is_over(), time.monotonic(), 0
        for name, ids in of_queue.items():
            queue = topology.hint_queue(self.config, alias, name)
            if is_resting or not self._send_now(queue, ids):
                self._send_later(queue, ids)
            else:
                sent += len(ids)
        if sent:
            self._rest.begin(begin, sent)

    def _send_now(self, queue: str, ids: list[uuid.UUID]) -> bool:
        """Send a hint from the calling thread, without waiting. False = the publisher's thread has to do it."""
        lock = self._in_use.take_at_once() if len(ids) <= topology.IDS_PER_HINT else None
        if lock is None:
            return False
        try:
            if queue not in self._declared or self._waiting.get(queue) or queue in self._more:
                return False
            return topology.publish_now(self._link.channel, queue, topology.encode_hint(ids))
        except Exception:  # pika raises many kinds; its thread finds out, and says so
            return False
        finally:
            lock.release()

    def _send_later(self, queue: str, ids: list[uuid.UUID]) -> None:
        """Put ids into the buffer, and wake the thread."""
        waiting = self._waiting.setdefault(queue, deque())
        room = max(0, BUFFER_IDS - len(waiting))
        waiting.extend(ids[:room])
        if len(ids) > room:
            self._more.add(queue)
        if self._thread is None:
            self._start()
        if not self._woken:
            self._wake()

    def close(self, seconds: float) -> None:
        """Stop, after sending what waits or after ``seconds``, whichever comes first."""
        self._closing.set()
        self._wake()
        if self._thread is not None:
            self._thread.join(seconds)

    def _start(self) -> None:
        with self._starting:
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, name="txtasks-publisher", daemon=True
                )
                self._thread.start()

    def _run(self) -> None:
        with quiet.ours():
            self._publish_until_closed()

    def _publish_until_closed(self) -> None:
        while not (self._closing.is_set() and not self._something_waits()):
            try:
                with self._in_use.held():
                    self._publish_what_waits()
            except (
                Exception
            ) as error:  # pika raises many kinds; without this thread no hint is sent
                with self._in_use.held():
                    pause = self._link.failed(error)
                if self._closing.is_set():
                    return
                self._closing.wait(pause)
            else:
                self._wake_event.wait(IDLE_SECONDS)
                self._closing.wait(self._rest.seconds_left())
            self._woken = False  # before looking at what waits: what comes later wakes it again
        with self._in_use.held():
            self._link.close()

    def _wake(self) -> None:
        self._woken = True
        self._wake_event.wake()

    def _something_waits(self) -> bool:
        return any(self._waiting.values()) or bool(self._more)

    def _publish_what_waits(self) -> None:
        if self._link.connection is not None:
            self._look_after(self._link.connection)
        elif self._something_waits():
            self._connect()
        while self._something_waits():
            of_queue = {
                queue: ids
                for queue, ids in list(self._waiting.items())
                if ids or queue in self._more
            }
            for queue in of_queue:
                self._declare(queue)
            begin = time.monotonic()
            number = sum(self._publish(queue, ids) for queue, ids in of_queue.items())
            self._rest.begin(begin, number)

    def _look_after(self, connection: pika.BlockingConnection) -> None:
        """Hear what RabbitMQ has to say, if it has said something, or that was not done a moment ago.

        It costs more than a hint does, and the requests of this process wait for the GIL meanwhile.
        """
        now = time.monotonic()
        if now - self._looked_at > LOOK_SECONDS or topology.has_something_to_say(connection):
            self._looked_at = now
            connection.process_data_events(0)

    def _declare(self, queue: str) -> None:
        if queue not in self._declared:
            self._link.channel = topology.declare(self._link.channel, queue)
            self._declared.add(queue)

    def _publish(self, queue: str, ids: deque[uuid.UUID]) -> int:
        """Pack ids that wait for one queue into one hint; return how many. It waits for no more of them.

        That there are more is said by all hints, so that as many workers look for them.
        """
        more = queue in self._more
        if more and len(ids) <= topology.IDS_PER_HINT:
            self._more.discard(queue)
        packed = [ids.popleft() for _ in range(min(len(ids), topology.IDS_PER_HINT))]
        try:
            topology.publish(self._link.channel, queue, topology.encode_hint(packed, more=more))
        except Exception:  # these ids are lost; that others wait is said by the next connection
            if more:
                self._more.add(queue)
            raise
        return len(packed)

    def _connect(self) -> None:
        self._declared.clear()
        self._link.ready(self._link.open().channel())
