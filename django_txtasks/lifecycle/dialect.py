"""What PostgreSQL, MariaDB/MySQL and SQLite spell differently, and how a statement is run."""

from __future__ import annotations

import functools
import math
import uuid
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from weakref import WeakKeyDictionary

from django.db import connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper


@dataclass(frozen=True)
class Dialect:
    """Pieces of SQL, put into a statement by name.

    Attributes:
        now: the database's clock, in UTC.
        later: the same plus ``%(delay)s`` seconds.
        ago: the same minus ``%(age)s`` seconds.
        wait: seconds until ``run_after``; zero or less = due.
        skip_locked: lock what is selected and leave out what another transaction has locked.
            SQLite has one writer at a time, whose BEGIN IMMEDIATE does the same.
        to_queue, below_priority: where in the index of pending rows to find a queue's highest
            priority, and its next one. PostgreSQL leaves ``status = 'pending'`` out of a look-up in
            an index whose condition says the same, and would then walk it from its end; but it
            goes straight to where whole rows compare, be it in another queue.
        beyond_mark: where in that index a scan goes on. MariaDB finds no place by comparing rows.
        from_id, before_id: in a part of what is due in one microsecond. SQLite keeps text, which may end with
            milliseconds or microseconds; but it does find its place by comparing rows.
        utc: what ends the text of a time that is in UTC.
        sound_id: leave out rows whose id is none that can be read back: SQLite takes any text.
        by_worker, by_queue, by_expiry, by_finish: the index to follow, whatever statistics say; PostgreSQL,
            which has no such words, is told by ``own_transaction(in_order=True)``.
        text: the type of text, for a cast.
        name: a task's name, to compare: MariaDB takes capitals and NUL for the same.
        json: start and end of a cast of text to the type of a JSON column.
    """

    now: str
    later: str
    ago: str
    wait: str
    skip_locked: str
    to_queue: str = "t.queue_name = %(queue)s"
    below_priority: str = "t.queue_name = %(queue)s AND t.priority < present.priority"
    beyond_mark: str = "(run_after, id) > (%(mark_time)s, %(mark_id)s)"
    from_id: str = "run_after = %(begin_time)s AND id >= %(begin_id)s"
    before_id: str = "id < %(end_id)s"
    utc: str = ""
    text: str = "text"
    name: str = "task_name"
    sound_id: str = ""
    by_worker: str = ""
    by_queue: str = ""
    by_expiry: str = ""
    by_finish: str = ""
    json: str = ""
    end_json: str = ""


_SQLITE_NOW = "strftime('%%Y-%%m-%%d %%H:%%M:%%f', 'now'{})"
_MYSQL_SHIFT = "UTC_TIMESTAMP(6) {} INTERVAL ROUND(%({})s * 1000000) MICROSECOND"
DIALECTS = {
    "postgresql": Dialect(
        now="statement_timestamp()",
        later="statement_timestamp() + make_interval(secs => %(delay)s)",
        ago="statement_timestamp() - make_interval(secs => %(age)s)",
        # not of the difference: PostgreSQL cannot subtract from '-infinity', which somebody may write
        wait="EXTRACT(EPOCH FROM run_after) - EXTRACT(EPOCH FROM statement_timestamp())",
        skip_locked="FOR NO KEY UPDATE SKIP LOCKED",
        to_queue="(t.status, t.queue_name) <= ('pending', %(queue)s)",
        below_priority="(t.status, t.queue_name, t.priority) < ('pending', %(queue)s, present.priority)",
        json="CAST(",
        end_json=" AS jsonb)",
        utc="+00",
    ),
    "mysql": Dialect(
        now="UTC_TIMESTAMP(6)",
        later=_MYSQL_SHIFT.format("+", "delay"),
        ago=_MYSQL_SHIFT.format("-", "age"),
        wait="TIMESTAMPDIFF(MICROSECOND, UTC_TIMESTAMP(6), run_after) / 1000000",
        skip_locked="FOR UPDATE SKIP LOCKED",
        beyond_mark="run_after >= %(mark_time)s AND (run_after > %(mark_time)s OR id > %(mark_id)s)",
        text="char",
        by_worker="FORCE INDEX (txtasks_claimed)",
        by_queue="FORCE INDEX (txtasks_pending)",
        by_expiry="FORCE INDEX (txtasks_expires)",
        by_finish="FORCE INDEX (txtasks_finished_at)",
        name="CAST(task_name AS BINARY)",
    ),
    "sqlite": Dialect(
        now=_SQLITE_NOW.format(""),
        later=_SQLITE_NOW.format(", %(delay)s || ' seconds'"),
        ago=_SQLITE_NOW.format(", -%(age)s || ' seconds'"),
        wait="COALESCE((julianday(run_after) - julianday('now')) * 86400.0, 1e9)",
        skip_locked="",
        from_id="(run_after, id) >= (%(begin_time)s, %(begin_id)s)",
        before_id="(run_after, id) < (%(begin_time)s, %(end_id)s)",
        sound_id="AND length(id) = 32 AND id NOT GLOB '*[^0-9a-f]*'",
        by_worker="INDEXED BY txtasks_claimed",
        by_queue="INDEXED BY txtasks_pending",
        by_expiry="INDEXED BY txtasks_expires",
        by_finish="INDEXED BY txtasks_finished_at",
    ),
}


