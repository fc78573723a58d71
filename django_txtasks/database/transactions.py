"""Transactions and sessions for our statements only, with limits, because a frozen process must not keep locks."""

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

from django_txtasks.database import cost
from django_txtasks.database.errors import is_lock_timeout, is_repeatable
from django_txtasks.database.execute import (
    bound,
    cursor_of,
    execute,
    fetch,
    is_dedicated,
    keep_cursor,
)
from django_txtasks.fast import prepared

_IDLE = 0  # libpq's PQTRANS_IDLE: no transaction is open
TIMES = 20
"""Number of repetitions of our own transactions if the database asks to repeat them."""
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
        limit: longest time for which the client may freeze in the transaction; on PostgreSQL, also twice the limit
            of one statement. A stopped process must not keep rows locked, because the cleaner needs them. MySQL,
            unlike MariaDB, has no such limit. A caller's open transaction keeps its own limit for a frozen client,
            because ours would end the caller's session.
        in_order: with ``limit``, on PostgreSQL: read few pending rows in the order of their index, even if the
            statistics of an empty table make it seem as cheap to sort all of them.
        read_committed: each statement sees all earlier commits, whatever the isolation level of the connection. No
            transaction may be open.
    """
    is_callers = connections[alias].in_atomic_block
    if not is_callers:
        cost.of(alias).transactions += 1
    with transaction.atomic(using=alias):
        # SQLite needs no level: its one writer sees all commits
        if read_committed and connections[alias].vendor != "sqlite":
            execute(alias, "SET TRANSACTION ISOLATION LEVEL READ COMMITTED")
        is_mariadb = getattr(connections[alias], "mysql_is_mariadb", False)
        if limit is not None and is_mariadb and not is_callers:
            _limit_mariadb(alias, max(1, math.ceil(limit.total_seconds())))
        if limit is not None and _lacks_limits(connections[alias]):
            limits = _LIMITS_IN_CALLERS if is_callers else _LIMITS
            execute(alias, limits + _IN_ORDER if in_order else limits, **_limits(limit))
        yield


@contextmanager
def only_reading(alias: str, limit: timedelta) -> Iterator[None]:
    """Read on PostgreSQL in the order of the indexes, with the limits of ``own_transaction``.

    The settings end with the block, also in a caller's open transaction. On other databases nothing is set,
    because a transaction that reads may block others there.
    """
    if connections[alias].vendor != "postgresql":
        yield
        return
    with own_transaction(alias, limit=limit, in_order=True):
        yield
        # the settings of a savepoint end with its rollback
        transaction.set_rollback(True, using=alias)


def is_in_test_case(alias: str) -> bool:
    """Return True in a transaction of Django's ``TestCase``, which rolls everything back."""
    blocks: list[Any] = connections[alias].atomic_blocks
    return any(block._from_testcase for block in blocks)


def repeated(alias: str, work: Callable[[], Result], *, after_lock_timeouts: bool = True) -> Result:
    """Run ``work``, which is one transaction of ours, and repeat it as long as the database asks for it.

    If the caller's transaction is open, ``work`` runs once, in a savepoint: only the caller can repeat its
    transaction.

    Args:
        after_lock_timeouts: False = raise the error if MariaDB or MySQL has waited too long for a lock.
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


# Statements return times as text, and psycopg reads numbers from text: the role's formats must not change them.
_IDLE_LIMIT = """
           set_config('idle_in_transaction_session_timeout', %(idle)s, true),"""
_LIMITS = f"""
    SELECT set_config('DateStyle', 'ISO', true), set_config('extra_float_digits', '1', true),{_IDLE_LIMIT}
           set_config('statement_timeout', %(statement)s, true),
           set_config('lock_timeout', %(lock)s, true)
