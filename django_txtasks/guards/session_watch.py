"""The state of the connections of one thread that runs tasks, and the watch of the statements of its tasks."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from django.db import DataError, Error, IntegrityError, connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.signals import connection_created

from django_txtasks.database.transactions import begin_along
from django_txtasks.fast import prepared
from django_txtasks.guards.file import is_replaced
from django_txtasks.guards.session_statements import outlives_the_task, text_of_statement
from django_txtasks.guards.wrapper_state import WrapperState


class _Thread(threading.local):
    """The connections that one thread has opened.

    Attributes:
        note: called with each new connection; None = this thread runs no tasks.
        states: state of each connection object of this thread before the attempt, by alias.
        renewed: aliases whose session was closed because a task had changed the connection object.
        touched: aliases whose session the task has changed.
        refused: aliases in whose session the database refused something.
        fresh_until: time by ``time.monotonic()`` from which connections are checked before use.
        is_in_doubt: True if a database error ended the last attempt.
        replaced: number of SQLite files known to be replaced at the last look at the connections.
    """

    def __init__(self) -> None:
        self.note: Callable[[str], None] | None = None
        self.states: dict[str, WrapperState] = {}
        self.renewed: set[str] = set()
        self.touched: set[str] = set()
        self.refused: set[str] = set()
        self.fresh_until = 0.0
        self.is_in_doubt = False
        self.replaced = 0


of_thread = _Thread()


def _watch(execute: Callable[..., Any], sql: Any, params: Any, many: bool, context: Any) -> Any:
    """Run a statement of a task; see Django's ``execute_wrapper``."""
    connection = context["connection"]
    if outlives_the_task(connection.vendor, text_of_statement(sql, connection)):
        of_thread.touched.add(connection.alias)
        if connection.vendor == "postgresql":
            prepared.forget(connection.connection)
    try:
        if connection.in_atomic_block:
            return begin_along(execute, sql, params, many, context)
        return execute(sql, params, many, context)
    except (DataError, IntegrityError):
        raise
    except Error:
        of_thread.refused.add(connection.alias)
        raise


def watch_statements(connection: BaseDatabaseWrapper) -> None:
    """Watch the statements of this connection object from now on."""
    if _watch not in connection.execute_wrappers:
        connection.execute_wrappers.insert(0, _watch)  # later ones are removed from the end


def _is_of_thread(connection: BaseDatabaseWrapper) -> bool:
    """Return True if the thread's tasks get this object from ``connections``."""
    return any(one is connection for one in connections.all(initialized_only=True))


def _opened(connection: BaseDatabaseWrapper, **_: Any) -> None:
    """Watch a new connection. Settings made in it so far, by Django or the project, are not the task's.

    If a task copies the thread's connection object, the copy has a session of its own, which says nothing about
    the thread's session.
    """
    if of_thread.note is None or not _is_of_thread(connection):
        return
    watch_statements(connection)
    of_thread.touched.discard(connection.alias)
    of_thread.refused.discard(connection.alias)
    is_replaced(connection)  # this notes its file
    of_thread.note(connection.alias)


connection_created.connect(_opened, dispatch_uid="django_txtasks.guards.connections")
