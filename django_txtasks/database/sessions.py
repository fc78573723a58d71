"""Database sessions of a process, by which other processes can see whether it is still there.

A session is written as text. Empty text means unknown: behind a pooler, the server's sessions are those of the
pooler, and SQLite has no sessions.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary, WeakSet

from django.core.exceptions import ImproperlyConfigured
from django.db import DatabaseError, Error, InterfaceError, OperationalError, connections
from django.db.backends.base.base import BaseDatabaseWrapper

from django_txtasks import signals
from django_txtasks.database.errors import text_of
from django_txtasks.database.execute import execute, fetch, fetch_value, is_dedicated
from django_txtasks.database.transactions import dedicate_session
from django_txtasks.signals.queue import close_session

_known: WeakKeyDictionary[Any, str] = WeakKeyDictionary()
"""The session by connection of the driver, because a pool hands out the same connections again."""

CLOCK_TOLERANCE_SECONDS = 2.0
"""Seconds by which two readings of MariaDB's start may differ, because it reports its age in full seconds."""

LEAST_AGE_SECONDS = 5.0
"""Seconds that a connection is kept if CONN_MAX_AGE is 0: opening one for each task costs more than most tasks."""

CONNECT_SECONDS = 2
"""Limit in seconds for opening a session as a test."""

POSTGRES_OWN_SESSION = """
    SELECT pid, CAST(EXTRACT(EPOCH FROM backend_start) AS text),
           CAST(EXTRACT(EPOCH FROM pg_postmaster_start_time()) AS text)
      FROM pg_stat_activity WHERE pid = pg_backend_pid()
"""
POSTGRES_SESSIONS = """
    SELECT CAST(pid AS text), CAST(EXTRACT(EPOCH FROM backend_start) AS text) FROM pg_stat_activity
     WHERE CAST(pid AS text) {in_numbers}
"""
# An attacker who can only write workers' rows must not make C end sessions of other databases or roles. So this
# ends only sessions of C's own role in this database.
POSTGRES_TERMINATE = """
    SELECT pg_terminate_backend(pid) FROM pg_stat_activity
     WHERE pid = %(pid)s AND CAST(EXTRACT(EPOCH FROM backend_start) AS text) = %(started)s
       AND datname = current_database() AND usename = session_user AND backend_type = 'client backend'
"""
MYSQL_OWN_SESSION = "SELECT CONNECTION_ID()"
# The host and port are included, because another server of a cluster has other sessions.
MYSQL_USER = "SELECT CONCAT(SUBSTRING_INDEX(USER(), '@', 1), '@', @@hostname, ':', @@port)"
MYSQL_CLOCK = "SELECT UNIX_TIMESTAMP()"
MYSQL_UPTIME = "SHOW GLOBAL STATUS LIKE 'Uptime'"
MYSQL_SESSIONS = "SELECT id FROM information_schema.processlist WHERE id {in_numbers}"
MYSQL_MAY_KILL = """
    SELECT id FROM information_schema.processlist
     WHERE id = %(id)s AND db = DATABASE()
       AND CAST(user AS BINARY) = CAST(SUBSTRING_INDEX(USER(), '@', 1) AS BINARY)
"""
MYSQL_KILL = "KILL %(id)s"


def session_of_thread(alias: str) -> str:
    """Return the session of this thread's connection; open the connection if necessary."""
    wrapper = connections[alias]
    if wrapper.vendor == "sqlite":  # SQLite has no sessions
        return ""
    wrapper.ensure_connection()
    session = _known.get(wrapper.connection)
    if session is None:
        session = _known[wrapper.connection] = _read(alias, wrapper)
    return session


def dedicate(alias: str, limit: timedelta) -> None:
    """Dedicate this thread's session to our statements, unless a pooler may give it to others.

    Args:
        limit: see ``own_transaction``.
    """
    if is_dedicated(connections[alias]):
        return
    leave_pool(alias)
    if session_of_thread(alias):
        dedicate_session(alias, limit)


