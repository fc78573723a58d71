"""Looking at a part of what is due, where looking at all of it takes too long.

The rows of one queue and priority are in the order of (run_after, id), and a position is a number in that
order: it can stand anywhere, also between rows that are due at the same moment, and where no row is at all.
What is in between two positions may be rows that this worker may not take, or the dead ones of an old
snapshot, which no statement can count.
"""

from __future__ import annotations

import uuid
from datetime import datetime, timedelta, timezone
from typing import Any

from django.db import connections

from django_txtasks.database.dialect import dialect_of
from django_txtasks.database.execute import fetch_value
from django_txtasks.database.time_limits import Tried, try_within
from django_txtasks.lifecycle import statements
from django_txtasks.lifecycle.engines.portable import choosing
from django_txtasks.lifecycle.turn import Bucket, Cursor, Subscription

Position = int
"""Microseconds since the end of 1999, then the 128 bits of an id; 0 = all that is due before that."""
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
    """Return where a part ends, at or before ``end``, that the database can find.

    It is a time where the part begins at one, and has room for it; else an id, and the part is of one time.
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
) -> Tried:
    """Return the first rows that are due and may be claimed, locked.

    Args:
        begin, end: of the part; None = up to all that is due.
        cursor: only behind this row.
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
    sql = statements.CHOOSE_DUE.replace(statements.DUE, " ".join(where))
    return try_within(alias, sql, seconds, **params)


def _time_at(alias: str, position: Position) -> str:
    """Return text: on SQLite, as it writes it itself, where it has no more than milliseconds."""
    moment = _START + (position // MICROSECOND) * _MICROSECOND
    is_short = connections[alias].vendor == "sqlite" and not moment.microsecond % 1000
    text = moment.isoformat(" ", "milliseconds" if is_short else "microseconds")
    return text + dialect_of(connections[alias]).utc


def _id_at(position: Position) -> uuid.UUID:
    return uuid.UUID(int=position % MICROSECOND)


def priority_between(alias: str, queue: str, low: int, high: int, *, seconds: float) -> Tried:
    """Return the lowest priority between two that has a pending row, if any."""
    sql = statements.PRIORITY_BETWEEN
    return try_within(alias, sql, seconds, queue=queue, low=low, high=high)