"""
_LIMITS_IN_CALLERS = _LIMITS.replace(_IDLE_LIMIT, "")
# PostgreSQL gives a disabled step such a high cost that JIT would compile the query first, so JIT is off.
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
"""Limit in seconds by connection of the driver, for sessions that have it already."""


def _limit_mariadb(alias: str, seconds: int) -> None:
    session = connections[alias].connection
    if _limited.get(session) != seconds:
        execute(alias, _MARIADB_LIMIT, seconds=seconds)
        _limited[session] = seconds


def fetch_in_one_statement(
    alias: str, sql: str, *, limit: timedelta, **params: Any
) -> list[tuple[Any, ...]]:
    """Run one statement as a transaction of its own, with the limits of ``own_transaction``; return its rows.

    It takes one round trip: the session has the limits, or they are sent with the statement, so they hold before
    its first lock. The caller counts the rows that it writes. See ``can_use_one_statement``.
    """
    connection = connections[alias]
    text, values = bound(connection, sql, params)
    cost.of(alias).transactions += 1
    with cursor_of(connection) as cursor:
        if is_dedicated(connection):
            cursor.execute(text, values)
        else:
            cursor.execute(f"{_LIMITS + _IN_ORDER};{text}", {**_limits(limit), **values})
            cursor.nextset()
        return list(cursor.fetchall())


def can_use_one_statement(alias: str) -> bool:
    """Say whether ``fetch_in_one_statement`` works: on PostgreSQL without an open transaction."""
    connection: Any = connections[alias]
    if connection.vendor != "postgresql" or not connection.get_autocommit():
        return False
    return is_dedicated(connection) or _takes_several_statements(connection)


def begin_along(
    execute: Callable[..., Any], sql: Any, params: Any, many: bool, context: Any
) -> Any:
    """Run a statement of an open block, as ``execute`` does; on PostgreSQL, the first one takes BEGIN along.

    Psycopg would send BEGIN before it, which costs a round trip. The two are sent apart if they cannot go
    together, and if the project has its own ``execute_wrapper`` or class of cursors: the project's code would see
    a changed statement, and its own statements in between would be in no transaction.

    Args:
        execute, sql, params, many, context: as of Django's ``execute_wrapper``; the caller is the outermost
            wrapper.
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
        # so psycopg sends no BEGIN; its public setter could not reset this inside a transaction
        session._autocommit = True
        result = execute(f"BEGIN; {sql}", params, many, context)
    except DatabaseError as error:
        # The server could not parse the statement and has not begun a transaction. The block must end here, as
        # after any other error.
        is_refused = getattr(error.__cause__, "sqlstate", None) is not None
        if is_refused and session.pgconn.transaction_status == _IDLE:
            connection.needs_rollback = True
        raise
    finally:
        session._autocommit = False
    context["cursor"].nextset()  # from the result of BEGIN to that of the statement
    return result


def _is_plain(cursor: Any) -> bool:
    """Say whether a cursor is Django's usual one, which writes values into the SQL and sends nothing else."""
    from django.db.backends.postgresql.base import Cursor

    return type(getattr(cursor, "cursor", None)) is Cursor


def begin(connection: Any) -> None:
    """Begin the transaction of an open block on PostgreSQL, which psycopg would do with the next statement.

    This takes less CPU time than psycopg. If it is not possible, it does nothing, and psycopg begins.
    """
    if _may_begin(connection):
        _send(connection, "BEGIN", {})


def _may_begin(connection: Any) -> bool:
    """Say whether psycopg would send a plain BEGIN before the next statement."""
    session = connection.connection
    if connection.vendor != "postgresql" or session is None or session.autocommit:
        return False
    if session.pgconn.transaction_status != _IDLE or not _can_send(connection):
        return False
    modes = (session.isolation_level, session.read_only, session.deferrable)
    return all(mode is None for mode in modes)


def execute_and_commit(alias: str, sql: str, *, prepares: bool, **params: Any) -> None:
    """Run the last statement of the open transaction and its COMMIT in one round trip.

    Django's own COMMIT at the end of the block then has nothing to do. If the statement fails, nothing is
    committed. On MariaDB, the text is a block of statements that commits. See ``can_commit_along``.

    Args:
        prepares: whether the session may prepare the statement: see ``prepared``.

    Raises:
        NotKept: the session has lost its prepared statement; the transaction is lost.
    """
    connection: Any = connections[alias]
    text, values = bound(connection, sql, params)
    cost.of(alias).transactions += 1
    cost.note(connection, sql, 1)
    if connection.vendor == "postgresql":
        begin(connection)  # if the task has sent no statement
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
    """Run a prepared statement and COMMIT.

    Raises:
        NotKept: the session does not know the statement: it was deallocated, or this is another session.
    """
    send = functools.partial(_send, connection, values={})
    try:
        short = prepared.short_form(connection.connection, text, send)
        _send_as_cursors_do(connection, f"{short}; COMMIT", values)
    except ProgrammingError as error:
        prepared.give_up_if_missing(connection.alias, error)
        raise


