"""Sends hints by PostgreSQL's NOTIFY, after the commit, from a thread and a session of its own.

Never in the transaction that enqueues: transactions that notify commit one after the other. It sends the first
hint at once and then rests, longer the more tasks come (see ``resting``), so that what comes meanwhile is packed
together and the process, and the database, keep nearly all of their time for other work.
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
from typing import Any

from django_txtasks.hints import MOST_IDS, channel
from django_txtasks.hints.failures import Failures
from django_txtasks.hints.session import close, open_session
from django_txtasks.resting import Rest
from django_txtasks.wakeup import WakeEvent

FLUSH_SECONDS = 2.0
IDLE_SECONDS = 60.0
"""Seconds without a hint after which the session is closed."""

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


class Sender:
    """A bounded buffer of ids for each task queue of one database, and the thread that packs them into hints."""

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
        self._rest = Rest()
        self._failures = Failures("Sender of hints", alias)

    def notify(self, tasks: Iterable[tuple[uuid.UUID, str]]) -> None:
        """Put hints for (id, queue) pairs into the buffer."""
        for task_id, queue in tasks:
            waiting = self._waiting.get(queue)
            if waiting is None:
                waiting = self._waiting.setdefault(queue, deque())
            if len(waiting) < MOST_IDS:
                waiting.append(task_id)
            else:
                self._more.add(queue)
        if self._thread is None:
            self._start()
        if not self._woken:
            self._wake()

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

    def _run(self) -> None:
        try:
            while not self._closing.is_set() or self._something_waits():
                if self._something_waits():
                    if not self._send_and_rest():
                        return
                else:
                    self._wait()
        finally:
            self._close()

    def _wait(self) -> None:
        """Wait for hints; whoever has some wakes the thread only now."""
        self._woken = False
        if self._something_waits() or self._closing.is_set():
            return
        end = time.monotonic() + IDLE_SECONDS
        self._wake_event.wait(IDLE_SECONDS if self._session else threading.TIMEOUT_MAX)
        if not self._woken and time.monotonic() >= end:  # not where an old call woke it
            self._close()

    def _send_and_rest(self) -> bool:
        """Send what waits, then leave time to others. False = it failed, and the process ends."""
        try:
            self._open()
            begin = time.monotonic()
            self._rest.begin(begin, self._send())
            pause = self._rest.seconds_left()
        except Exception as error:  # whatever a backend raises: without this thread no hint is sent
            self._close()
            pause = self._failures.failed(error)
            if self._closing.is_set():
                return False
        self._closing.wait(pause)
        return True

    def _open(self) -> None:
        if self._session is None:
            self._session = open_session(self._alias)
            self._failures.is_ready()

    def _send(self) -> int:
        """Send what waits now, of each queue in as few messages as it fits into; return how many ids."""
        number = 0
        for queue, ids in list(self._waiting.items()):
            more = queue in self._more
            self._more.discard(queue)
            for _ in range(-(-len(ids) // channel.IDS_PER_HINT) or int(more)):
                packed = [ids.popleft() for _ in range(min(len(ids), channel.IDS_PER_HINT))]
                text = channel.encode_hint(queue, packed, more=more)
                try:
                    channel.send(self._session.connection, text)
                except BaseException:  # the session was cut while it was idle: by the next one
                    ids.extendleft(reversed(packed))
                    if more:
                        self._more.add(queue)
                    raise
                number += len(packed)
        return number

    def _close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            close(session)
