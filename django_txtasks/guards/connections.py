"""Database connections of the threads that run tasks: the state that a task may leave in them for the next task.

They live as long as Django lets the connections of a request live, and at most until a task changes their session.
The loop has a session of its own: see ``database.sessions``.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from django.db import InterfaceError, OperationalError, connections
from django.db.backends.base.base import BaseDatabaseWrapper

from django_txtasks.database.errors import NoSession, text_of
from django_txtasks.database.sessions import close as _close
from django_txtasks.database.sessions import end_of_age as _end_of
from django_txtasks.database.sessions import is_pooled
from django_txtasks.guards.awaited_sessions import awaiting
from django_txtasks.guards.file import is_replaced, number_replaced
from django_txtasks.guards.session_watch import of_thread, watch_statements
from django_txtasks.guards.wrapper_state import WrapperState

FRESH_SECONDS = 0.1
"""Seconds after a successful task for which its connection counts as usable."""
_IDLE, _LOST = 0, 4
"""States of a session in libpq: outside a transaction; lost."""
LONGEST_REST_SECONDS = 3600.0
"""Maximum seconds between two looks at a thread's connections; Python's locks take no longer timeout."""


def before_attempt(note: Callable[[str], None]) -> None:
    """Close connections that a restarted server has broken since the last attempt.

    Args:
        note: called with the alias of each connection that this thread opens.
    """
    of_thread.note = note
    if time.monotonic() <= of_thread.fresh_until and of_thread.replaced == number_replaced():
        for state in of_thread.states.values():
            state.is_in_block = state.connection.in_atomic_block
        return
    of_thread.replaced = number_replaced()
    for connection in all_connections():
        if connection.connection is not None and not connection.in_atomic_block:
            with awaiting(connection.alias):
                is_usable = connection.is_usable()
            if is_usable and not is_replaced(connection):
                _asked(connection, done=True)
            else:
                _close(connection)
    while of_thread.renewed:
        # Changes that come with a new session, such as a receiver's execute wrapper, are not made by the next
        # task.
        alias = of_thread.renewed.pop()
        with contextlib.suppress(Exception), awaiting(alias):
            connections[alias].ensure_connection()
    note_states()


def note_states() -> None:
    """Take the present state of this thread's connection objects as their state before the attempt."""
    for connection in all_connections():
        state = of_thread.states.get(connection.alias)
        if state is None or state.connection is not connection:
            watch_statements(connection)
            of_thread.states[connection.alias] = WrapperState(connection)
        else:
            state.note()


def all_connections() -> Sequence[BaseDatabaseWrapper]:
    """Return the connection objects of this thread, also for aliases that no task has used before."""
    try:
        return connections.all()
    except Exception:  # the backend of an alias in DATABASES cannot be imported
        return connections.all(initialized_only=True)


def have_session(alias: str, *, wanted: bool) -> None:
    """Open this thread's session, if it is wanted, or if it is doubtful whether the database would give one.

    Raises:
        NoSession: the database gives no session.
    """
    if (wanted or of_thread.is_in_doubt) and connections[alias].connection is None:
        try:
            with awaiting(alias):
                connections[alias].ensure_connection()
        except Exception as error:  # also errors of a service that a project asks for its password
            raise NoSession(text_of(error)) from error


def after_attempt(*, failed: bool, errors: Iterable[BaseException | None] = ()) -> None:
    """Remove open transactions, changed sessions, changed connection objects and logged queries for the next task.

    A connection that was in a transaction before the attempt, as in a test, stays as it is.

    Args:
        failed: True = close all connections. A failed attempt may have left something in its session, and the
            session may not take writes any more.
        errors: the errors that ended the attempt, or the attempts of a call.
    """
    of_thread.is_in_doubt = any(map(_is_of_database, errors))
    now = time.monotonic()
    for connection in all_connections():
        try:
            _leave(connection, failed=failed, now=now)
        except Exception:  # a Django attribute is missing or has another type
            _renew(connection, of_thread.states.get(connection.alias))
    of_thread.touched.clear()
    of_thread.refused.clear()
    of_thread.fresh_until = 0.0 if failed or of_thread.renewed else now + FRESH_SECONDS


