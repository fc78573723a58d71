"""Receives hints by PostgreSQL's LISTEN, in a thread and a session of its own that only pass ids on.

A LISTEN may be deaf without an error: behind a pooler that gives a session to another client after each
transaction, or if the session's server is no longer the primary. So once a minute a second session sends a test,
and only a received test counts. (A session hears its own NOTIFY behind a pooler, too.)

Behind a pooler a LISTEN stays in a session that another client uses, until the pooler ends it, and each hint would
reach that client. So a listener first listens to the channel of its own tests only, and listens to queues once it
has heard a test.
"""

from __future__ import annotations

import selectors
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterable
from typing import Any

from django_txtasks import signals
from django_txtasks.core.ground.retry import jitter
from django_txtasks.hints import channel
from django_txtasks.hints.delivery import Delivery, Hint
from django_txtasks.hints.failures import Failures
from django_txtasks.hints.sending import message as hint_message
from django_txtasks.hints.session import close, open_session, session

TEST_EVERY_SECONDS = 60.0
TEST_SECONDS = 10.0
"""Seconds within which a test must be heard."""
TRY_AGAIN_SECONDS = 300.0
"""Seconds until the next try of a LISTEN that was deaf from its start."""
READ_WHEN_FULL_SECONDS = 0.1
"""Seconds between two reads while a worker does not listen: PostgreSQL keeps a message until all have read it."""


class Deaf(Exception):
    """A test was not heard."""


class HintListener:
    """Receives the hints of its queues, delivers them, and reconnects by itself.

    Args:
        queues: names of task queues.
        deliver: called with each hint.

    Attributes:
        connected: True if the last test was heard.
    """

    def __init__(self, alias: str, queues: Iterable[str], deliver: Callable[[Hint], None]) -> None:
        self._alias, self._queues = alias, sorted(queues)
        self._delivery = Delivery(deliver)
        self.connected = False
        self._stopping = threading.Event()
        self._awake, self._waker = socket.socketpair()
        self._thread = threading.Thread(target=self._run, name="txtasks-listener", daemon=True)
        self._failures = Failures("Worker (session for hints)", alias)
        self._is_known_deaf = self._has_heard = False
        self._own_channel = f"@{uuid.uuid4()}"  # no queue has such a name
        self._awaited: bytes | None = None
        self._next_test = 0.0

    def start(self) -> None:
        """Start to connect. Returns at once."""
        self._thread.start()

    def stop(self, seconds: float = 2.0) -> None:
        """End the thread and its session."""
        self._stopping.set()
        self._waker.close()
        self._thread.join(seconds)

    def listen(self, on: bool) -> None:
        """Deliver hints from now on, or drop them. Returns at once, from any thread."""
        self._delivery.listen(on)

    def _run(self) -> None:
        with self._awake:
            while not self._stopping.is_set():
                self._stopping.wait(self._hear_until_broken())

    def _hear_until_broken(self) -> float:
        """Listen in one session. Return the seconds to wait before the next session."""
        wrapper = None
        try:
            wrapper = open_session(self._alias)
            self._hear(wrapper.connection)
        except Deaf:
            # This session has heard; another session, perhaps of another server, may hear.
            if self.connected:
                return 0.0
            self._warn_of_deafness()
            return TRY_AGAIN_SECONDS * jitter(0.9, 1.1)
        except Exception as error:
            # Backends raise many kinds of errors; without this thread no hint is received.
            return self._failures.failed(error)
        finally:
            self.connected = self._has_heard = False
            close(wrapper)
        return 0.0

    def _hear(self, raw: Any) -> None:
        """Deliver messages until the worker ends.

        Raises:
            Deaf: a test has not come.
            DatabaseError, psycopg.Error: the session has ended.
        """
        channel.listen(raw, [self._own_channel])
        self._send_test()
        with selectors.DefaultSelector() as selector:
            selector.register(raw.pgconn.socket, selectors.EVENT_READ)
            selector.register(self._awake, selectors.EVENT_READ)
            while not self._stopping.is_set():
                for name, message in channel.received(raw):
                    self._take(name, message)
                self._look_after_test(raw)
                if self._has_heard and not self.connected:  # no other client uses this session
                    channel.listen(raw, self._queues)
                    channel.stay(raw)
                    self.connected, self._is_known_deaf = True, False
                    self._delivery.tell_of_more()  # whatever was sent before
                    continue  # a message may have come meanwhile
                if not self._delivery.is_on:
                    self._stopping.wait(READ_WHEN_FULL_SECONDS)
                selector.select(max(0.0, self._next_test - time.monotonic()))

    def _take(self, name: str, message: bytes) -> None:
        if message == self._awaited:
            self._heard()
            return
        try:
            ids, more = hint_message.decode(message)
        except ValueError as error:
            signals.hint_refused.emit(queue=name, error=error)
        else:
            self._delivery.put(ids, more=more)

    def _send_test(self) -> None:
        """Let another session send a message that this session must hear, and no other listener."""
        self._awaited = uuid.uuid4().hex.encode()
        self._next_test = time.monotonic() + TEST_SECONDS
        with session(self._alias) as other:
            channel.send(other, self._own_channel, self._awaited)

    def _look_after_test(self, raw: Any) -> None:
        """Start the next test when it is time.

        Raises:
            Deaf: the last test was not heard. The pooler, if there is one, may still have the session that listens
                to tests; then that session is cleaned.
        """
        if time.monotonic() >= self._next_test:
            if self._awaited:
                channel.unlisten(raw, self._own_channel)
                raise Deaf
            self._send_test()

    def _heard(self) -> None:
        self._awaited, self._has_heard = None, True
        self._next_test = time.monotonic() + TEST_EVERY_SECONDS * jitter(0.9, 1.1)
        self._failures.is_ready()

    def _warn_of_deafness(self) -> None:
        if not self._is_known_deaf:
            self._is_known_deaf = True
            signals.hints_unheard.emit(database=self._alias, delay=TRY_AGAIN_SECONDS)
