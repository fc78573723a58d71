"""Sends hints by PostgreSQL's NOTIFY, after the commit, in a session of its own.

Never in the transaction that enqueues: transactions that notify commit one after the other. Where nothing is in
the way, the thread that has committed gives the hint to the socket, and does not wait for the answer: by another
thread, which has to be woken first, the task starts later. That thread opens the session, reads
the answers, and sends what waits. After each hint there is a rest, longer the more tasks come (see ``resting``):
what comes meanwhile is packed together, and the process and the database keep nearly all of their time for other
work.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import threading
import time
import uuid
from collections import deque
from collections.abc import Iterable
from typing import Any, NamedTuple

import psycopg  # this module is imported where there is PostgreSQL

from django_txtasks.brief_lock import BriefLock
from django_txtasks.hints import MOST_IDS, channel
from django_txtasks.hints.failures import Failures
from django_txtasks.hints.session import close, open_session
from django_txtasks.resting import Rest
from django_txtasks.wakeup import WakeEvent

FLUSH_SECONDS = 2.0
IDLE_SECONDS = 60.0
"""Seconds without a hint after which the session is closed."""
LOOK_SECONDS = 5.0
"""Seconds after which the thread looks without having been woken: a time limit may have interrupted who was to."""

_senders: dict[str, Sender] = {}
_lock = threading.Lock()
_of_parents: list[Any] = []


def of_process(alias: str) -> Sender:
    """Return this process's sender; the first call makes it, and one in each forked child."""
    sender = _senders.get(alias)
    if sender is None:
        with _lock:
            sender = _senders.setdefault(alias, Sender(alias))
    return sender


def _start_afresh() -> None:
    """Begin anew in a forked child: it has no thread, and the sessions, which nobody may end, are its parent's."""
    global _senders, _lock
    _of_parents.append(_senders)
    _senders, _lock = {}, threading.Lock()


os.register_at_fork(after_in_child=_start_afresh)


def close_all() -> None:
    """Send what waits, for at most FLUSH_SECONDS, and end."""
    senders = list(_senders.values())
    _senders.clear()
    end = time.monotonic() + FLUSH_SECONDS
    for sender in senders:
        sender.ask_to_close()
    for sender in senders:
        sender.join(max(0.0, end - time.monotonic()))


atexit.register(close_all)


class _Packed(NamedTuple):
    """A hint, and whether more tasks wait than the buffer took."""

    queue: str
    ids: list[uuid.UUID]
    more: bool

    def text(self) -> str:
        return channel.encode_hint(self.queue, self.ids, more=self.more)


