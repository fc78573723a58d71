"""The common part of the senders for RabbitMQ and PostgreSQL: a buffer, and a thread that sends its content."""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
import threading
import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any, Generic, Protocol, TypeVar

from django_txtasks.core.ground.wakeup import WakeUp
from django_txtasks.hints.sending.buffer import HintBuffer, Packed
from django_txtasks.hints.sending.lock import BriefLock
from django_txtasks.hints.sending.rest import Rest
from django_txtasks.signals.queue import close_connections

FLUSH_SECONDS = 2.0


class HintSender(ABC):
    """A buffer of ids, and the thread that sends its content.

    A thread that has committed sends its hints itself, if it need not wait for that: to wake another thread would
    cost both threads more, and the task would start later. Otherwise the sender's thread sends the hints.

    One thread at a time uses the connection, and holds ``_in_use`` meanwhile. Subclasses define the connection.

    Args:
        name: of the thread.
        look_seconds: seconds between two looks at an idle connection and at the buffer. A time limit may have
            interrupted the thread that was to wake this one.
        ids_per_hint: maximum number of ids in one hint.

    Attributes:
        is_answered: True if the receiver answers each hint. The sender's thread waits for the answer.
    """

    is_answered = False

    def __init__(self, name: str, look_seconds: float, ids_per_hint: int) -> None:
        self._name, self._look_seconds = name, look_seconds
        self._buffer = HintBuffer(ids_per_hint)
        self._wake_up = WakeUp()
        self._woken = False
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None
        self._starting = threading.Lock()
        self._in_use = BriefLock()
        self._rest = Rest()

    def notify(self, of_queue: Mapping[str, Sequence[uuid.UUID]]) -> None:
        """Send hints of these ids, by queue, now, or let the thread do it."""
        for queue, ids in of_queue.items():
            self._buffer.add(queue, ids)
        try:
            if self._rest.is_over():
                self._send_at_once(of_queue)
        finally:  # even if a time limit interrupts this thread
            if self._has_to_do():
                self._have_it_sent()

    def ask_to_close(self) -> None:
        """Tell the thread to end when it has sent everything."""
        self._closing.set()
        self._wake()

    def join(self, seconds: float) -> None:
        """Wait for the thread's end, at most ``seconds``. In that thread itself, return at once.

        A process of uWSGI runs its exit handlers in the thread that a signal has reached.
        """
        if self._thread not in (None, threading.current_thread()):
            self._thread.join(seconds)

    @abstractmethod
    def _send_what_waits(self) -> None:
        """Send the waiting ids, in as few hints for each queue as possible, and rest.

        The thread holds ``_in_use``.
        """

    @abstractmethod
    def _give(self, packed: Packed) -> bool:
        """Give a hint to the socket without waiting. Return False if that is not possible now.

        The calling thread holds ``_in_use``. A hint with False is sent again.
        """

    @abstractmethod
    def _may_give(self, queue: str) -> bool:
        """Return True if the connection could take a hint of this queue without waiting."""

    @abstractmethod
    def _look_after(self) -> None:
        """Look after the connection while nothing waits. The thread holds ``_in_use``."""

    @abstractmethod
    def _close(self) -> None:
        """End the connection, if there is one. The thread holds ``_in_use``."""

    @abstractmethod
    def _failed(self, error: Exception) -> float:
        """Close, and return the seconds to wait before the next try. The thread holds ``_in_use``."""

    def _send_at_once(self, queues: Iterable[str]) -> None:
        """Send what waits for these queues, if one hint has room for it and nothing is in the way."""
        lock = self._in_use.take_at_once()
        if lock is None:
            return
        try:
            begin, number = time.monotonic(), 0
            for queue in queues:
                if self._buffer.fits_one_hint(queue) and self._may_give(queue):
                    packed = self._buffer.pack(queue)
                    if not self._give(packed):
                        self._buffer.put_back(packed)
                        break
                    number += len(packed.ids)
            if number:
                self._rest.begin(begin, number, counts=not self.is_answered)
        finally:
            lock.release()

    def _have_it_sent(self) -> None:
        """Let the thread send the waiting ids. The first call starts it.

        Raises:
            RuntimeError: this process must not have a thread yet.
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
        self._wake_up.wake()

    def _has_to_do(self) -> bool:
        """Return True if the thread has work now."""
        return bool(self._buffer)

    def _run(self) -> None:
        ours = threading.current_thread()
        with self._starting:
            # The thread that started it was interrupted before it could set this.
            if self._thread is None:
                self._thread = ours
        if self._thread is not ours:  # another thread was started since
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
                    self._leave_time_to_others()  # now: a thread that commits meanwhile need not wake this one
                else:
                    self._wait()
            except Exception as error:  # many kinds of errors; without this thread no hint is sent
                with self._in_use.held():
                    pause = self._failed(error)
                close_connections()  # of receivers of the signal: no request uses this thread
                if self._closing.is_set():
                    return
                self._closing.wait(pause)

    def _leave_time_to_others(self) -> None:
        self._closing.wait(self._rest.seconds_left())

    def _wait(self) -> None:
        """Wait for hints. From now on, a thread that has hints wakes this one."""
        self._woken = False
        if self._has_to_do() or self._closing.is_set():
            return
        self._wake_up.wait(self._look_seconds)
        if not self._has_to_do():
            with self._in_use.held():
                self._look_after()
            close_connections()


_UWSGI_OPTION = "py-call-uwsgi-fork-hooks"


def _refuse_before_a_blind_fork() -> None:
    """Refuse a thread in a process of uWSGI that loads the application and later forks its workers in C code.

    If a worker is forked while another thread has or wants the interpreter's lock, the worker waits for the lock
    for ever, because that thread does not exist in it. ``os.fork()`` creates the lock anew; uWSGI does it with one
    option only.

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


class _Closable(Protocol):
    """A sender whose thread ends when it is asked to."""

    def ask_to_close(self) -> None: ...

    def join(self, seconds: float) -> None: ...


Sender = TypeVar("Sender", bound=_Closable)


class _OfOneProcess(Generic[Sender]):
    """The senders of one process, and the lock under which they are created."""

    def __init__(self) -> None:
        self.senders: dict[Hashable, Sender] = {}
        self.lock = threading.Lock()


class SendersOfProcess(Generic[Sender]):
    """The senders of this process. Each forked child has its own.

    A child has no threads, and the connections belong to its parent, so it must not end them. Each use compares
    the process id, because ``os.register_at_fork`` does not notice a fork by C code, such as uWSGI's.
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
        """Return the sender of this key. The first call creates it, from the argument."""
        here = self._here()
        sender = here.senders.get(key)
        if sender is None:
            with here.lock:
                sender = here.senders.get(key)
                if sender is None:
                    sender = here.senders[key] = make(argument)
        return sender

    def close_all(self) -> None:
        """Send everything that waits, for at most FLUSH_SECONDS, and end."""
        senders = list(self._senders.values())
        self._senders.clear()
        end = time.monotonic() + FLUSH_SECONDS
        for sender in senders:
            sender.ask_to_close()
        for sender in senders:
            sender.join(max(0.0, end - time.monotonic()))
