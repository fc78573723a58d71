"""Notices commits to an SQLite file, from any process, in a thread that looks at its number of changes.

SQLite tells nobody of a commit, but each connection can ask cheaply whether another one has committed. Most
commits are no tasks: beats are the commonest. So where there was one, the thread reads which tasks are due, and
tells the worker of those that were not there the last time. A row that no worker may claim is told once.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from typing import Any

from django.db import connections

from django_txtasks.hints.delivery import Delivery, Hint
from django_txtasks.hints.failures import Failures
from django_txtasks.lifecycle.heads import Heads
from django_txtasks.lifecycle.turn import Subscription

LOOK_EVERY_SECONDS, WHEN_BUSY_SECONDS = 0.03, 0.01
BUSY_FOR_SECONDS = 5.0
"""Seconds for which more tasks are expected after one that was told."""
_NUMBER_OF_CHANGES = "PRAGMA data_version"


class FileWatcher:
    """A source of hints. See ``HintListener``, which is that of PostgreSQL.

    Args:
        subscription: whose tasks to tell of.
        deliver: called with each hint.

    Attributes:
        connected: the file can be read.
    """

    def __init__(self, subscription: Subscription, deliver: Callable[[Hint], None]) -> None:
        self._alias = subscription.alias
        self._delivery = Delivery(deliver)
        self.connected = False
        self._heads = Heads(subscription)
        self._busy_until = 0.0
        self._stopping = threading.Event()
        self._failures = Failures("Worker (hints)", self._alias)
        self._thread = threading.Thread(target=self._run, name="txtasks-watcher", daemon=True)

    def start(self) -> None:
        """Begin to look, and return at once."""
        self._thread.start()

    def stop(self, seconds: float = 2.0) -> None:
        """End the thread, and close its connection."""
        self._stopping.set()
        self._thread.join(seconds)

    def listen(self, on: bool) -> None:
        """Deliver hints from now on, or drop them. Returns at once, from any thread."""
        self._delivery.listen(on)

    def _run(self) -> None:
        while not self._stopping.is_set():
            pause = 0.0
            try:
                self._look_until_stopped()
            except Exception as error:  # the file is locked, or away: it is there again some time
                pause = self._failures.failed(error)
            finally:
                self.connected = False
                with contextlib.suppress(Exception):
                    connections.close_all()
            self._stopping.wait(pause)

    def _look_until_stopped(self) -> None:
        """Look for changes, while the file can be read.

        Raises:
            DatabaseError: it cannot.
        """
        wrapper: Any = connections[self._alias]
        wrapper.ensure_connection()
        look = (
            wrapper.connection.cursor().execute
        )  # without Django's layers: it is done all the time
        seen = None
        while not self._stopping.is_set():
            is_busy = time.monotonic() < self._busy_until
            # an Event takes twice the time of this
            time.sleep(WHEN_BUSY_SECONDS if is_busy else LOOK_EVERY_SECONDS)
            if not self._delivery.is_on:
                continue
            (now,) = look(_NUMBER_OF_CHANGES).fetchone()
            if now != seen:
                seen = now
                self._tell_what_is_due()
                self.connected = True
                self._failures.is_ready()

    def _tell_what_is_due(self) -> None:
        ids, more = self._heads.news()
        if ids:
            self._busy_until = time.monotonic() + BUSY_FOR_SECONDS
            self._delivery.put(ids, more=more)