def dialect_of(connection: BaseDatabaseWrapper) -> Dialect:
    """Return the pieces for this connection's database."""
    return DIALECTS[connection.vendor]


def run(alias: str, sql: str, **params: Any) -> tuple[int, list[tuple[Any, ...]]]:
    """Run one statement and return (row count, rows).

    ``{now}`` and the like are replaced by the dialect's; ``{in_ids}``, for a parameter ``ids`` that is a
    list, by a comparison with all of its values.
    """
    connection = connections[alias]
    text, values = _bound(connection, sql, params)
    with _cursor(connection) as cursor:
        cursor.execute(text, values)
        return cursor.rowcount, list(cursor.fetchall()) if cursor.description else []


def run_at_once(alias: str, sql: str, *, limit: timedelta, **params: Any) -> list[tuple[Any, ...]]:
    """Run one statement as a transaction of its own, within the limits of ``own_transaction``; return its rows.

    It takes one round trip: its limits are the session's or travel with it, so that they hold before it asks
    for its first lock. See ``can_run_at_once``.
    """
    connection = connections[alias]
    text, values = _bound(connection, sql, params)
    with _cursor(connection) as cursor:
        if is_dedicated(connection):
            cursor.execute(text, values)
        else:
            cursor.execute(f"{_LIMITS + _IN_ORDER};{text}", {**_limits(limit), **values})
            cursor.nextset()
        return list(cursor.fetchall())


def can_run_at_once(alias: str) -> bool:
    """Say whether ``run_at_once`` can: PostgreSQL and no open transaction.

    In a session that is not ours alone, psycopg must write values into the SQL, as it does unless Django is
    told to bind them on the server.
    """
    connection: Any = connections[alias]
    if connection.vendor != "postgresql" or not connection.get_autocommit():
        return False
    if is_dedicated(connection):
        return True
    from psycopg import ClientCursor  # where there is PostgreSQL, it can be imported

    return issubclass(connection.connection.cursor_factory, ClientCursor)


def dedicate_session(alias: str, limit: timedelta) -> None:
    """This thread's session, of PostgreSQL, becomes ours alone until it is closed: its limits are for nobody else.

    It has the limits of ``own_transaction`` for good, and keeps the plans of its statements, which take longer
    to make than to carry out. They are made once, for all values and for whatever will be in the tables.
    """
    from psycopg import Connection, Cursor

    connection: Any = connections[alias]
    session = connection.connection
    is_free = connection.get_autocommit() and not connection.in_atomic_block
    if is_free and isinstance(session, Connection):
        run(alias, (_LIMITS + _IN_ORDER + _ONE_PLAN).replace("true", "false"), **_limits(limit))
        session.prepare_threshold = 0
        _dedicated_cursors[connection] = Cursor(session)


_dedicated_cursors: WeakKeyDictionary[BaseDatabaseWrapper, Any] = WeakKeyDictionary()


def is_dedicated(connection: BaseDatabaseWrapper) -> bool:
    """Say whether this session was dedicated: see ``dedicate_session``."""
    return _dedicated_cursor(connection) is not None


def _dedicated_cursor(connection: BaseDatabaseWrapper) -> Any:
    cursor = _dedicated_cursors.get(connection)
    is_there = cursor is not None and cursor.connection is connection.connection
    return cursor if is_there else None


def _cursor(connection: Any) -> AbstractContextManager[Any]:
    """Return a cursor for one statement, as Django wraps it; that of a dedicated session is kept open."""
    own = _dedicated_cursor(connection)
    if own is None:
        return connection.cursor()  # type: ignore[no-any-return]
    wrapper = connection.make_debug_cursor if connection.queries_logged else connection.make_cursor
    return nullcontext(wrapper(own))


