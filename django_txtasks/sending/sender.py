"""A sender of hints, as RabbitMQ's and PostgreSQL's are: a buffer, and a thread that sends what waits in it."""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
import threading
import time
import uuid
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from typing import Any, Generic, TypeVar

from django_txtasks.sending.lock import BriefLock
from django_txtasks.sending.rest import Rest
from django_txtasks.signals.queue import close_connections
from django_txtasks.wakeup import WakeEvent

FLUSH_SECONDS = 2.0
BUFFER_IDS = 1_000
"""Ids that may wait for a queue. Of further ones hints say only that there are more."""


class HintSender(ABC):
    """A bounded buffer of ids for each queue, and the thread that packs them into hints.

    The connection is used by one thread at a time, which holds ``_in_use``. Subclasses say what a connection is.

    Args:
        name: of the thread.
        look_seconds: how often it looks after a quiet connection, and whether something waits: a time limit may
            have interrupted who was to wake it.
    """

    def __init__(self, name: str, look_seconds: float) -> None:
        self._name, self._look_seconds = name, look_seconds
        self._waiting: dict[str, deque[uuid.UUID]] = {}
        self._more: set[str] = set()
        self._wake_event = WakeEvent()
        self._woken = False
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None
        self._starting = threading.Lock()
        self._in_use = BriefLock()
        self._rest = Rest()

    def ask_to_close(self) -> None:
        """Have the thread end when it has sent what waits."""
        self._closing.set()
        self._wake()

    def join(self, seconds: float) -> None:
        """Wait for the thread's end, or for ``seconds``; in that thread itself return at once.

        A process of uWSGI runs its exit handlers in the thread that a signal has come to.
        """
        if self._thread not in (None, threading.current_thread()):
            self._thread.join(seconds)

    @abstractmethod
    def _send_what_waits(self) -> None:
        """Send it, of each queue in as few hints as it fits into, and rest. The thread holds ``_in_use``."""

    @abstractmethod
    def _look_after(self) -> None:
        """Look after the connection while nothing waits. The thread holds ``_in_use``."""

    @abstractmethod
    def _close(self) -> None:
        """End the connection, if there is one. The thread holds ``_in_use``."""

    @abstractmethod
    def _failed(self, error: Exception) -> float:
        """Close, and return how many seconds to wait before the next try. The thread holds ``_in_use``."""

    def _keep(self, queue: str, ids: Sequence[uuid.UUID]) -> None:
        """Put ids into the buffer, of many the first ones."""
        waiting = self._waiting.get(queue)
        if waiting is None:
            waiting = self._waiting.setdefault(queue, deque())
        room = BUFFER_IDS - len(waiting)
        if len(ids) <= room:
            waiting.extend(ids)
            return
        waiting.extend(ids[: max(0, room)])
        self._more.add(queue)  # last: it has to outlive who empties the buffer meanwhile

    def _have_it_sent(self) -> None:
        """Have the thread send what waits; the first call starts it.

        Raises:
            RuntimeError: this process must have no thread yet.
        """
        if self._thread is None:
            _refuse_before_a_blind_fork()
            self._start()
        if not self._woken:
            self._wake()

    def _start(self) -> None:
        with self._starting, contextlib.suppress(RuntimeError):  # Python is ending: nothing is sent
            if self._thread is None:
                thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                thread.start()
                self._thread = thread

    def _wake(self) -> None:
        self._woken = True
        self._wake_event.wake()

    def _something_waits(self) -> bool:
        return any(self._waiting.values()) or bool(self._more)

    def _has_to_do(self) -> bool:
        """Say whether the thread has something to do at once."""
        return self._something_waits()

    def _run(self) -> None:
        ours = threading.current_thread()
        with self._starting:
            if self._thread is None:  # who started it was interrupted before it could say so
                self._thread = ours
        if self._thread is not ours:  # somebody else has started another one since
            return
        try:
            self._send_until_closed()
        finally:
            with self._starting:
                if not self._closing.is_set():  # an error has ended it; another one will start
                    self._thread, self._woken = None, False
            with self._in_use.held():
                self._close()

    def _send_until_closed(self) -> None:
        while not self._closing.is_set() or self._has_to_do():
            try:
                if self._has_to_do():
                    self._leave_time_to_others()
                    with self._in_use.held():
                        self._send_what_waits()
                    self._leave_time_to_others()  # now: who commits meanwhile need not wake this thread
                else:
                    self._wait()
            except Exception as error:  # of many kinds; without this thread no hint is sent
                with self._in_use.held():
                    pause = self._failed(error)
                close_connections()  # of receivers of the signal: no request uses this thread
                if self._closing.is_set():
                    return
                self._closing.wait(pause)

    def _leave_time_to_others(self) -> None:
        self._closing.wait(self._rest.seconds_left())

    def _wait(self) -> None:
        """Wait for hints; whoever has some wakes the thread only now."""
        self._woken = False
        if self._has_to_do() or self._closing.is_set():
            return
        self._wake_event.wait(self._look_seconds)
        if not self._has_to_do():
            with self._in_use.held():
                self._look_after()
            close_connections()


