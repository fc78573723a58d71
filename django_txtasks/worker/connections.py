"""Connections of the threads that run tasks: what one task may leave in those to databases to the next one.

They live as long as Django lets those of a request live, and never longer than what a task did to their session.
The loop's own session is none of them: see ``lifecycle.sessions``.
"""

from __future__ import annotations

import contextlib
import functools
import re
import threading
import time
from collections.abc import Callable
from typing import Any

from django.core.cache import caches
from django.db import (
    DataError,
    Error,
    IntegrityError,
    InterfaceError,
    OperationalError,
    connections,
)
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.signals import connection_created

from django_txtasks.lifecycle import prepared
from django_txtasks.lifecycle.database_errors import text_of
from django_txtasks.lifecycle.database_file import is_replaced, number_replaced
from django_txtasks.lifecycle.sessions import is_pooled
from django_txtasks.lifecycle.transactions import begin_along

LEAST_AGE_SECONDS = 5.0
"""Seconds that a connection lives where CONN_MAX_AGE is 0: a new one for each task costs more than most tasks."""
FRESH_SECONDS = 0.1
"""Seconds for which a connection counts as usable after a task that ended well."""
LONGEST_REST_SECONDS = 3600.0
"""Longest time between two looks at a thread's connections: Python's locks take no longer time-outs."""
SEARCHED_CHARACTERS = 4000
"""Characters of a statement in which something is sought that outlives it: generated SQL can be very long."""


class NoSession(Exception):
    """The database gives this thread no session: the task has not begun."""


class _Thread(threading.local):
    """Connections of one thread, as far as it knows them.

    Attributes:
        note: called with each new connection; None = this thread runs no tasks.
        has_caches: see ``share_caches``.
        touched: aliases whose session the task has changed, or in which the database refused something.
        fresh_until: when connections are looked at before they are used, by ``time.monotonic()``.
        is_in_doubt: the last attempt has failed by an error of a database.
        replaced: how many files of SQLite were known to be replaced when its connections were looked at.
    """

    def __init__(self) -> None:
        self.note: Callable[[str], None] | None = None
        self.has_caches = False
        self.touched: set[str] = set()
        self.fresh_until = 0.0
        self.is_in_doubt = False
        self.replaced = 0


_thread = _Thread()


def share_caches() -> None:
    """Make the caches of this thread: each attempt has a context, and one made in it would end with it.

    So would its connections. Django keeps caches in contexts, other than databases.
    """
    if not _thread.has_caches:
        _thread.has_caches = True
        for alias in caches:
            with contextlib.suppress(Exception):  # the task that uses it gets the error
                caches[alias]


def before_attempt(note: Callable[[str], None]) -> None:
    """Close what a restarted server has broken since the last attempt.

    Args:
        note: told the alias of each connection that this thread opens.
    """
    _thread.note = note
    if time.monotonic() <= _thread.fresh_until and _thread.replaced == number_replaced():
        return
    _thread.replaced = number_replaced()
    for connection in connections.all(initialized_only=True):
        if connection.connection is not None and not connection.in_atomic_block:
            if connection.is_usable() and not is_replaced(connection):
                _asked(connection, done=True)
            else:
                _close(connection)


def have_session(alias: str, *, wanted: bool) -> None:
    """Open this thread's session, if it is wanted, or if it is doubtful that there would be one.

    Raises:
        NoSession: the database gives none.
    """
    if wanted or _thread.is_in_doubt:
        try:
            connections[alias].ensure_connection()
        except Exception as error:  # also those of a service that a project asks for its password
            raise NoSession(text_of(error)) from error


def after_attempt(*, failed: bool, error: BaseException | None = None) -> None:
    """Leave no transaction to the next task, no session that this one has changed, and no log of its queries.

    Args:
        failed: close all of them: what a failed attempt leaves, and whether the database still takes writes
            in this session, is unknown.
        error: by which it has failed.
    """
    _thread.is_in_doubt = _is_of_database(error)
    now = time.monotonic()
    for connection in connections.all(initialized_only=True):
        connection.queries_log.clear()
        is_open = connection.connection is not None
        if connection.in_atomic_block or (is_open and not connection.autocommit):
            _close(connection)
            del connections[connection.alias]  # a block that was never left would stay open in it
        elif is_open and (failed or _is_bent(connection)):
            _discard(connection)
        elif is_open and now >= _end_of(connection):
            _close(connection)
        else:
            _asked(connection, done=False)
    _thread.touched.clear()
    _thread.fresh_until = 0.0 if failed else now + FRESH_SECONDS


def _is_of_database(error: BaseException | None) -> bool:
    """Say whether the database was the reason: of this error, or of the one that it was raised for."""
    if error is None:
        return False
    chain = (error, error.__cause__, error.__context__)
    return any(isinstance(one, (OperationalError, InterfaceError, NoSession)) for one in chain)


