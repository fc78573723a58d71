"""Sends hints from a thread of its own, so that no request waits for, or fails by, the broker.

Hints are transient and unconfirmed: losing one costs latency until the next scan, no more.
"""

from __future__ import annotations

import atexit
import os
import threading
import uuid
from collections import deque
from collections.abc import Iterable

import pika

from django_txtasks import signals
from django_txtasks.broker import topology
from django_txtasks.broker.link import Link
from django_txtasks.conf import Config

BUFFER = 10_000
"""Ids that may wait; beyond them the oldest are dropped and counted."""
FLUSH_SECONDS = 2.0
IDLE_SECONDS = 5.0
"""A quiet connection is looked after this often, well within its heartbeat."""

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
    """A forked child has neither the thread nor a right to the socket: it makes its own."""
    global _publishers, _lock
    _publishers, _lock = {}, threading.Lock()


os.register_at_fork(after_in_child=_start_afresh)


def close_all() -> None:
    """Send what waits, for at most FLUSH_SECONDS, and end."""
    for publisher in list(_publishers.values()):
        publisher.close(FLUSH_SECONDS)


atexit.register(close_all)


class Publisher:
    """A bounded buffer of ids, and the thread that packs them into hints."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.dropped = 0
        self._buffer: deque[tuple[str, uuid.UUID]] = deque()
        self._wake = threading.Event()
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None
        self._starting = threading.Lock()
        self._link = Link(config, "Publisher")
        self._declared: set[str] = set()

    def notify(self, alias: str, tasks: Iterable[tuple[uuid.UUID, str]]) -> None:
        """Put hints for (id, queue) pairs into the buffer."""
        for task_id, queue in tasks:
            self._buffer.append((topology.hint_queue(self.config, alias, queue), task_id))
        self._drop(len(self._buffer) - BUFFER)
        if self._thread is None:
            self._start()
        self._wake.set()

    def close(self, seconds: float) -> None:
        """Stop, after sending what waits or after ``seconds``, whichever comes first."""
        self._closing.set()
        self._wake.set()
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
        while not (self._closing.is_set() and not self._buffer):
            try:
                self._publish_what_waits()
            except (
                Exception
            ) as error:  # pika raises many kinds; without this thread no hint is sent
                pause = self._link.failed(error)
                if self._closing.is_set():
                    return
                self._closing.wait(pause)
            else:
                self._wake.wait(IDLE_SECONDS)
            self._wake.clear()
        self._link.close()

    def _publish_what_waits(self) -> None:
        if self._link.connection is None:
            if not self._buffer:
                return
            self._connect()
        while self._buffer:
            self._publish(*self._next_hint())
        if self._link.connection is not None:
            self._link.connection.process_data_events(0)

    def _next_hint(self) -> tuple[str, list[uuid.UUID]]:
        """Take the ids at the head of the buffer that go to one queue: waiting ones, no waiting for more."""
        queue, task_id = self._buffer.popleft()
        ids = [task_id]
        while len(ids) < topology.IDS_PER_HINT and self._buffer and self._buffer[0][0] == queue:
            ids.append(self._buffer.popleft()[1])
        return queue, ids

    def _publish(self, queue: str, ids: list[uuid.UUID]) -> None:
        if queue not in self._declared:
            self._link.channel = topology.declare(self._link.channel, queue)
            self._declared.add(queue)
        transient = pika.BasicProperties(content_type="application/json", delivery_mode=1)
        self._link.channel.basic_publish("", queue, topology.encode_hint(ids), transient)

    def _connect(self) -> None:
        self._declared.clear()
        self._link.ready(self._link.open().channel())

    def _drop(self, surplus: int) -> None:
        if surplus <= 0:
            return
        for _ in range(surplus):
            try:
                self._buffer.popleft()
            except IndexError:  # the thread has just sent it
                break
            self.dropped += 1
            if self.dropped % BUFFER == 1:
                signals.hints_dropped.tell(count=self.dropped)