def _bound(
    connection: BaseDatabaseWrapper, sql: str, params: dict[str, Any]
) -> tuple[str, dict[str, Any]]:
    """Return a statement with its pieces in it, and its parameters as the driver takes them."""
    if connection.vendor == "postgresql":  # one parameter, however long
        return _with_arrays(sql, params)
    pieces, values = dict(vars(dialect_of(connection))), {}
    for name, value in params.items():
        if isinstance(value, list):
            several = {f"{name}_{index}": _plain(one) for index, one in enumerate(value)}
            values.update(several)
            pieces[f"in_{name}"] = f"IN ({', '.join(f'%({one})s' for one in several)})"
        else:
            values[name] = _plain(value)
    return sql.format(**pieces), values


def _with_arrays(sql: str, params: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    values, types = {}, []
    for name, value in params.items():
        if isinstance(value, list):
            is_ids = value and isinstance(value[0], uuid.UUID)
            types.append((name, "uuid" if is_ids else "text"))
            values[name] = _array(value)
        else:
            values[name] = _plain(value)
    return _text_with_arrays(sql, tuple(types)), values


@functools.lru_cache(maxsize=200)
def _text_with_arrays(sql: str, types: tuple[tuple[str, str], ...]) -> str:
    arrays = {f"in_{name}": f"= ANY(CAST(%({name})s AS {type_}[]))" for name, type_ in types}
    return sql.format(**vars(DIALECTS["postgresql"]), **arrays)


def _array(values: Iterable[uuid.UUID | int | str | None]) -> str:
    """Return values as PostgreSQL reads an array.

    That takes a fifth of the time in which psycopg writes it, or less, and it has no type yet: a cast that
    changes the type would be carried out again for each row.
    """
    return "{" + ",".join([_element(value) for value in values]) + "}"


def _element(value: uuid.UUID | int | str | None) -> str:
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    if isinstance(value, uuid.UUID):
        return value.hex
    return "NULL" if value is None else str(value)


def as_uuid(value: Any) -> uuid.UUID:
    """Return an id as it came from a raw statement: UUID, or text on MariaDB and SQLite."""
    return value if isinstance(value, uuid.UUID) else uuid.UUID(value)


def is_uuid(value: Any) -> bool:
    """Say whether it can be read as an id: SQLite keeps whatever somebody writes by hand."""
    try:
        as_uuid(value)
    except (ValueError, AttributeError, TypeError):
        return False
    return True


@contextmanager
def own_transaction(
    alias: str, *, limit: timedelta | None = None, in_order: bool = False
) -> Iterator[None]:
    """A transaction of ours alone.

    Args:
        limit: how long its client may freeze inside it, and, on PostgreSQL, twice the longest
            statement: a stopped process must not keep rows locked for the cleaner. MySQL, unlike
            MariaDB, has no such limit.
        in_order: with ``limit``, for PostgreSQL: read what waits in the order of its index, a few rows, even
            if statistics of a table that was empty make it seem as cheap to sort all of them.
    """
    with transaction.atomic(using=alias):
        if limit is not None and getattr(connections[alias], "mysql_is_mariadb", False):
            run(alias, _MARIADB_LIMIT, seconds=max(1, math.ceil(limit.total_seconds())))
        if limit is not None and _lacks_limits(connections[alias]):
            run(alias, _LIMITS + _IN_ORDER if in_order else _LIMITS, **_limits(limit))
        yield


def _lacks_limits(connection: BaseDatabaseWrapper) -> bool:
    return connection.vendor == "postgresql" and not is_dedicated(connection)


def _limits(limit: timedelta) -> dict[str, str]:
    milliseconds = max(1, int(limit.total_seconds() * 1000))
    return {
        "idle": str(milliseconds),
        "statement": str(max(1, milliseconds // 2)),
        "lock": "1000",
    }


_LIMITS = """
    SELECT set_config('idle_in_transaction_session_timeout', %(idle)s, true),
           set_config('statement_timeout', %(statement)s, true),
           set_config('lock_timeout', %(lock)s, true)
"""
# What it is forbidden to do becomes so expensive, where it has to be done, that it would be compiled first.
_IN_ORDER = """
         , set_config('enable_sort', 'off', true), set_config('enable_bitmapscan', 'off', true),
           set_config('enable_seqscan', 'off', true), set_config('jit', 'off', true)
"""
_ONE_PLAN = ", set_config('plan_cache_mode', 'force_generic_plan', true)"

_MARIADB_LIMIT = "SET SESSION idle_transaction_timeout = %(seconds)s"


def _plain(value: Any) -> Any:
    return value.hex if isinstance(value, uuid.UUID) else value
