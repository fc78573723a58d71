"""Transactions and sessions of ours alone, with limits: a frozen process must not keep rows locked."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from django.db import DatabaseError, InterfaceError, ProgrammingError, connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper

from django_txtasks.database import prepared
from django_txtasks.database.errors import is_lock_timeout, is_repeatable
from django_txtasks.database.execute import (
    bound,
    cursor_of,
    execute,
    fetch,
    is_dedicated,
    keep_cursor,
)

_IDLE = 0  # libpq's PQTRANS_IDLE: no transaction is open
TIMES = 20
"""How often a transaction of ours is repeated where the database asks for it."""
Result = TypeVar("Result")


@contextmanager
def own_transaction(
    alias: str,
    *,
    limit: timedelta | None = None,
    in_order: bool = False,
    read_committed: bool = False,
) -> Iterator[None]:
    """Open a transaction in which only our own statements run.

    Args:
        limit: how long its client may freeze inside it, and, on PostgreSQL, twice the longest
            statement: a stopped process must not keep rows locked for the cleaner. MySQL, unlike
            MariaDB, has no such limit.
        in_order: with ``limit``, for PostgreSQL: read what waits in the order of its index, a few rows, even
            if statistics of a table that was empty make it seem as cheap to sort all of them.
        read_committed: each statement sees what was committed before it, whatever the isolation level of the
            connection. No transaction may be open.
    """
    with transaction.atomic(using=alias):
        if read_committed and connections[alias].vendor != "sqlite":  # whose only writer sees all
            execute(alias, "SET TRANSACTION ISOLATION LEVEL READ COMMITTED")
        if limit is not None and getattr(connections[alias], "mysql_is_mariadb", False):
            _limit_mariadb(alias, max(1, math.ceil(limit.total_seconds())))
        if limit is not None and _lacks_limits(connections[alias]):
            execute(alias, _LIMITS + _IN_ORDER if in_order else _LIMITS, **_limits(limit))
        yield


def repeated(alias: str, work: Callable[[], Result], *, after_lock_timeouts: bool = True) -> Result:
    """Return what ``work`` returns, a transaction of ours alone, and repeat it while the database asks for that.

    Where the caller's transaction is open, only the caller can repeat that: it runs once, in a savepoint.

    Args:
        after_lock_timeouts: False = raise where MariaDB or MySQL waited for a lock as long as its setting allows.
    """
    for _ in range(TIMES if connections[alias].get_autocommit() else 0):
        try:
            return work()
        except DatabaseError as error:
            if not is_repeatable(error) or (is_lock_timeout(error) and not after_lock_timeouts):
                raise
    return work()


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
# PostgreSQL gives a forbidden step such a high cost that it would compile the query first, so JIT is off.
_IN_ORDER = """
         , set_config('enable_sort', 'off', true), set_config('enable_bitmapscan', 'off', true),
           set_config('enable_seqscan', 'off', true), set_config('jit', 'off', true)
"""
_ONE_PLAN = ", set_config('plan_cache_mode', 'force_generic_plan', true)"

_MARIADB_LIMIT = "SET SESSION idle_transaction_timeout = %(seconds)s"
_MARIADB_LIMITS = """
    SET SESSION idle_transaction_timeout = %(idle)s, max_statement_time = %(statement)s,
                innodb_lock_wait_timeout = 1
"""
_limited: WeakKeyDictionary[Any, int] = WeakKeyDictionary()
"""Seconds, of each of the driver's connections whose session has this limit already."""


def _limit_mariadb(alias: str, seconds: int) -> None:
    session = connections[alias].connection
    if _limited.get(session) != seconds:
        execute(alias, _MARIADB_LIMIT, seconds=seconds)
        _limited[session] = seconds


def fetch_in_one_statement(
    alias: str, sql: str, *, limit: timedelta, **params: Any
) -> list[tuple[Any, ...]]:
    """Run one statement as a transaction of its own, within the limits of ``own_transaction``; return its rows.

    It takes one round trip: its limits are the session's or travel with it, so that they hold before it asks
    for its first lock. See ``can_use_one_statement``.
    """
    connection = connections[alias]
    text, values = bound(connection, sql, params)
    with cursor_of(connection) as cursor:
        if is_dedicated(connection):
            cursor.execute(text, values)
        else:
            cursor.execute(f"{_LIMITS + _IN_ORDER};{text}", {**_limits(limit), **values})
            cursor.nextset()
        return list(cursor.fetchall())


def can_use_one_statement(alias: str) -> bool:
    """Say whether ``fetch_in_one_statement`` can: PostgreSQL and no open transaction."""
    connection: Any = connections[alias]
    if connection.vendor != "postgresql" or not connection.get_autocommit():
        return False
    return is_dedicated(connection) or _takes_several_statements(connection)


