"""Database sessions of a process, by which others can tell whether it is still there.

A session is kept as text. Empty text means that it cannot be told: behind a pooler, where the server's
sessions are the pooler's, and on SQLite, which has none.
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
"""The session of each of the driver's connections: a pool hands the same ones out again."""

CLOCK_TOLERANCE_SECONDS = 2.0
"""Seconds by which two readings of MariaDB's start, which it tells as an age in full seconds, may differ."""

LEAST_AGE_SECONDS = 5.0
"""Seconds that a connection lives where CONN_MAX_AGE is 0: a new one for each task costs more than most tasks."""

CONNECT_SECONDS = 2
"""Seconds that a session may take to be there, when one is opened to see whether it can be."""

POSTGRES_OWN_SESSION = """
    SELECT pid, CAST(EXTRACT(EPOCH FROM backend_start) AS text),
           CAST(EXTRACT(EPOCH FROM pg_postmaster_start_time()) AS text)
      FROM pg_stat_activity WHERE pid = pg_backend_pid()
"""
POSTGRES_SESSIONS = """
    SELECT CAST(pid AS text), CAST(EXTRACT(EPOCH FROM backend_start) AS text) FROM pg_stat_activity
     WHERE CAST(pid AS text) {in_numbers}
"""
# Somebody who may write workers' rows, and nothing else, must not make C end sessions of other databases and
# roles: only those of C's own role in this database are ended.
POSTGRES_TERMINATE = """
    SELECT pg_terminate_backend(pid) FROM pg_stat_activity
     WHERE pid = %(pid)s AND CAST(EXTRACT(EPOCH FROM backend_start) AS text) = %(started)s
       AND datname = current_database() AND usename = session_user AND backend_type = 'client backend'
"""
MYSQL_OWN_SESSION = "SELECT CONNECTION_ID()"
# Another server of a cluster has other sessions.
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
    """Return the session of this thread's connection, which is opened if there is none."""
    wrapper = connections[alias]
    if wrapper.vendor == "sqlite":  # it has none
        return ""
    wrapper.ensure_connection()
    session = _known.get(wrapper.connection)
    if session is None:
        session = _known[wrapper.connection] = _read(alias, wrapper)
    return session


def dedicate(alias: str, limit: timedelta) -> None:
    """Dedicate this thread's session to us, unless a pooler may give it to others.

    Args:
        limit: see ``own_transaction``.
    """
    if is_dedicated(connections[alias]):
        return
    leave_pool(alias)
    if session_of_thread(alias):
        dedicate_session(alias, limit)


def leave_pool(alias: str) -> None:
    """Give this thread a connection of its own, where Django keeps a pool: the pool is for tasks.

    A session that is now here and now there would tell nothing of this process, and could keep no plans.
    Errors of connecting are those that ``wait_for_any_backend`` raises.
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
    """Turn every error of this thread's ``connect()`` into OperationalError, but for those of wrong settings.

    A backend may ask another service for a password, and raise that service's errors. Whoever waits for a database
    that is away waits after an OperationalError; any other error would end it.
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
        except Exception as error:  # without it as cause: its arguments are not a database's codes
            text = f"it cannot connect: {type(error).__name__}: {error}"
            raise OperationalError(text) from None

    vars(wrapper)["connect"] = connect_or_fail


def close_dedicated(alias: str) -> None:
    """Close this thread's session if it was dedicated, and go back to the pool."""
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
    """Say whether Django keeps a pool for it, into which it is given back when it is closed."""
    return bool(wrapper.settings_dict["OPTIONS"].get("pool"))


def end_of_age(wrapper: BaseDatabaseWrapper) -> float:
    """Return when the age of an open connection is over, by ``time.monotonic()``; see CONN_MAX_AGE."""
    if wrapper.close_at is None:
        return float("inf")
    has_no_age = not wrapper.settings_dict["CONN_MAX_AGE"] and not is_pooled(wrapper)
    return wrapper.close_at + (LEAST_AGE_SECONDS if has_no_age else 0.0)


def close(wrapper: BaseDatabaseWrapper) -> None:
    """End this thread's session, or give it back to its pool, also if the server is gone.

    A server that is gone cannot be told. Any other error is logged: a task has broken the object, or the backend
    is at fault. The connection is given up in any case, because the next task must not get it.
    """
    error = close_session(wrapper)
    if error is not None and not isinstance(error, Exception):
        raise error
    if error is not None and not isinstance(error, Error):
        signals.session_close_failed.emit(error=text_of(error))


def keeps_statements(alias: str) -> bool:
    """Say whether what this thread's session is told to keep ready is there next time, and nobody else's.

    Not in a pool, nor behind a pooler, and not where that has not been asked yet.
    """
    wrapper = connections[alias]
    session = wrapper.connection  # None: the task has closed it
    return session is not None and bool(_known.get(session)) and not is_pooled(wrapper)


def is_gone(alias: str, session: str) -> bool | None:
    """Say whether a session has ended; None = this role, this session or this database cannot tell."""
    return are_gone(alias, [session])


def are_gone(alias: str, sessions: Sequence[str]) -> bool | None:
    """Say whether all of these sessions have ended; None = of some of them that cannot be told.

    It cannot if the server was started since, or is another one of a cluster: that one has sessions of its own.
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
    """The text of a session in its parts.

    Attributes:
        number: what the server calls it; used again.
        started: when it began; on MariaDB, when its server did.
        server: which one; on MariaDB with the user, who sees no other's sessions.
    """

    number: str
    started: str
    server: str


def _parts(text: str) -> _Session | None:
    """Return a session's parts; None = it is not known, or somebody has written something else."""
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
    is_hidden = any(started is None for _, started in there)  # it is of a role that we may not see
    return None if is_hidden or any(one.server != ours.server for one in told) else True


def _are_gone_from_mysql(alias: str, ours: _Session, told: list[_Session]) -> bool | None:
    for one in told:
        distance = abs(float(one.started) - float(ours.started))
        if one.server != ours.server or distance > CLOCK_TOLERANCE_SECONDS:
            return None
    return not fetch(alias, MYSQL_SESSIONS, numbers=[one.number for one in told])


def can_connect(alias: str) -> bool:
    """Say whether the server takes another session of ours, and soon."""
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
    """End what is left of a lost worker's sessions: a frozen one may hold locks that others wait for.

    Only sessions of this database and of this role are ended, whatever stands in the worker's row.
    """
    ours = session_of_thread(alias)
    for session in sessions:
        if session != ours and is_gone(alias, session) is False:
            number, started, _ = session.split(" ", 2)
            with contextlib.suppress(DatabaseError):  # it ended by itself, or this role may not
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
        return ""  # a pooler's session, or a server that does not show it
    if wrapper.vendor == "mysql":
        number = fetch_value(alias, MYSQL_OWN_SESSION)
        if number == raw.thread_id() and (start := _mysql_start(alias)) is not None:
            return f"{number} {start:.0f} {_mysql_user(alias)}"
    return ""


def _mysql_user(alias: str) -> str:
    return str(fetch_value(alias, MYSQL_USER))


def _mysql_start(alias: str) -> float | None:
    """Return when the server was started, by its own clock: after that its session numbers begin anew.

    None = it does not say.
    """
    for _, uptime in fetch(alias, MYSQL_UPTIME):
        return float(fetch_value(alias, MYSQL_CLOCK)) - float(uptime)
    return None
