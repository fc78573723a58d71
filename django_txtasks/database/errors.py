"""Kinds of database errors, by their meaning for the transaction in which they are raised. No SQL."""

from __future__ import annotations

import re
import sys
from typing import Any

from django.core.exceptions import SynchronousOnlyOperation
from django.db import InterfaceError, OperationalError

_LOCK_WAIT = 1205
# PostgreSQL: serialization_failure, deadlock_detected; MariaDB: record changed, deadlock, lock wait
_REPEATABLE = {"40001", "40P01", 1020, 1213, _LOCK_WAIT}
# PostgreSQL: query_canceled; MariaDB; MySQL; SQLite, where a progress handler ends a statement
_TIMEOUT = {"57014", 1969, 3024, "interrupted"}
# PostgreSQL: lock_not_available; SQLite: busy, locked, and the same before Python 3.11
_LOCKED = {"55P03", 5, 6, "database is locked"}
_LOST = {1053, 1927, 3169, 4031, *range(2000, 3000), *range(5000, 6000)}
"""MariaDB's and MySQL's codes for sessions that the server has ended, and all codes of client errors."""
# PostgreSQL: connection exceptions, operator intervention, limits of an idle or a long transaction
_LOST_STATES = ("08", "57P", "25P03", "25P04")
_MIGRATE = "The tables are not those of this release: run 'manage.py migrate'"
_GRANT = (
    "The database user lacks a privilege on the tables of django_txtasks: "
    "grant it SELECT, INSERT, UPDATE and DELETE"
)
_FOR_ASYNC = "In async code, await aenqueue(), aenqueue_task() or aenqueue_many()"
# PostgreSQL: undefined table, undefined column; MariaDB/MySQL: the same, and undefined index
_REMEDIES = {
    **dict.fromkeys(["42P01", "42703", 1146, 1054, 1176], _MIGRATE),
    **dict.fromkeys(["42501", 1142, 1143], _GRANT),
}
_SQLITE_REMEDIES = {"no such table": _MIGRATE, "no such column": _MIGRATE}


_QUOTED = re.compile(r'".*"', re.DOTALL)
# MariaDB, MySQL: duplicate entry, truncated and incorrect values, data out of range, invalid JSON
_SHOW_A_VALUE = {1062, 1264, 1265, 1292, 1366, 1411, 1586, 3140, 3141, 4025, 4038}
_VALUE_OF_MARIADB = re.compile(r"((?i:value|entry)):? '.*'( for (?:column|key)|\W*$)", re.DOTALL)


class NothingDone(Exception):
    """The database has lost or refused a session, and nothing of a task was done."""


class TookTooLong(OperationalError):
    """Several statements together took longer than their limit."""


def is_repeatable(error: BaseException) -> bool:
    """Say whether the database asks to repeat the whole transaction."""
    return bool(_codes_of(error) & _REPEATABLE)


def is_lock_timeout(error: BaseException) -> bool:
    """Say whether MariaDB or MySQL ended a statement that waited too long for a lock."""
    return _LOCK_WAIT in _codes_of(error)


def is_in_the_way(error: BaseException) -> bool:
    """Say whether the cause was another transaction, so that a repetition soon may succeed."""
    return is_repeatable(error) or bool(_codes_of(error) & _LOCKED)


def is_timeout(error: BaseException) -> bool:
    """Say whether the database ended a statement because it took too long."""
    return isinstance(error, TookTooLong) or bool(_codes_of(error) & _TIMEOUT)


def took_too_long(error: BaseException) -> bool:
    """Say whether a statement reached a time limit or met a lock, which a new session would not change."""
    return is_timeout(error) or bool(_codes_of(error) & _LOCKED)


def is_refusal(error: BaseException) -> bool:
    """Say whether the database has answered with an error and has not ended the session."""
    codes = _codes_of(error)
    states = [code for code in codes if isinstance(code, str) and len(code) == 5]
    if states:
        return states[0][:2] not in ("08", "57")
    # codes from 2000 on are errors of the client
    return any(isinstance(code, int) and code < 2000 for code in codes)


def ends_session(error: BaseException) -> bool:
    """Say whether the session has ended with this error, as after a restart, a time limit or a cut connection."""
    if is_timeout(error):
        return False
    codes = _codes_of(error)
    numbers = {code for code in codes if isinstance(code, int)}
    if numbers:
        return bool(numbers & _LOST)
    states = [code for code in codes if isinstance(code, str) and len(code) == 5]
    if states:
        return states[0].startswith(_LOST_STATES)
    return error.__cause__ is not None and isinstance(error, (OperationalError, InterfaceError))


def text_of(error: BaseException) -> str:
    """Return an error as text for people: its type, its message, and a remedy if one is known."""
    text = f"{type(error).__name__}: {message_of(error)}".strip()
    remedy = _remedy_of(error)
    return f"{text.rstrip('.')}. {remedy}, then it goes on by itself." if remedy else text


def str_of(value: object) -> str:
    """Return ``str(value)`` of an error or a reason of foreign code: ``__str__`` may raise anything."""
    try:
        return str(value)
    except BaseException:  # a SystemExit here would end the thread
        return "(its text cannot be read)"


def add_remedy(error: Exception) -> None:
    """Add a note with the remedy to an error of an enqueue, if one is known. Python 3.10 has no notes."""
    is_async = isinstance(error, SynchronousOnlyOperation)
    remedy = _FOR_ASYNC if is_async else _remedy_of(error)
    if remedy and sys.version_info >= (3, 11):
        error.add_note(f"django_txtasks: {remedy}.")


def _remedy_of(error: BaseException) -> str:
    found = [_REMEDIES[code] for code in _codes_of(error) if code in _REMEDIES]
    text = str_of(error)
    found += [remedy for start, remedy in _SQLITE_REMEDIES.items() if start in text]
    return found[0] if found else ""


def message_of(error: BaseException) -> str:
    """Return the message of a database error without values of the row, because the log must not show arguments.

    PostgreSQL shows the row in DETAIL and CONTEXT, and an invalid value between double quotes. MariaDB and MySQL
    show a value between single quotes.
    """
    diagnostics = getattr(error.__cause__, "diag", None)
    primary = getattr(diagnostics, "message_primary", None)
    text = str_of(primary or error).strip()
    state = str(getattr(diagnostics, "sqlstate", None) or "")
    if state.startswith("22"):  # data exceptions
        return _QUOTED.sub('"…"', text)
    return _VALUE_OF_MARIADB.sub(r"\1'…'\2", text) if _codes_of(error) & _SHOW_A_VALUE else text


def _codes_of(error: BaseException) -> set[str | int]:
    """Return PostgreSQL's state, MariaDB's number and its (less specific) state, or SQLite's number and text."""
    cause = error.__cause__
    found: list[Any] = [getattr(cause, name, None) for name in ("sqlstate", "sqlite_errorcode")]
    found += getattr(cause, "args", ())[:1]
    return {code for code in found if isinstance(code, (str, int))}
