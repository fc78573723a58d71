"""Notices commits to an SQLite file, from any process, in a thread that reads its change counter.

SQLite sends no message at a commit, but each connection can ask cheaply whether another one has committed. On
Linux the kernel says when to ask, because it reports writes to the file. One look a second checks whether the
kernel reports all writes; if it does not, the thread looks all the time.

Most commits are not tasks but beats. So after a commit the thread reads which tasks are due, and tells the worker
of tasks that were not due at the last look. A row that no worker may claim is told once.
"""

from __future__ import annotations

import contextlib
import random
import threading
import time
from collections.abc import Callable
from typing import Any

from django.db import connections

from django_txtasks.core.rows.turn import Subscription
from django_txtasks.fast.heads import Heads
from django_txtasks.guards.file import refuse_replaced
from django_txtasks.hints.delivery import Delivery, Hint
from django_txtasks.hints.failures import Failures
from django_txtasks.hints.file_changes import FileChanges
from django_txtasks.models import Worker

LOOK_EVERY_SECONDS, WHEN_BUSY_SECONDS = 0.03, 0.01
"""Seconds between two looks if the kernel reports no writes; otherwise the minimum between two reported writes."""
BUSY_FOR_SECONDS = 5.0
"""Seconds after a told task during which more tasks are expected."""
VISIBLE_AFTER_SECONDS = 0.001
"""Seconds from the last write of a commit until others see it, unless SQLite waits for the disk in between."""
SPREAD_SECONDS, MOST_SPREAD_SECONDS = 0.01, 0.03
"""Seconds, for each other worker and at most, over which looks at one write are spread: all want the same task."""
COUNT_EVERY_SECONDS = 5.0
"""Seconds between two counts of the workers, while there is work."""
PAUSES_SECONDS = (0.01, 0.03, 0.1, 1.0)
"""Seconds until the next looks without another write, because the commit may become visible only then."""
DEAF_FOR_SECONDS = 60.0
"""Seconds of looking all the time, after a commit that the kernel did not report."""
_NUMBER_OF_CHANGES = "PRAGMA data_version"
_FILE = "SELECT CAST(file AS BLOB) FROM pragma_database_list WHERE name = 'main'"  # its name may be no text


class FileWatcher:
    """A source of hints on SQLite, as ``HintListener`` is on PostgreSQL.

    Args:
        subscription: of the worker that gets the hints.
        deliver: called with each hint.

    Attributes:
        connected: True if the file can be read.
    """

    def __init__(self, subscription: Subscription, deliver: Callable[[Hint], None]) -> None:
        self._alias = subscription.alias
        self._delivery = Delivery(deliver)
        self.connected = False
        self._heads = Heads(subscription)
        self._busy_until = self._count_at = self._spread = 0.0
        self._stopping = threading.Event()
        self._changes = FileChanges()
        self._failures = Failures("Worker (hints)", self._alias)
        self._thread = threading.Thread(target=self._run, name="txtasks-watcher", daemon=True)

    def start(self) -> None:
        """Start to look. Returns at once."""
        self._thread.start()

    def stop(self, seconds: float = 2.0) -> None:
        """End the thread, and close its connection."""
        self._stopping.set()
        self._changes.wake()
        if self._thread.ident is not None:  # the thread was started
            self._thread.join(seconds)
        if not self._thread.is_alive():
            self._changes.close()

    def listen(self, on: bool) -> None:
        """Deliver hints from now on, or drop them. Returns at once, from any thread."""
        self._delivery.listen(on)
        self._changes.wake()

    def _run(self) -> None:
        while not self._stopping.is_set():
            pause = 0.0
            try:
                self._look_until_stopped()
            except Exception as error:  # the file is locked, or away, and comes back at some time
                pause = self._failures.failed(error)
            finally:
                self.connected = False
                with contextlib.suppress(Exception):
                    connections.close_all()
            self._stopping.wait(pause)

    def _look_until_stopped(self) -> None:
        """Look for changes, while the file can be read.

        Raises:
            DatabaseError: the file cannot be read, or was replaced.
        """
        wrapper: Any = connections[self._alias]
        refuse_replaced(self._alias)
        # Without Django's layers, because this runs all the time.
        execute = wrapper.connection.cursor().execute
        execute(_NUMBER_OF_CHANGES)  # opens the second file of a WAL, too
        (path,) = execute(_FILE).fetchone()
        looks, seen = _Looks(self._changes, [path, path + b"-wal"]), None
        while not self._stopping.is_set():
            is_busy = time.monotonic() < self._busy_until
            looks.wait(WHEN_BUSY_SECONDS if is_busy else LOOK_EVERY_SECONDS, spread=self._spread)
            if not self._delivery.is_on:
                continue
            refuse_replaced(self._alias)
            (number,) = execute(_NUMBER_OF_CHANGES).fetchone()
            if number != seen:
                seen = number
                looks.found()
                self._tell_what_is_due()
                self.connected = True
                self._failures.is_ready()

    def _tell_what_is_due(self) -> None:
        ids, more = self._heads.news()
        if not ids:
            return
        self._delivery.put(ids, more=more)
        now = time.monotonic()
        self._busy_until = now + BUSY_FOR_SECONDS
        if now >= self._count_at:
            self._count_at = now + COUNT_EVERY_SECONDS
            workers = Worker.objects.using(self._alias).filter(lost=False).count()
            self._spread = min(max(0, workers - 1) * SPREAD_SECONDS, MOST_SPREAD_SECONDS)


class _Looks:
    """The times to look: soon after each write that the kernel reports, or all the time."""

    def __init__(self, changes: FileChanges, paths: list[bytes]) -> None:
        self._changes, self._paths = changes, paths
        self._hears = False
        self._watch_at = 0.0
        self._told_at = 0.0
        self._silences = 0  # consecutive waits without a report

    def wait(self, rest: float, *, spread: float) -> None:
        """Wait until it is time to look.

        Args:
            rest: seconds between two reported writes, or between two looks if none are reported.
            spread: maximum of additional seconds after a write.
        """
        now = time.monotonic()
        if not self._hears and now >= self._watch_at:
            self._hears = self._changes.watch(self._paths)
            self._watch_at = now + DEAF_FOR_SECONDS
            self._silences = 0
        if not self._hears:
            time.sleep(rest)  # threading.Event takes twice as long
        elif self._changes.wait(PAUSES_SECONDS[min(self._silences, len(PAUSES_SECONDS) - 1)]):
            rest_left = self._told_at + rest - time.monotonic()
            time.sleep(max(VISIBLE_AFTER_SECONDS, rest_left) + random.uniform(0, spread))  # noqa: S311
            self._told_at = time.monotonic()
            self._silences = 0
        else:
            self._silences += 1

    def found(self) -> None:
        """Note that the last look found a commit; after a long silence, the kernel did not report this commit."""
        if self._hears and self._silences >= len(PAUSES_SECONDS):
            self._hears = self._changes.wait(0)  # the report may have come just now
            self._watch_at = time.monotonic() + DEAF_FOR_SECONDS
            self._silences = 0
        else:  # no second commit is expected soon whose report came before it was visible
            self._silences = max(self._silences, len(PAUSES_SECONDS) - 2)