class Sender:
    """A bounded buffer of ids for each task queue of one database, and the thread that packs them into hints.

    The session is used by one thread at a time, which holds ``_in_use``.
    """

    def __init__(self, alias: str) -> None:
        self._alias = alias
        self._waiting: dict[str, deque[uuid.UUID]] = {}
        self._more: set[str] = set()
        self._wake_event = WakeEvent()
        self._woken = False
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None
        self._starting = threading.Lock()
        self._session: Any = None
        self._in_use = BriefLock()
        self._unanswered: _Packed | None = None
        self._used_at = 0.0
        self._rest = Rest()
        self._failures = Failures("Sender of hints", alias)

    def notify(self, tasks: Iterable[tuple[uuid.UUID, str]]) -> None:
        """Send hints for (id, queue) pairs now, or have the thread do it."""
        for task_id, queue in tasks:
            waiting = self._waiting.get(queue)
            if waiting is None:
                waiting = self._waiting.setdefault(queue, deque())
            if len(waiting) < MOST_IDS:
                waiting.append(task_id)
            else:
                self._more.add(queue)
        try:
            self._send_at_once()
        finally:  # also where a time limit interrupts this thread
            if self._thread is None:
                self._start()
            if not self._woken:
                self._wake()

    def _send_at_once(self) -> None:
        """Give what waits to the socket, if one hint has room for it and nothing is in the way.

        The thread looks after what comes of it.
        """
        lock = self._in_use.take_at_once() if self._rest.is_over() else None
        if lock is None:
            return
        try:
            queue = self._only_queue()
            if queue is not None and self._session is not None and self._unanswered is None:
                begin, packed = time.monotonic(), self._pack(queue)
                self._unanswered = packed
                channel.send_at_once(self._session.connection, packed.text())
                self._rest.begin(begin, len(packed.ids), counts=False)
        except psycopg.Error:  # the session has ended: the thread finds out, and sends it again
            return
        finally:
            lock.release()

    def ask_to_close(self) -> None:
        """Have the thread end when it has sent what waits."""
        self._closing.set()
        self._wake()

    def join(self, seconds: float) -> None:
        """Wait for the thread's end, or for ``seconds``."""
        if self._thread is not None:
            self._thread.join(seconds)

    def _start(self) -> None:
        with self._starting, contextlib.suppress(RuntimeError):  # Python is ending: nothing is sent
            if self._thread is None:
                thread = threading.Thread(target=self._run, name="txtasks-hints", daemon=True)
                thread.start()
                self._thread = thread

    def _wake(self) -> None:
        self._woken = True
        self._wake_event.wake()

    def _something_waits(self) -> bool:
        return any(self._waiting.values()) or bool(self._more)

    def _only_queue(self) -> str | None:
        """Return the queue for which all waits that waits, if one hint has room for it."""
        names = [queue for queue, ids in list(self._waiting.items()) if ids]
        if len(names) != 1 or self._more or len(self._waiting[names[0]]) > channel.IDS_PER_HINT:
            return None
        return names[0]

    def _has_to_do(self) -> bool:
        return self._unanswered is not None or self._something_waits()

    def _run(self) -> None:
        try:
            while not self._closing.is_set() or self._has_to_do():
                if self._has_to_do():
                    if not self._rest_and_send():
                        return
                else:
                    self._wait()
        finally:
            with self._in_use.held():
                self._close()

    def _wait(self) -> None:
        """Wait for hints; whoever has some wakes the thread only now."""
        self._woken = False
        if self._has_to_do() or self._closing.is_set():
            return
        self._wake_event.wait(min(LOOK_SECONDS, IDLE_SECONDS))
        if self._session is not None and time.monotonic() >= self._used_at + IDLE_SECONDS:
            with self._in_use.held():
                if self._unanswered is None:
                    self._close()

    def _rest_and_send(self) -> bool:
        """Leave time to others, then send what waits. False = it failed, and the process ends."""
        self._closing.wait(self._rest.seconds_left())
        try:
            with self._in_use.held():
                self._open()
                self._read_answer()
                if self._something_waits():
                    begin = time.monotonic()
                    self._rest.begin(begin, self._send())
                self._used_at = time.monotonic()
        except Exception as error:  # whatever a backend raises: without this thread no hint is sent
            with self._in_use.held():
                self._close()
            pause = self._failures.failed(error)
            if self._closing.is_set():
                return False
            self._closing.wait(pause)
        return True

    def _open(self) -> None:
        if self._session is None:
            self._session = open_session(self._alias)
            channel.may_send_at_once(self._session.connection)
            self._failures.is_ready()

    def _read_answer(self) -> None:
        """Wait for the answer to what was sent at once, if it is still to come."""
        if self._unanswered is not None:
            channel.read_answer(self._session.connection)
            self._unanswered = None

    def _send(self) -> int:
        """Send what waits now, of each queue in as few messages as it fits into; return how many ids."""
        number = 0
        for queue, ids in list(self._waiting.items()):
            for _ in range(-(-len(ids) // channel.IDS_PER_HINT) or int(queue in self._more)):
                self._unanswered = packed = self._pack(queue)
                channel.send(self._session.connection, packed.text())
                self._unanswered = None
                number += len(packed.ids)
        return number

    def _pack(self, queue: str) -> _Packed:
        """Take what waits for a queue, as much of it as fits into a hint."""
        ids, more = self._waiting[queue], queue in self._more
        packed = [ids.popleft() for _ in range(min(len(ids), channel.IDS_PER_HINT))]
        if not ids:
            self._more.discard(queue)
        return _Packed(queue, packed, more)

    def _close(self) -> None:
        """End the session; what it was not known to have sent waits again."""
        packed, self._unanswered = self._unanswered, None
        if packed is not None:
            self._waiting[packed.queue].extendleft(reversed(packed.ids))
            if packed.more:
                self._more.add(packed.queue)
        session, self._session = self._session, None
        if session is not None:
            close(session)
