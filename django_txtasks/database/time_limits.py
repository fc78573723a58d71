"""SELECT statements with a time limit, at which the database ends them.

Each statement carries its limit, so that no session keeps it for other statements.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from django.db import DatabaseError, connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper

from django_txtasks.database.errors import TookTooLong, is_timeout
from django_txtasks.database.execute import execute, fetch

INSTRUCTIONS_PER_READING = 10_000
"""Instructions of SQLite's virtual machine between two readings of the clock: less than a millisecond."""
LEAST_SECONDS = 0.001
"""Shortest limit in seconds, because zero would mean no limit."""


class Tried(NamedTuple):
    """The rows of a SELECT (None = it took too long), and the seconds that it took."""

    rows: list[tuple[Any, ...]] | None
    seconds: float


def fetch_within(alias: str, sql: str, seconds: float, **params: Any) -> list[tuple[Any, ...]]:
    """Return the rows of a SELECT. If it takes longer than ``seconds``, the database ends it with an error.

    On PostgreSQL, the open transaction already has a limit for each of its statements: see ``own_transaction`` and
    ``try_within``.
    """
    connection, seconds = connections[alias], max(seconds, LEAST_SECONDS)
    if connection.vendor == "mysql":
        return fetch(alias, _with_limit(connection, sql, seconds), **params)
    if connection.vendor == "sqlite":
        with _interrupted_after(connection, seconds):
            return fetch(alias, sql, **params)
    return fetch(alias, sql, **params)


def within_together(seconds: float, purpose: str) -> Callable[..., list[tuple[Any, ...]]]:
    """Return a function like ``fetch_within`` whose calls share one limit.

    It raises ``TookTooLong``, with the purpose in its text, once the time is used up.
    """
    until = time.monotonic() + seconds

    def look(alias: str, sql: str, **params: Any) -> list[tuple[Any, ...]]:
        left = until - time.monotonic()
        if left <= 0:
            raise TookTooLong(f"to look for {purpose} took too long")
        return fetch_within(alias, sql, left, **params)

    return look


def try_within(alias: str, sql: str, seconds: float, **params: Any) -> Tried:
    """Return the rows of a SELECT and its time; no rows if it took too long. The open transaction goes on."""
    begun = time.monotonic()
    try:
        with transaction.atomic(using=alias), _statement_timeout(alias, seconds):
            begun = time.monotonic()
            rows = fetch_within(alias, sql, seconds, **params)
            took = time.monotonic() - begun
        return Tried(rows, took)
    except DatabaseError as error:
        if is_timeout(error):
            return Tried(None, time.monotonic() - begun)
        raise


def _with_limit(connection: Any, sql: str, seconds: float) -> str:
    if connection.mysql_is_mariadb:
        return f"SET STATEMENT max_statement_time = {seconds:.3f} FOR {sql}"
    hint = f"SELECT /*+ MAX_EXECUTION_TIME({seconds * 1000:.0f}) */"
    return sql.replace("SELECT", hint, 1)


@contextmanager
def _interrupted_after(connection: BaseDatabaseWrapper, seconds: float) -> Iterator[None]:
    connection.ensure_connection()
    raw: Any = connection.connection
    until = time.monotonic() + seconds
    raw.set_progress_handler(lambda: time.monotonic() > until, INSTRUCTIONS_PER_READING)
    try:
        yield
    finally:
        raw.set_progress_handler(None, 0)


@contextmanager
def _statement_timeout(alias: str, seconds: float) -> Iterator[None]:
    """Set PostgreSQL's limit for the statements of the block, and then restore the limit of the transaction."""
    if connections[alias].vendor != "postgresql":
        yield
        return
    milliseconds = str(max(1, int(seconds * 1000)))
    ((before, _),) = fetch(alias, _LOWER, limit=milliseconds)
    yield
    execute(alias, _RESTORE, limit=before)


_RESTORE = "SELECT set_config('statement_timeout', %(limit)s, true)"
_LOWER = _RESTORE.replace("SELECT", "SELECT current_setting('statement_timeout'),")