def leave_pool(alias: str) -> None:
    """Give this thread its own connection if Django has a pool, because the pool is for tasks.

    A pool's session may move between threads, so it would say nothing about this process and could keep no plans.
    Connecting raises the errors of ``wait_for_any_backend``.
    """
    wrapper = connections[alias]
    options = wrapper.settings_dict["OPTIONS"]
    if options.get("pool") and not wrapper.in_atomic_block:
        wrapper.close()
        others = {name: value for name, value in options.items() if name != "pool"}
        connections[alias] = type(wrapper)({**wrapper.settings_dict, "OPTIONS": others}, alias)
    wait_for_any_backend(alias)


_converted: WeakSet[BaseDatabaseWrapper] = WeakSet()


def wait_for_any_backend(alias: str) -> None:
    """Turn each error of this thread's ``connect()`` into OperationalError, except errors of wrong settings.

    A backend may ask another service for a password, and raise the errors of that service. Our loops wait for an
    unavailable database after an OperationalError, and any other error would end them.
    """
    _wait_for_any_backend(connections[alias])


def _wait_for_any_backend(wrapper: Any) -> None:
    if wrapper in _converted:
        return
    _converted.add(wrapper)
    connect, theirs = wrapper.connect, wrapper.Database.Error

    def connect_or_fail() -> None:
        try:
            connect()
        except (theirs, DatabaseError, InterfaceError, ImproperlyConfigured, TypeError):
            raise
        except Exception as error:  # not as the cause: its arguments are no codes of a database
            text = f"it cannot connect: {type(error).__name__}: {error}"
            raise OperationalError(text) from None

    vars(wrapper)["connect"] = connect_or_fail


def close_dedicated(alias: str) -> None:
    """Close this thread's session if it was dedicated, and return to the pool."""
    wrapper = connections[alias]
    if wrapper in _converted:
        _converted.discard(wrapper)
        del wrapper.connect
    if is_dedicated(wrapper):
        wrapper.close()
    if connections.settings[alias]["OPTIONS"].get("pool") and not is_pooled(wrapper):
        wrapper.close()
        del connections[alias]


def is_pooled(wrapper: BaseDatabaseWrapper) -> bool:
    """Say whether the connection belongs to a pool of Django, to which closing returns it."""
    return bool(wrapper.settings_dict["OPTIONS"].get("pool"))


def end_of_age(wrapper: BaseDatabaseWrapper) -> float:
    """Return when an open connection reaches CONN_MAX_AGE, by ``time.monotonic()``."""
    if wrapper.close_at is None:
        return float("inf")
    has_no_age = not wrapper.settings_dict["CONN_MAX_AGE"] and not is_pooled(wrapper)
    return wrapper.close_at + (LEAST_AGE_SECONDS if has_no_age else 0.0)


def close(wrapper: BaseDatabaseWrapper) -> None:
    """End this thread's session, or return it to its pool, also if the server is gone.

    If the server is gone, it cannot be told. Any other error is logged, because a task has broken the connection,
    or the backend has a defect. The connection is given up in any case: the next task must not get it.
    """
    error = close_session(wrapper)
    if error is not None and not isinstance(error, Exception):
        raise error
    if error is not None and not isinstance(error, Error):
        signals.session_close_failed.emit(error=text_of(error))


def keeps_statements(alias: str) -> bool:
    """Say whether this thread's session keeps prepared statements for this thread alone.

    It does not in a pool or behind a pooler, nor before the session was read.
    """
    wrapper = connections[alias]
    session = wrapper.connection  # None: the task has closed the connection
    return session is not None and bool(_known.get(session)) and not is_pooled(wrapper)


def is_gone(alias: str, session: str) -> bool | None:
    """Say whether a session has ended; None = unknown to this role, session or database."""
    return are_gone(alias, [session])


def are_gone(alias: str, sessions: Sequence[str]) -> bool | None:
    """Say whether all of these sessions have ended; None = unknown for some of them.

    It is unknown if the server was restarted since, or if this is another node of a cluster, which has its own
    sessions.
    """
    parts = [_parts(one) for one in (session_of_thread(alias), *sessions)]
    read = [one for one in parts if one is not None]
    if not sessions or len(read) != len(parts):
        return None
    ours, *told = read
    if connections[alias].vendor == "postgresql":
        return _are_gone_from_postgres(alias, ours, told)
    return _are_gone_from_mysql(alias, ours, told)