def begin_along(
    execute: Callable[..., Any], sql: Any, params: Any, many: bool, context: Any
) -> Any:
    """Run a statement of an open block, as ``execute`` does; on PostgreSQL BEGIN goes along with the first one.

    Psycopg sends BEGIN by itself before it, which is a round trip. Where the two cannot go together they do not;
    nor where a project wraps statements, too, or has a class of cursors: it would read another one, and what it
    asks the database itself meanwhile would be in no transaction.

    Args:
        execute, sql, params, many, context: of Django's ``execute_wrapper``; its caller is the outermost one.
    """
    connection = context["connection"]
    if not _may_begin(connection):
        return execute(sql, params, many, context)
    is_wrapped = len(connection.execute_wrappers) > 1
    if many or is_wrapped or not isinstance(sql, str) or not _is_plain(context["cursor"]):
        _send(connection, "BEGIN", {})
        return execute(sql, params, many, context)
    session = connection.connection
    try:
        # so psycopg sends no BEGIN; its public setter would not take that back in a transaction
        session._autocommit = True
        result = execute(f"BEGIN; {sql}", params, many, context)
    except DatabaseError as error:
        # The server could not read it, and has not begun: the block must end here, as after any other error.
        is_refused = getattr(error.__cause__, "sqlstate", None) is not None
        if is_refused and session.pgconn.transaction_status == _IDLE:
            connection.needs_rollback = True
        raise
    finally:
        session._autocommit = False
    context["cursor"].nextset()  # from the answer to BEGIN to that of the statement
    return result


def _is_plain(cursor: Any) -> bool:
    """Say whether a cursor is Django's usual one: it writes values into the SQL, and sends nothing of its own."""
    from django.db.backends.postgresql.base import Cursor

    return type(getattr(cursor, "cursor", None)) is Cursor


def begin(connection: Any) -> None:
    """Begin the transaction of an open block of PostgreSQL, where psycopg would with the statement to come.

    The short way, which takes less CPU time. Where that does not fit it does nothing, and psycopg begins.
    """
    if _may_begin(connection):
        _send(connection, "BEGIN", {})


def _may_begin(connection: Any) -> bool:
    """Say whether the next statement would make psycopg send BEGIN, and no more than this word."""
    session = connection.connection
    if connection.vendor != "postgresql" or session is None or session.autocommit:
        return False
    if session.pgconn.transaction_status != _IDLE or not _can_send(connection):
        return False
    modes = (session.isolation_level, session.read_only, session.deferrable)
    return all(mode is None for mode in modes)


def execute_and_commit(alias: str, sql: str, *, prepares: bool, **params: Any) -> None:
    """Run the last statement of the open transaction, and its COMMIT, in one round trip.

    Django's own COMMIT, at the end of the block, finds nothing to be done. Where the statement fails, nothing is
    committed. On MariaDB it is a block of statements, which commits by itself. See ``can_commit_along``.

    Args:
        prepares: the session may keep it ready: see ``prepared``.

    Raises:
        NotKept: it was to keep it, and does not; the transaction is lost.
    """
    connection: Any = connections[alias]
    text, values = bound(connection, sql, params)
    if connection.vendor == "postgresql":
        begin(connection)  # if the task asked the database for nothing
        if connection.connection.pgconn.transaction_status and _can_send(connection):
            if prepares and prepared.may_be_used(alias):
                _send_short_form(connection, text, values)
            else:
                _send_as_cursors_do(connection, f"{text}; COMMIT", values)
            return
        text = f"{text}; COMMIT"
    with connection.cursor() as cursor:
        cursor.execute(text, values)


def _send_short_form(connection: Any, text: str, values: dict[str, Any]) -> None:
    """Run a statement that the session keeps ready, and COMMIT.

    Raises:
        NotKept: it does not; somebody else has told it to forget, or it is another one's.
    """
    send = functools.partial(_send, connection, values={})
    try:
        short = prepared.short_form(connection.connection, text, send)
        _send_as_cursors_do(connection, f"{short}; COMMIT", values)
    except ProgrammingError as error:
        prepared.give_up_if_missing(connection.alias, error)
        raise


def _can_send(connection: Any) -> bool:
    """Say whether psycopg's session can be given a statement beside psycopg itself."""
    return not connection.connection.closed and _takes_several_statements(connection)


class _Context(dict[str, Any]):
    """What Django's ``execute_wrapper`` gets; the cursor, which hardly one asks for, is made then."""

    def __missing__(self, key: str) -> Any:
        return self.setdefault(key, self["connection"].cursor())