def _can_send(connection: Any) -> bool:
    """Say whether a statement can be sent in psycopg's session without psycopg's cursors."""
    return not connection.connection.closed and _takes_several_statements(connection)


class _Context(dict[str, Any]):
    """The context of Django's ``execute_wrapper``. The cursor is made on request, because few wrappers use it."""

    def __missing__(self, key: str) -> Any:
        return self.setdefault(key, self["connection"].cursor())


def _send_as_cursors_do(connection: Any, sql: str, values: dict[str, Any]) -> None:
    """Send a statement through the wrappers of this connection: a project may count or log statements."""

    def execute(sql: str, params: Any, many: bool, context: Any) -> None:
        _send(connection, sql, params)

    run: Callable[..., Any] = execute
    for wrapper in reversed(connection.execute_wrappers):
        run = functools.partial(wrapper, run)
    run(sql, values, False, _Context(connection=connection))


def _send(connection: Any, sql: str, values: dict[str, int | str | None]) -> None:
    """Run statements without results in a fifth of the CPU time that a cursor takes."""
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
    """Say whether ``execute_and_commit`` works: on PostgreSQL or MariaDB, in the outermost block."""
    connection: Any = connections[alias]
    if not connection.in_atomic_block or connection.savepoint_ids or is_dedicated(connection):
        return False  # a dedicated session binds parameters on the server
    if connection.vendor == "postgresql":
        return _takes_several_statements(connection)
    return _takes_blocks(alias)


def _takes_several_statements(connection: Any) -> bool:
    """Say whether psycopg writes values into the SQL. Django's settings may make it bind them on the server."""
    from psycopg import ClientCursor  # it is installed if PostgreSQL is used

    raw = connection.connection  # None: the task has closed it
    is_plain = raw is not None and not raw.pgconn.pipeline_status
    return is_plain and issubclass(raw.cursor_factory, ClientCursor)


@contextmanager
def rolled_back_on_error(alias: str) -> Iterator[None]:
    """Roll back the transaction of one of our blocks if it fails: see ``can_use_blocks``."""
    try:
        yield
    except BaseException:
        try:
            connections[alias].rollback()
        except (DatabaseError, InterfaceError):
            connections[alias].close()
        raise


def can_use_blocks(alias: str) -> bool:
    """Say whether a block of statements that begins and ends its transaction can be sent.

    It can on MariaDB, in a dedicated session, which always has the limits of ``own_transaction``.
    """
    connection: Any = connections[alias]
    return connection.get_autocommit() and is_dedicated(connection) and _takes_blocks(alias)


_AGAIN = "SHOW VARIABLES LIKE 'wsrep_on'"
_runs_again: dict[str, bool] = {}
"""By alias: whether the server is part of a Galera cluster, which repeats a block after a conflict and then sends
the results twice."""


def _takes_blocks(alias: str) -> bool:
    """Say whether the server is a MariaDB that runs a block of statements once."""
    if not getattr(connections[alias], "mysql_is_mariadb", False):
        return False
    if alias not in _runs_again:
        _runs_again[alias] = any(value == "ON" for _, value in fetch(alias, _AGAIN))
    return not _runs_again[alias]


def dedicate_session(alias: str, limit: timedelta) -> None:
    """Set the limits of ``own_transaction`` for this thread's session, which only our statements use from now on.

    Only PostgreSQL and MariaDB have such limits.
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
    """Keep the plans of its statements, too, because planning takes longer than running.

    Each plan is made once, and is used for all values and for any content of the tables.
    """
    from psycopg import Connection, RawCursor

    connection: Any = connections[alias]
    session = connection.connection
    if isinstance(session, Connection):
        execute(alias, (_LIMITS + _IN_ORDER + _ONE_PLAN).replace("true", "false"), **_limits(limit))
        session.prepare_threshold = 0
        keep_cursor(connection, RawCursor(session))