def close_old() -> float | None:
    """Close connections of this thread, which has nothing to do, whose age is over.

    Returns:
        The seconds until it is time to look again; None = there are none.
    """
    now, next_one = time.monotonic(), float("inf")
    for connection in connections.all(initialized_only=True):
        if connection.connection is not None:
            if now >= (end := _end_of(connection)):
                _close(connection)
            else:
                next_one = min(next_one, end)
    return None if next_one == float("inf") else min(next_one - now, LONGEST_REST_SECONDS)


def _asked(connection: Any, *, done: bool) -> None:
    """Say whether the connection was found healthy since the last task: see CONN_HEALTH_CHECKS."""
    connection.health_check_done = done


def _end_of(connection: BaseDatabaseWrapper) -> float:
    """Return when the age of an open connection is over, by ``time.monotonic()``."""
    if connection.close_at is None:
        return float("inf")
    has_no_age = not connection.settings_dict["CONN_MAX_AGE"] and not is_pooled(connection)
    return connection.close_at + (LEAST_AGE_SECONDS if has_no_age else 0.0)


def _is_bent(connection: BaseDatabaseWrapper) -> bool:
    """Say whether the task has left something in the session, as far as that is known without asking."""
    if connection.errors_occurred or connection.alias in _thread.touched:
        return True
    raw: Any = connection.connection
    if connection.vendor == "postgresql":
        return bool(raw.pgconn.transaction_status)  # 0 = idle; it began one by hand
    return connection.vendor == "sqlite" and raw.in_transaction


def _discard(connection: BaseDatabaseWrapper) -> None:
    """End the session, also of a connection that would otherwise go back into a pool."""
    if is_pooled(connection) and connection.connection is not None:
        connection.connection.close()
    _close(connection)


def _close(connection: BaseDatabaseWrapper) -> None:
    try:
        connection.close()
    except Error:  # a server that is gone cannot be told
        connection.connection = None


# -- what outlives a task -------------------------------------------------------------------------

_BEFORE = r"(?:\s|/\*.*?\*/|--[^\n]*\n|\()*"
_WORDS = {
    "postgresql": r"set(?!\s+(?:local|transaction|constraints)\b)|reset|discard|deallocate|listen|load|do|call"
    r"|declare|prepare(?!\s+transaction)|create\s+(?:(?:local|global)\s+)?temp(?:orary)?",
    # the block with which we finish an atomic task leaves nothing
    "mysql": r"set|lock|flush|begin(?!\s+not\s+atomic\s+(?:insert\s+into|delete\s+from)\s+txtasks_)"
    r"|start\s+transaction|prepare|use|call|xa|handler|create\s+(?:or\s+replace\s+)?temporary",
    "sqlite": r"pragma|attach|detach|create\s+temp(?:orary)?",
}
_STATEMENTS = {
    vendor: re.compile(rf"{_BEFORE}(?:{words})\b", re.DOTALL) for vendor, words in _WORDS.items()
}
_CALLS = {"postgresql": ("advisory_lock", "set_config", " into temp"), "mysql": ("get_lock",)}
_LOCAL = re.compile(r"set_config\s*\([^()]*,\s*true\s*\)")


@functools.lru_cache(maxsize=512)
def outlives_the_task(vendor: str, sql: str) -> bool:
    """Say whether a statement may leave a setting, a lock, a temporary table or the like in its session.

    A wrong yes costs a new connection.
    """
    text = _LOCAL.sub("", sql.lower())
    begins = _STATEMENTS.get(vendor)
    if begins is not None and any(begins.match(part) for part in text.split(";")):
        return True
    return any(call in text for call in _CALLS.get(vendor, ()))


def _watch(execute: Callable[..., Any], sql: Any, params: Any, many: bool, context: Any) -> Any:
    """Run a statement of a task; see Django's ``execute_wrapper``."""
    connection = context["connection"]
    if outlives_the_task(connection.vendor, _text(sql, connection)[:SEARCHED_CHARACTERS]):
        _thread.touched.add(connection.alias)
        if connection.vendor == "postgresql":
            prepared.forget(connection.connection)
    try:
        if connection.in_atomic_block:
            return begin_along(execute, sql, params, many, context)
        return execute(sql, params, many, context)
    except (DataError, IntegrityError):
        raise
    except Error:
        _thread.touched.add(connection.alias)
        raise


def _text(sql: Any, connection: BaseDatabaseWrapper) -> str:
    if isinstance(sql, str):
        return sql
    if hasattr(sql, "as_string"):  # psycopg's sql.Composed
        return str(sql.as_string(connection.connection))
    return sql.decode(errors="replace") if isinstance(sql, bytes) else str(sql)


def _opened(connection: BaseDatabaseWrapper, **_: Any) -> None:
    """Watch a new connection; what was set in it so far, by Django or the project, is not the task's doing."""
    if _thread.note is None:
        return
    if _watch not in connection.execute_wrappers:
        connection.execute_wrappers.insert(0, _watch)  # later ones are removed from the end
    _thread.touched.discard(connection.alias)
    is_replaced(connection)  # notes its file
    _thread.note(connection.alias)


connection_created.connect(_opened, dispatch_uid="django_txtasks.worker.connections")