class _Session(NamedTuple):
    """The parts of a session's text.

    Attributes:
        number: the server's number for the session; numbers are reused.
        started: start of the session; on MariaDB, start of the server.
        server: the server; on MariaDB with the user, because users see only their own sessions.
    """

    number: str
    started: str
    server: str


def is_known(text: str) -> bool:
    """Return True if a text is a session, and not another sign of life."""
    return _parts(text) is not None


def _parts(text: str) -> _Session | None:
    """Return a session's parts; None = the session is unknown, or the text is invalid."""
    parts = text.split(" ", 2)
    if len(parts) != len(_Session._fields) or not (parts[0].isascii() and parts[0].isdigit()):
        return None
    try:
        float(parts[1])
    except ValueError:
        return None
    return _Session(*parts)


def _are_gone_from_postgres(alias: str, ours: _Session, told: list[_Session]) -> bool | None:
    there = fetch(alias, POSTGRES_SESSIONS, numbers=[one.number for one in told])
    if any((one.number, one.started) in there for one in told):
        return False
    is_hidden = any(
        started is None for _, started in there
    )  # the session of a role that we may not see
    return None if is_hidden or any(one.server != ours.server for one in told) else True


def _are_gone_from_mysql(alias: str, ours: _Session, told: list[_Session]) -> bool | None:
    for one in told:
        distance = abs(float(one.started) - float(ours.started))
        if one.server != ours.server or distance > CLOCK_TOLERANCE_SECONDS:
            return None
    return not fetch(alias, MYSQL_SESSIONS, numbers=[one.number for one in told])


def can_connect(alias: str) -> bool:
    """Say whether the server accepts another session of ours within ``CONNECT_SECONDS``."""
    settings = connections[alias].settings_dict
    options = {name: value for name, value in settings["OPTIONS"].items() if name != "pool"}
    options["connect_timeout"] = CONNECT_SECONDS
    wrapper = type(connections[alias])({**settings, "OPTIONS": options}, alias)
    _wait_for_any_backend(wrapper)
    try:
        wrapper.ensure_connection()
    except (DatabaseError, InterfaceError):
        return False
    finally:
        wrapper.close()
    return True


def end(alias: str, sessions: Iterable[str]) -> None:
    """End the remaining sessions of a lost worker, because a frozen session may hold locks for which others wait.

    It ends only sessions of this database and this role, whatever the worker's row says.
    """
    ours = session_of_thread(alias)
    for session in sessions:
        if session != ours and is_gone(alias, session) is False:
            number, started, _ = session.split(" ", 2)
            with contextlib.suppress(DatabaseError):  # it has ended, or this role may not end it
                if connections[alias].vendor == "postgresql":
                    execute(alias, POSTGRES_TERMINATE, pid=int(number), started=started)
                elif fetch(alias, MYSQL_MAY_KILL, id=int(number)):
                    execute(alias, MYSQL_KILL, id=int(number))


def _read(alias: str, wrapper: BaseDatabaseWrapper) -> str:
    raw: Any = wrapper.connection
    if wrapper.vendor == "postgresql":
        for pid, started, server in fetch(alias, POSTGRES_OWN_SESSION):
            if pid == raw.info.backend_pid:
                return f"{pid} {started} {server}"
        return ""  # a pooler's session, or a server that does not show sessions
    if wrapper.vendor == "mysql":
        number = fetch_value(alias, MYSQL_OWN_SESSION)
        if number == raw.thread_id() and (start := _mysql_start(alias)) is not None:
            return f"{number} {start:.0f} {fetch_value(alias, MYSQL_USER)}"
    return ""


def _mysql_start(alias: str) -> float | None:
    """Return the server's start by its own clock; from then on, session numbers begin again. None = unknown."""
    for _, uptime in fetch(alias, MYSQL_UPTIME):
        return float(fetch_value(alias, MYSQL_CLOCK)) - float(uptime)
    return None
