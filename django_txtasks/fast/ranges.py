"""Reads of a part of the due rows, for the case that reading all of them takes too long.

The rows of one queue and priority are in the order of (run_after, id). A position is a number in that order. It
may be anywhere: between two rows that are due at the same moment, or where there is no row. Between two positions
there may be rows that this worker may not claim, and dead rows of an old snapshot, which no statement can count.
"""

from __future__ import annotations

import uuid
from datetime import datetime, timedelta, timezone
from typing import Any

from django.db import connections

from django_txtasks.core.rows import statements
from django_txtasks.core.rows.engines.portable import choosing
from django_txtasks.core.rows.turn import Bucket, Cursor, Subscription
from django_txtasks.database.dialect import dialect_of
from django_txtasks.database.execute import fetch_value
from django_txtasks.database.time_limits import Tried, try_within

Position = int
"""Microseconds since the end of 1999, then the 128 bits of an id. 0 = before all rows, also older ones."""
MICROSECOND: Position = 1 << 128
SECOND: Position = 1_000_000 * MICROSECOND
LOWEST, HIGHEST = -32768, 32767
"""Lowest and highest priority that the column takes."""

_START = datetime(2000, 1, 1) - timedelta(microseconds=1)
_MICROSECOND = timedelta(microseconds=1)


def now(alias: str) -> Position:
    """Return the position of the database's time."""
    found = fetch_value(alias, statements.NOW)
    moment = found if isinstance(found, datetime) else datetime.fromisoformat(found)
    if moment.tzinfo is not None:
        moment = moment.astimezone(timezone.utc).replace(tzinfo=None)
    return (moment - _START) // _MICROSECOND * MICROSECOND


def part_end(begin: Position, end: Position) -> Position:
    """Return the end of a part, at or before ``end``, in a form that the database finds by the index.

    If the part begins at a time and reaches the next microsecond, it ends at a time. Otherwise it ends at an id,
    and all its rows have one time.
    """
    next_time = (begin // MICROSECOND + 1) * MICROSECOND
    if end >= next_time:
        return next_time if begin % MICROSECOND else end // MICROSECOND * MICROSECOND
    return end if begin >= MICROSECOND else next_time


def choose(
    subscription: Subscription,
    bucket: Bucket,
    limit: int,
    *,
    begin: Position,
    end: Position | None,
    cursor: Cursor | None,
    seconds: float,
    sql: str = statements.CHOOSE_DUE,
) -> Tried:
    """Lock and return the first due rows of a part that may be claimed.

    Args:
        begin, end: positions of the part; end None = all rows that are due by now.
        cursor: read only rows behind this one.
        sql: a statement with ``statements.DUE``, which the limits of the part replace.
    """
    alias = subscription.alias
    params: dict[str, Any] = {
        "begin_time": _time_at(alias, begin),
        "begin_id": _id_at(begin),
        **choosing(subscription, bucket, limit),
    }
    where = [statements.FROM_ID if begin % MICROSECOND or (end or 0) % MICROSECOND
             else statements.FROM_TIME]  # fmt: skip
    if end is None:
        where.append(statements.DUE.removesuffix(" {after}"))
    else:
        where.append(statements.BEFORE_ID if end % MICROSECOND else statements.BEFORE_TIME)
        params.update(end_time=_time_at(alias, end), end_id=_id_at(end))
    if not begin:
        where.remove(statements.FROM_TIME)
    if cursor:
        where.append(statements.AFTER_CURSOR)
        params.update(mark_time=cursor.due_at, mark_id=cursor.task_id)
    sql = subscription.claiming(sql.replace(statements.DUE, " ".join(where)))
    return try_within(alias, sql, seconds, **params)


def cursor_at(alias: str, position: Position) -> Cursor:
    """Return the cursor behind which all rows from this position on are read."""
    return Cursor(_time_at(alias, position), _id_at(position))


def _time_at(alias: str, position: Position) -> str:
    """Return a time as text. SQLite itself writes milliseconds, so a time with no more has that form there."""
    moment = _START + (position // MICROSECOND) * _MICROSECOND
    is_short = connections[alias].vendor == "sqlite" and not moment.microsecond % 1000
    text = moment.isoformat(" ", "milliseconds" if is_short else "microseconds")
    return text + dialect_of(connections[alias]).utc


def _id_at(position: Position) -> uuid.UUID:
    return uuid.UUID(int=position % MICROSECOND)


def priority_between(alias: str, queue: str, low: int, high: int, *, seconds: float) -> Tried:
    """Return the lowest priority between two others that has a pending row, if there is one."""
    sql = statements.PRIORITY_BETWEEN
    return try_within(alias, sql, seconds, queue=queue, low=low, high=high)