def _send_as_cursors_do(connection: Any, sql: str, values: dict[str, Any]) -> None:
    """Send it through what wraps statements of this connection: a project may count them, or log them."""

    def execute(sql: str, params: Any, many: bool, context: Any) -> None:
        _send(connection, sql, params)

    run: Callable[..., Any] = execute
    for wrapper in reversed(connection.execute_wrappers):
        run = functools.partial(wrapper, run)
    run(sql, values, False, _Context(connection=connection))


def _send(connection: Any, sql: str, values: dict[str, int | str | None]) -> None:
    """Run statements that yield nothing the short way, which takes a fifth of the CPU time that a cursor takes."""
    from psycopg import errors
    from psycopg.pq import Escaping, ExecStatus

    connection.validate_no_broken_transaction()
    session = connection.connection
    encoding = session.info.encoding

    def literal(value: int | str | None) -> str:
        if isinstance(value, str):
            escaped = Escaping(session.pgconn).escape_literal(value.encode(encoding))
            return bytes(escaped).decode(encoding)
        return "NULL" if value is None else str(value)

    with connection.wrap_database_errors, session.lock:
        text = sql % {name: literal(value) for name, value in values.items()} if values else sql
        result = session.pgconn.exec_(text.encode(encoding))
        if result.status == ExecStatus.FATAL_ERROR:
            raise errors.error_from_result(result, encoding=encoding)


def can_commit_along(alias: str) -> bool:
    """Say whether ``execute_and_commit`` can: PostgreSQL or MariaDB, in the outermost block."""
    connection: Any = connections[alias]
    if not connection.in_atomic_block or connection.savepoint_ids or is_dedicated(connection):
        return False  # a dedicated session gets its parameters apart
    if connection.vendor == "postgresql":
        return _takes_several_statements(connection)
    return _takes_blocks(alias)


def _takes_several_statements(connection: Any) -> bool:
    """Say whether psycopg writes values into the SQL, which Django may be told to bind on the server."""
    from psycopg import ClientCursor  # where there is PostgreSQL, it can be imported

    raw = connection.connection  # None: the task has closed it
    is_plain = raw is not None and not raw.pgconn.pipeline_status
    return is_plain and issubclass(raw.cursor_factory, ClientCursor)


@contextmanager
def rolled_back_on_error(alias: str) -> Iterator[None]:
    """Roll back what a block of ours has begun, unless it has ended it: see ``can_use_blocks``."""
    try:
        yield
    except BaseException:
        try:
            connections[alias].rollback()
        except (DatabaseError, InterfaceError):
            connections[alias].close()
        raise


def can_use_blocks(alias: str) -> bool:
    """Say whether a block of statements, which begins and ends its transaction, can be sent as one: on MariaDB.

    In a dedicated session, which has the limits of ``own_transaction`` for good.
    """
    connection: Any = connections[alias]
    return connection.get_autocommit() and is_dedicated(connection) and _takes_blocks(alias)


_AGAIN = "SHOW VARIABLES LIKE 'wsrep_on'"
_runs_again: dict[str, bool] = {}
"""Of an alias: its server is of a Galera cluster, which after a conflict runs a block again by itself, and sends
what it selects twice."""


def _takes_blocks(alias: str) -> bool:
    """Say whether the server is a MariaDB that runs a block of statements once."""
    if not getattr(connections[alias], "mysql_is_mariadb", False):
        return False
    if alias not in _runs_again:
        _runs_again[alias] = any(value == "ON" for _, value in fetch(alias, _AGAIN))
    return not _runs_again[alias]


def dedicate_session(alias: str, limit: timedelta) -> None:
    """Set the limits of ``own_transaction`` for this thread's session, which only our statements use from now on.

    PostgreSQL and MariaDB know such limits.
    """
    connection: Any = connections[alias]
    if not connection.get_autocommit() or connection.in_atomic_block:
        return
    if connection.vendor == "postgresql":
        _dedicate_postgresql(alias, limit)
    elif getattr(connection, "mysql_is_mariadb", False):
        _dedicate_mariadb(alias, limit)


def _dedicate_mariadb(alias: str, limit: timedelta) -> None:
    connection: Any = connections[alias]
    seconds = max(1, math.ceil(limit.total_seconds()))
    execute(alias, _MARIADB_LIMITS, idle=seconds, statement=limit.total_seconds() / 2)
    _limited[connection.connection] = seconds
    keep_cursor(connection, connection.create_cursor())


def _dedicate_postgresql(alias: str, limit: timedelta) -> None:
    """Keep the plans of its statements, too, which take longer to make than to carry out.

    They are made once, for all values and for whatever will be in the tables.
    """
    from psycopg import Connection, RawCursor

    connection: Any = connections[alias]
    session = connection.connection
    if isinstance(session, Connection):
        execute(alias, (_LIMITS + _IN_ORDER + _ONE_PLAN).replace("true", "false"), **_limits(limit))
        session.prepare_threshold = 0
        keep_cursor(connection, RawCursor(session))
