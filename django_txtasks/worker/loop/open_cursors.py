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


def are_open() -> bool:
    """Return True if a cursor of the calling thread is open."""
    cursors = _thread.cursors
    return bool(cursors) and any(not getattr(cursor, "closed", False) for cursor in cursors)
