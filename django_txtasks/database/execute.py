"""Run one statement on one database: put the dialect's pieces into it, and convert its parameters."""

from __future__ import annotations

import functools
import re
import uuid
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper

from django_txtasks.database import cost
from django_txtasks.database.dialect import DIALECTS, dialect_of

R = TypeVar("R")


def execute(alias: str, sql: str, **params: Any) -> int:
    """Run one statement and return the number of rows that it has changed.

    Args:
        sql: names in braces, such as ``{now}``, are replaced by the pieces of the dialect. ``{in_ids}`` is
            replaced by a comparison with all values of the list ``ids``.
    """
    connection = connections[alias]
    text, values = bound(connection, sql, params)
    with cursor_of(connection) as cursor:
        cursor.execute(text, values)
        count = int(cursor.rowcount)
    cost.note(connection, sql, count)
    return count


def fetch(alias: str, sql: str, **params: Any) -> list[tuple[Any, ...]]:
    """Run one statement and return its rows. Arguments as of ``execute``."""
    connection = connections[alias]
    text, values = bound(connection, sql, params)
    with cursor_of(connection) as cursor:
        cursor.execute(text, values)
        rows = list(cursor.fetchall())
    cost.note(connection, sql, len(rows))
    return rows


def fetch_results(alias: str, sql: str, **params: Any) -> list[list[tuple[Any, ...]]]:
    """Send several statements as one text; return the rows of each statement that returns rows. Arguments as of
    ``execute``. The caller counts their cost."""
    connection, results = connections[alias], []
    text, values = bound(connection, sql, params)
    with cursor_of(connection) as cursor:
        cursor.execute(text, values)
        while True:
            if cursor.description:
                results.append(list(cursor.fetchall()))
            if not cursor.nextset():
                return results


def fetch_column(alias: str, sql: str, **params: Any) -> list[Any]:
    """Run a statement that selects one column and return its values. Arguments as of ``execute``."""
    return [value for (value,) in fetch(alias, sql, **params)]


def fetch_value(alias: str, sql: str, **params: Any) -> Any:
    """Run a statement that selects one value and return it. Arguments as of ``execute``."""
    (value,) = fetch_column(alias, sql, **params)
    return value


def fetch_as(record: Callable[..., R], alias: str, sql: str, **params: Any) -> list[R]:
    """Run a statement and return one record for each row. The columns are the arguments of ``record``."""
    return [record(*row) for row in fetch(alias, sql, **params)]


def cursor_of(connection: Any) -> AbstractContextManager[Any]:
    """Return a cursor for one statement, with Django's wrapper. A dedicated session keeps its cursor open."""
    kept = _dedicated_cursor(connection)
    if kept is None:
        return connection.cursor()  # type: ignore[no-any-return]
    if connection.queries_logged and not _binds_on_server(connection):
        return nullcontext(connection.make_debug_cursor(kept))
    return nullcontext(connection.make_cursor(kept))


def _binds_on_server(connection: Any) -> bool:
    """Say whether Django binds values on the server. Then its log cannot show a statement with $1."""
    return bool(getattr(connection.features, "uses_server_side_binding", False))


_dedicated_cursors: WeakKeyDictionary[BaseDatabaseWrapper, Any] = WeakKeyDictionary()


def keep_cursor(connection: BaseDatabaseWrapper, cursor: Any) -> None:
    """Dedicate this connection's session: send all its statements through one cursor from now on."""
    _dedicated_cursors[connection] = cursor


def is_dedicated(connection: BaseDatabaseWrapper) -> bool:
    """Say whether this session was dedicated: see ``transactions.dedicate_session``."""
    return _dedicated_cursor(connection) is not None


def _dedicated_cursor(connection: BaseDatabaseWrapper) -> Any:
    cursor = _dedicated_cursors.get(connection)
    is_there = cursor is not None and cursor.connection is connection.connection
    return cursor if is_there else None


def bound(connection: BaseDatabaseWrapper, sql: str, params: dict[str, Any]) -> tuple[str, Any]:
    """Return a statement with the dialect's pieces, and its parameters in the driver's form."""
    if connection.vendor == "postgresql":  # a list is one parameter, whatever its length
        text, values = _with_arrays(sql, params)
        if not is_dedicated(connection):
            return text, values
        text, names = numbered(text)
        return text, [values[name] for name in names]
    pieces, values = dialect_of(connection)._asdict(), {}
    for name, value in params.items():
        if isinstance(value, (list, tuple)):
            several = {f"{name}_{index}": _plain(one) for index, one in enumerate(value)}
            values.update(several)
            pieces[f"in_{name}"] = f"IN ({', '.join(f'%({one})s' for one in several)})"
        else:
            values[name] = _plain(value)
    return sql.format(**pieces), values


def _with_arrays(sql: str, params: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    values, types = {}, []
    for name, value in params.items():
        if isinstance(value, (list, tuple)):
            is_ids = any(isinstance(one, uuid.UUID) for one in value[:1])
            types.append((name, "uuid" if is_ids else "text"))
            values[name] = _array(value)
        else:
            values[name] = _plain(value)
    return _text_with_arrays(sql, tuple(types)), values


@functools.lru_cache(maxsize=200)
def _text_with_arrays(sql: str, types: tuple[tuple[str, str], ...]) -> str:
    arrays = {f"in_{name}": f"= ANY(CAST(%({name})s AS {type_}[]))" for name, type_ in types}
    return sql.format(**DIALECTS["postgresql"]._asdict(), **arrays)


@functools.lru_cache(maxsize=200)
def numbered(text: str) -> tuple[str, tuple[str, ...]]:
    """Return a statement in the server's form, with $1 for a parameter, and the names of $1, $2 and so on.

    Psycopg would do this for each call, because it does not cache statements as long as that of a turn.
    """
    numbers: dict[str, int] = {}

    def number(parameter: re.Match[str]) -> str:
        return f"${numbers.setdefault(parameter[1], len(numbers) + 1)}"

    return re.sub(r"%\((\w+)\)s", number, text), tuple(numbers)


def _array(values: Sequence[uuid.UUID | int | str]) -> str:
    """Return values as the text of a PostgreSQL array. None is not allowed: see the setting ``array_nulls``.

    This takes at most a fifth of psycopg's time. And the text has no type yet, while a cast that changes the type
    would run again for each row.
    """
    return _kept_array_text(values) if isinstance(values, tuple) else _array_text(values)


def _array_text(values: Iterable[uuid.UUID | int | str]) -> str:
    return "{" + ",".join([_element(value) for value in values]) + "}"


_kept_array_text = functools.lru_cache(maxsize=200)(_array_text)
"""The same for tuples, which do not change from turn to turn, such as the names of all tasks."""


def _element(value: uuid.UUID | int | str) -> str:
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return value.hex if isinstance(value, uuid.UUID) else str(value)


def _plain(value: Any) -> Any:
    return value.hex if isinstance(value, uuid.UUID) else value


def as_uuid(value: Any) -> uuid.UUID:
    """Return an id from a raw statement as UUID: MariaDB and SQLite return text."""
    return value if isinstance(value, uuid.UUID) else uuid.UUID(value)


def is_uuid(value: Any) -> bool:
    """Say whether a value is a valid id: on SQLite, rows written by hand may have any text."""
    try:
        as_uuid(value)
    except (ValueError, AttributeError, TypeError):
        return False
    return True