_UWSGI_OPTION = "py-call-uwsgi-fork-hooks"


def _refuse_before_a_blind_fork() -> None:
    """Refuse a thread in a process of uWSGI that loads the application, and forks its workers then in C code.

    A worker that is forked while another thread has or wants the interpreter's lock waits for it for ever, because
    that thread is not there. ``os.fork()`` makes this lock anew; uWSGI does so with one option only.

    Raises:
        RuntimeError: this is such a process.
    """
    uwsgi: Any = sys.modules.get("uwsgi")  # only processes of uWSGI have it
    if uwsgi is None or _UWSGI_OPTION in uwsgi.opt:
        return
    if not (uwsgi.worker_id() or uwsgi.mule_id() or uwsgi.i_am_the_spooler()):
        raise RuntimeError(
            "A task was enqueued while uWSGI loads the application, before it forks its workers. The thread that "
            "sends hints is not started here, because a worker that is forked while it runs may hang for good. "
            f"Set lazy-apps = true, or {_UWSGI_OPTION} = true (since uWSGI 2.0.21)."
        )


Sender = TypeVar("Sender", bound=HintSender)


class _OfOneProcess(Generic[Sender]):
    """The senders of one process, and the lock under which these are made."""

    def __init__(self) -> None:
        self.senders: dict[Hashable, Sender] = {}
        self.lock = threading.Lock()


class SendersOfProcess(Generic[Sender]):
    """The senders of this process, and of each forked child its own.

    A child has no threads, and the connections are its parent's: the child must not end them. The number of the
    process is compared at each use, because ``os.register_at_fork`` hears nothing of a fork by C code, as uWSGI's.
    """

    def __init__(self) -> None:
        self._by_process: dict[int, _OfOneProcess[Sender]] = {}
        atexit.register(self.close_all)

    @property
    def _senders(self) -> dict[Hashable, Sender]:
        return self._here().senders

    def _here(self) -> _OfOneProcess[Sender]:
        number = os.getpid()
        found = self._by_process.get(number)
        return found or self._by_process.setdefault(number, _OfOneProcess())

    def get(self, key: Hashable, make: Callable[[Any], Sender], argument: Any) -> Sender:
        """Return the sender of this key; the first call makes it, of the argument."""
        here = self._here()
        sender = here.senders.get(key)
        if sender is None:
            with here.lock:
                sender = here.senders.get(key)
                if sender is None:
                    sender = here.senders[key] = make(argument)
        return sender

    def close_all(self) -> None:
        """Send what waits, for at most FLUSH_SECONDS, and end."""
        senders = list(self._senders.values())
        self._senders.clear()
        end = time.monotonic() + FLUSH_SECONDS
        for sender in senders:
            sender.ask_to_close()
        for sender in senders:
            sender.join(max(0.0, end - time.monotonic()))