def after_call() -> bool:
    """Do what ``after_attempt`` does, unless a later call of the same attempt needs what this one has left.

    Returns:
        False if the attempt has left a transaction, a changed session or a changed connection object. Then
        nothing was done, and this thread must run the attempt's other calls, and ``after_attempt``.
    """
    if any(_is_needed(connection) for connection in all_connections()):
        return False
    after_attempt(failed=False)
    return True


def _is_needed(connection: BaseDatabaseWrapper) -> bool:
    """Return True if later statements of the attempt would find something that earlier ones have left.

    An error leaves nothing, and a lost session neither: the attempt can continue in another session.
    """
    state = of_thread.states.get(connection.alias)
    if state is not None and state.is_in_block:
        return False
    try:
        if state is None or _is_changed(connection, state):
            return True
        if connection.connection is None:
            return False
        return connection.alias in of_thread.touched or 0 < _transaction_of(connection) < _LOST
    except Exception:  # a Django attribute is missing or has another type
        return True


def _leave(connection: BaseDatabaseWrapper, *, failed: bool, now: float) -> None:
    connection.queries_log.clear()
    is_open = connection.connection is not None
    state = of_thread.states.get(connection.alias)
    if state is not None and state.is_in_block:
        return
    if state is None or _is_changed(connection, state):
        _renew(connection, state)
    elif is_open and (failed or _is_bent(connection)):
        _discard(connection)
        state.note()
    elif is_open and now >= _end_of(connection):
        _close(connection)
        state.note()
    else:
        _asked(connection, done=False)


def _renew(connection: BaseDatabaseWrapper, state: WrapperState | None) -> None:
    """End the session, and restore the connection object to its state before the attempt.

    Args:
        state: of the object that the thread had then; None = it had none.
    """
    alias = connection.alias
    if connection.connection is not None:
        of_thread.renewed.add(alias)
    # A task may have put another object in its place.
    for one in (connection, state.connection if state else connection):
        one.in_atomic_block = one.closed_in_transaction = False  # otherwise it would not be closed
        _discard(one)
    if state is None:
        del connections[alias]
    else:
        connections[alias] = state.connection
        state.renew()


def _is_of_database(error: BaseException | None) -> bool:
    """Return True if the database caused this error, or the error behind it."""
    if error is None:
        return False
    chain = (error, error.__cause__, error.__context__)
    return any(isinstance(one, (OperationalError, InterfaceError, NoSession)) for one in chain)


def close_old() -> float | None:
    """Close the connections of this idle thread that have reached their maximum age.

    Returns:
        Seconds until the next look; None = there are no connections.
    """
    now, next_one = time.monotonic(), float("inf")
    for connection in connections.all(initialized_only=True):
        if connection.connection is not None:
            if now >= (end := _end_of(connection)):
                _close(connection)
                of_thread.fresh_until = (
                    0.0  # a project's connection objects may change when they are closed
                )
            else:
                next_one = min(next_one, end)
    return None if next_one == float("inf") else min(next_one - now, LONGEST_REST_SECONDS)


def _asked(connection: Any, *, done: bool) -> None:
    """Return True if the connection was found healthy since the last task: see CONN_HEALTH_CHECKS."""
    connection.health_check_done = done


def _is_changed(connection: BaseDatabaseWrapper, state: WrapperState) -> bool:
    """Return True if the task has left a block open, or has changed the connection object."""
    is_open = connection.connection is not None
    in_block = connection.in_atomic_block or (is_open and not connection.autocommit)
    return in_block or state.connection is not connection or state.is_changed()


def _is_bent(connection: BaseDatabaseWrapper) -> bool:
    """Return True if the next task must not get the session, judged without a query."""
    if connection.errors_occurred or connection.alias in of_thread.refused:
        return True
    return connection.alias in of_thread.touched or _transaction_of(connection) != _IDLE


def _transaction_of(connection: BaseDatabaseWrapper) -> int:
    """Return the state of the session's transaction, which the task may have begun by hand, without a query."""
    raw: Any = connection.connection
    if connection.vendor == "postgresql":
        return int(raw.pgconn.transaction_status)
    return int(connection.vendor == "sqlite" and raw.in_transaction)


def _discard(connection: BaseDatabaseWrapper) -> None:
    """End the session, even if the connection would otherwise return to a pool."""
    if is_pooled(connection) and connection.connection is not None:
        connection.connection.close()
    _close(connection)
