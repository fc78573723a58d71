"""Cursors of ``QuerySet.iterator()`` and ``aiterator()`` that a call leaves open in its thread's session.

``aiterator()`` reads each chunk in a call of its own, from the cursor that the first call has opened. Meanwhile no
other attempt may use the session, and nothing may close it.
"""

from __future__ import annotations

import threading
from typing import Any
from weakref import WeakSet

from django.db.backends.base.base import BaseDatabaseWrapper


class _Thread(threading.local):
    """The cursors that this thread has opened. Django drops each one at its end."""

    def __init__(self) -> None:
        self.cursors: WeakSet[Any] = WeakSet()


_thread = _Thread()


def note_cursors(connection: BaseDatabaseWrapper) -> None:
    """Note each cursor of an iterator that this connection object of the calling thread opens from now on."""
    chunked_cursor, cursors = connection.chunked_cursor, _thread.cursors

    def noted() -> Any:
        cursor = chunked_cursor()
        cursors.add(cursor)
        return cursor

    vars(connection)["chunked_cursor"] = noted


def forget() -> bool:
    """Forget the cursors of the calling thread, at the end of an attempt. Return True if one was open.

    Then its session must end. Otherwise the garbage collector may close the cursor while this thread runs another
    query, and psycopg, which would then wait for the lock that it has, would wait for ever.
    """
    was_open = are_open()
    _thread.cursors.clear()
    return was_open


def are_open() -> bool:
    """Return True if a cursor of the calling thread is open."""
    cursors = _thread.cursors
    return bool(cursors) and any(not getattr(cursor, "closed", False) for cursor in cursors)
