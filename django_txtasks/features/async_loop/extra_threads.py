"""Extra threads for sync calls while tasks hold all shared threads of an event loop.

Tasks may hold the threads and wait for other tasks, which wait for a thread. Without another thread, none of them
would ever end.
"""

from __future__ import annotations

import threading

from django.db import connections

from django_txtasks import signals
from django_txtasks.core.working.running.slot_threads import close_old_connections
from django_txtasks.database.errors import text_of
from django_txtasks.features.async_loop.held_threads import LONG_SECONDS, Waits
from django_txtasks.features.async_loop.shared_threads import SharedThreads, note_all_cursors
from django_txtasks.guards.connections import before_attempt
from django_txtasks.signals.queue import close_connections

HELD_SECONDS = 1.0
"""Seconds for which all threads are held before one extra thread more starts, if a thread stays with one attempt.
Otherwise slow calls may be the only reason, and it is ``LONG_SECONDS``.
"""
MOST_THREADS = 4
"""Maximum number of extra threads; also at most one for each shared thread."""
AGAIN_SECONDS = 60.0
"""Seconds after which another extra thread starts if one has got no database session."""


class ExtraThreads:
    """Starts extra threads, one a second, while all threads are held and calls wait.

    Each one ends as soon as a shared thread is free, or takes a call again. Calls of functions that have never
    kept a thread go first. One extra thread takes no others: otherwise all of them would soon be kept as well.

    Args:
        alias: the database of the tasks. An extra thread takes calls only if it gives the thread a session.
    """

    def __init__(self, shared: SharedThreads, alias: str) -> None:
        self._shared, self._alias = shared, alias
        self._most = min(shared.size, MOST_THREADS)
        self._first: threading.Thread | None = None
        self._next_at = 0.0

    def look(self, waits: Waits, now: float) -> None:
        """Start one extra thread if these waits need it.

        Args:
            now: the time, by ``time.monotonic()``.
        """
        extras = self._shared.extras
        patience = HELD_SECONDS if waits.pinned else LONG_SECONDS
        if waits.held < patience or len(extras) >= self._most or now < self._next_at:
            return
        self._next_at = now + AGAIN_SECONDS  # until it has a session
        takes_all = self._first in extras
        args = self._shared.moved_at, takes_all
        thread = threading.Thread(target=self._run, args=args, name="txtasks-extra", daemon=True)
        if not takes_all:
            self._first = thread
        extras.add(thread)
        try:
            thread.start()
        except RuntimeError as error:  # the system has no thread left
            extras.discard(thread)
            signals.extra_thread_refused.emit(database=self._alias, error=text_of(error))

    def _run(self, moved_at: float, takes_all: bool) -> None:
        try:
            if self._has_session():
                self._serve(moved_at, takes_all)
        finally:
            self._shared.forget_extra()
            close_connections()

    def _has_session(self) -> bool:
        note_all_cursors()
        try:
            before_attempt(self._shared.note_session)
            connections[self._alias].ensure_connection()
        except Exception as error:  # also errors of a service that a project asks for its password
            signals.extra_thread_refused.emit(database=self._alias, error=text_of(error))
            return False
        self._next_at = 0.0
        return True

    def _serve(self, moved_at: float, takes_all: bool) -> None:
        shared = self._shared
        while shared.are_held_since(moved_at):
            executor = shared.take_one(takes_all)
            if executor is not None:
                executor.serve()
                del executor
            else:
                close_old_connections()
                shared.has_more.wait(HELD_SECONDS)
                shared.has_more.clear()
