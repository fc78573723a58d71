"""The first arrow: a new row in the caller's transaction."""

from __future__ import annotations

import functools
import time
import uuid
from collections import namedtuple
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta, timezone
from os import urandom
from typing import TYPE_CHECKING, Any, NamedTuple

from django.db.backends.base.base import BaseDatabaseWrapper

from django_txtasks.core.declaring.registry import hint_queue
from django_txtasks.core.declaring.table import OPTIONS, columns_of
from django_txtasks.core.rows import statements
from django_txtasks.database.dialect import DIALECTS

ROWS_PER_STATEMENT = 500
LEAST_ROWS_FOR_COPY = 20
ROWS_PER_WRITE = 250
BYTES_PER_STATEMENT = 1_000_000
"""Bytes of arguments after which a statement ends. Quoting may double them; MariaDB accepts packets of 16 MB."""
REMEMBERED = 500
"""Number of combinations of function and options whose row values are cached."""
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_MICROSECOND = timedelta(microseconds=1)


class Edge(NamedTuple):
    """A time to run at: the next edge of a grid, by the clock of the database that writes the row.

    All rows of one grid that are written between two edges are due together. Only the database's clock counts,
    because the rows of a host whose clock is an hour fast would wait for an hour.

    Attributes:
        width: microseconds between two edges.
        offset: microseconds from the start of 1970 to an edge; less than the width.
    """

    width: int
    offset: int

    def after(self, now: datetime) -> datetime:
        """Return the next edge after this time."""
        since = ((now - _EPOCH) // _MICROSECOND - self.offset) % self.width
        return now + (self.width - since) * _MICROSECOND


class RowDefaults(NamedTuple):
    """Values that all rows of a task function with its options share.

    ``hooks`` and ``headers`` are JSON, ``timeout`` is in seconds.

    Each field is a column, with the column's default: a statement leaves out a column in which all rows have it.
    """

    task_name: str
    queue_name: str = "default"
    priority: int = 0
    run_after: datetime | timedelta | Edge | None = None
    expires_at: datetime | timedelta | None = None
    max_attempts: int = 5
    max_crashes: int = 3
    on_crash: str = "dead"
    timeout: float | None = None
    hooks: str = "{}"
    unique_key: str | None = None
    unique_text: str | None = None
    lane: str = ""
    batch: str | None = None
    headers: str | None = None


def _with_options(known: Any) -> Any:
    """Return ``RowDefaults`` with a field for each option that is a column and that no code reads by its name."""
    more = columns_of(
        {
            name: one.default
            for name, one in OPTIONS.whole.columns.items()
            if name not in known._fields
        }
    )
    return namedtuple(
        known.__name__,
        [*known._fields, *more],
        defaults=[*known._field_defaults.values(), *more.values()],
        module=__name__,
    )


if not TYPE_CHECKING:
    RowDefaults = _with_options(RowDefaults)


class NewTask(NamedTuple):
    """A new task, validated but not written yet. ``args`` and ``kwargs`` are JSON."""

    task_id: uuid.UUID
    defaults: RowDefaults
    args: str = "[]"
    kwargs: str = "{}"

    @property
    def hint(self) -> tuple[uuid.UUID, str]:
        """Its id, and the queue for its hint."""
        return self.task_id, hint_queue(self.defaults.task_name, self.defaults.queue_name)


class Times(NamedTuple):
    """Times of a row, by the clock of its database."""

    enqueued_at: datetime
    run_after: datetime

    @property
    def later(self) -> datetime | None:
        """The earliest time of its run; None = at once."""
        return self.run_after if self.run_after > self.enqueued_at else None


_RANDOM_BITS = (1 << 62) - 1
_VERSION_7 = 0x7 << 76 | 0x2 << 62


def new_id() -> uuid.UUID:
    """Return a UUID version 7 (RFC 9562), so that new ids are next to each other in the primary key.

    The ids of one machine increase: 12 bits have the time in quarters of a microsecond (RFC 9562, 6.2, method 3).
    """
    return uuid.UUID(int=_this_moment() | int.from_bytes(urandom(8), "big") & _RANDOM_BITS)


def new_ids(count: int) -> Iterator[uuid.UUID]:
    """Yield ``count`` ids with the current time, in increasing order, which is the order in which scans claim."""
    now = _this_moment()
    bits = urandom(8 * count)
    parts = [
        int.from_bytes(bits[at : at + 8], "big") & _RANDOM_BITS for at in range(0, len(bits), 8)
    ]
    for part in sorted(parts):
        yield uuid.UUID(int=now | part)


def _this_moment() -> int:
    milliseconds, rest = divmod(time.time_ns(), 1_000_000)
    return milliseconds << 80 | _VERSION_7 | (rest * 4096 // 1_000_000) << 64


_OWN = {"args": "[]", "kwargs": "{}"}


def insert(connection: BaseDatabaseWrapper, tasks: Sequence[NewTask]) -> None:
    """-> PENDING. Write the rows in the connection's open transaction, many rows with each statement."""
    insert_as_made(connection, [task.defaults for task in tasks], tasks)


def insert_and_read(connection: BaseDatabaseWrapper, task: NewTask) -> Times:
    """-> PENDING, as ``insert``. Return the row's times as the database has stored them."""
    said = _said_by([task.defaults])
    if connection.features.can_return_columns_from_insert:
        times = _insert(connection, said, [task], f" RETURNING {statements.TIMES_OF_TASK}")
    else:  # MySQL
        _insert(connection, said, [task])
        with connection.cursor() as cursor:
            cursor.execute(statements.SELECT_TIMES, [task.task_id.hex])
            times = cursor.fetchone()
    return Times(*map(_in_utc, times))


def insert_as_made(
    connection: BaseDatabaseWrapper,
    defaults_of_all: Sequence[RowDefaults],
    tasks: Iterable[NewTask],
) -> None:
    """-> PENDING, as ``insert``. PostgreSQL writes the first rows while the next ones are made.

    Args:
        defaults_of_all: the defaults of each task, because a statement names its columns before its first row.
        tasks: the iterator must not use the connection. If it raises, the caller rolls back.
    """
    distinct = list({id(one): one for one in defaults_of_all}.values())
    said = _said_by(distinct)
    rest = iter(tasks)
    if connection.vendor == "postgresql" and len(defaults_of_all) >= LEAST_ROWS_FOR_COPY:
        _copy(connection, distinct, said, rest)
        return
    for some in _chunks(rest, ROWS_PER_STATEMENT):
        _insert(connection, said, some)


def _chunks(tasks: Iterable[NewTask], most: int) -> Iterator[list[NewTask]]:
    """Yield the rows of one statement after the other: at most ``most`` tasks.

    A chunk ends sooner if its arguments exceed ``BYTES_PER_STATEMENT``.
    """
    chunk: list[NewTask] = []
    size = 0
    for task in tasks:
        chunk.append(task)
        size += len(task.args) + len(task.kwargs)
        if len(chunk) == most or size > BYTES_PER_STATEMENT:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk


def _insert(
    connection: BaseDatabaseWrapper,
    said: tuple[str, ...],
    tasks: Sequence[NewTask],
    returning: str = "",
) -> Any:
    """Write rows in one statement; return the row that ``returning`` asks for, or None."""
    own = [name for name, text in _OWN.items() if any(getattr(one, name) != text for one in tasks)]
    rows: list[str] = []
    params: list[Any] = []
    for task in tasks:
        places, shared = _shared_of(connection.vendor, task.defaults, said)
        rows.append(f"(%s{', %s' * len(own)}{places})")
        params += [task.task_id.hex, *[getattr(task, name) for name in own]]
        params += [_stored(connection, value) for value in shared]
    columns = ", ".join(["id", *own, *said])
    with connection.cursor() as cursor:
        cursor.execute(
            statements.INSERT_TASKS.format(columns=columns, rows=", ".join(rows)) + returning,
            params,
        )
        return cursor.fetchone() if returning else None


def _copy(
    connection: Any,
    defaults_of_all: Sequence[RowDefaults],
    said: tuple[str, ...],
    tasks: Iterator[NewTask],
) -> None:
    """Stream the rows. Django has no wrapper for COPY, so this does what Django does around a statement.

    Names have no control characters, and JSON escapes them.
    """
    columns = ", ".join(["id", *_OWN, *said])
    connection.validate_no_broken_transaction()
    with connection.cursor() as cursor, connection.wrap_database_errors:
        now = _now(cursor) if {"run_after", "expires_at"} & set(said) else None
        ends = {
            id(one): "\t".join([_text(value, now) for value in _values(one, said)])
            for one in defaults_of_all
        }
        with cursor.copy(statements.COPY_TASKS.format(columns=columns)) as copy:
            for some in _chunks(tasks, ROWS_PER_WRITE):
                lines = [
                    f"{task_id.hex}\t{args}\t{kwargs}\t{ends[id(defaults)]}\n"
                    for task_id, defaults, args, kwargs in some
                ]
                copy.write("".join(lines).replace("\\", "\\\\"))


def _now(cursor: Any) -> datetime:
    """Return the time of the database's clock, because COPY accepts no expressions."""
    cursor.execute(statements.POSTGRES_NOW)
    (now,) = cursor.fetchone()
    return _in_utc(now)


def _in_utc(value: datetime | str) -> datetime:
    """Return a driver's time as an aware datetime. Drivers leave UTC out; SQLite returns text."""
    moment = datetime.fromisoformat(value) if isinstance(value, str) else value
    return moment if moment.tzinfo else moment.replace(tzinfo=timezone.utc)


def _said_by(distinct: Sequence[RowDefaults]) -> tuple[str, ...]:
    """Return the columns in which at least one row differs from the default."""
    if len(distinct) == 1:
        return _columns_of(distinct[0])
    said = {name for one in distinct for name in _columns_of(one)}
    return tuple(name for name in RowDefaults._fields if name in said)


def _is_of_one_call(defaults: RowDefaults) -> bool:
    """Say whether no other call has the same values. Caching them would evict the values of task functions."""
    return (
        defaults.unique_key is not None
        or defaults.batch is not None
        or defaults.headers is not None
        or isinstance(defaults.run_after, datetime)
        or isinstance(defaults.expires_at, datetime)
    )


def _columns_of(defaults: RowDefaults) -> tuple[str, ...]:
    return (_own_columns.__wrapped__ if _is_of_one_call(defaults) else _own_columns)(defaults)


@functools.lru_cache(maxsize=REMEMBERED)
def _own_columns(defaults: RowDefaults) -> tuple[str, ...]:
    return tuple(
        name
        for name, value in zip(RowDefaults._fields, defaults, strict=True)
        if value != RowDefaults._field_defaults.get(name)
    )


def _shared_of(vendor: str, defaults: RowDefaults, said: tuple[str, ...]) -> tuple[str, list[Any]]:
    shared = _shared.__wrapped__ if _is_of_one_call(defaults) else _shared
    return shared(vendor, defaults, said)


@functools.lru_cache(maxsize=REMEMBERED)
def _shared(vendor: str, defaults: RowDefaults, said: tuple[str, ...]) -> tuple[str, list[Any]]:
    """Return the places that these columns take in a row's text, and the values for them."""
    values = _values(defaults, said)
    dialect = DIALECTS[vendor]
    later = dialect.later.replace("%(delay)s", "%s")
    places = []
    for value in values:
        if isinstance(value, Edge):  # its numbers are our own and are no parameters
            places.append(dialect.edge.format(**value._asdict()))
        else:
            places.append(later if isinstance(value, timedelta) else "%s")
    values = [value for value in values if not isinstance(value, Edge)]
    return "".join([f", {place}" for place in places]), values


def _values(defaults: RowDefaults, said: Sequence[str]) -> list[Any]:
    """Return the values of these columns. Beside rows with a later time, a row to run at once has a zero delay."""
    values = [(name, getattr(defaults, name)) for name in said]
    return [
        timedelta(0) if value is None and name == "run_after" else value for name, value in values
    ]


def _text(value: Any, now: datetime | None) -> str:
    if now is not None and isinstance(value, timedelta | Edge):
        value = now + value if isinstance(value, timedelta) else value.after(now)
    if isinstance(value, datetime):
        return value.isoformat()
    return "\x01" if value is None else str(value)  # the NULL of COPY_TASKS


def _stored(connection: BaseDatabaseWrapper, value: Any) -> Any:
    """Return a value in this database's form. A timedelta becomes seconds, which the database adds to its time."""
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, datetime):
        return connection.ops.adapt_datetimefield_value(value)
    return value
