"""Shapes of the calls in waiting rows: function, status, number of arguments, names of keywords, hooks.

The table is read in parts, each by a statement of its own with a time limit, so that no statement and no snapshot
lasts long.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

from django.db import connections

from django_txtasks.database.errors import TookTooLong
from django_txtasks.database.time_limits import fetch_within
from django_txtasks.insight.reading import reading

ROWS_PER_PART = 20_000
"""Number of rows that one statement groups."""

# Both limits of a part are ids as the database orders them: MariaDB orders some ids otherwise than their text.
_END_OF_PART = "SELECT id FROM txtasks_task <from> ORDER BY id LIMIT 1 OFFSET %(rows)s"
_SHAPES = """
    SELECT name, queue, state, args, names, hooks, count(*), MIN(sample) FROM (
        SELECT task_name AS name, queue_name AS queue, TRIM(status) AS state, <args> AS args, <names> AS names,
               CAST(hooks AS {text}) AS hooks, CAST(id AS {text}) AS sample
          FROM txtasks_task <range>
    ) AS part GROUP BY name, queue, state, args, names, hooks
"""
_BATCHES = """
    SELECT hooks, count(*), MIN(sample) FROM (
        SELECT CAST(hooks AS {text}) AS hooks, CAST(id AS {text}) AS sample FROM txtasks_batch
         WHERE finished_at IS NULL LIMIT %(limit)s
    ) AS part GROUP BY hooks
"""
MOST_BATCHES = 100_000
"""Number of open batches whose hooks are read."""
# NULL if the row does not have a list and an object, because it was written by hand.
_ARGS = {
    "postgresql": "CASE WHEN jsonb_typeof(args) = 'array' THEN jsonb_array_length(args) END",
    "mysql": "CASE WHEN JSON_TYPE(args) = 'ARRAY' THEN JSON_LENGTH(args) END",
    "sqlite": "CASE WHEN json_valid(args) AND json_type(args) = 'array' THEN json_array_length(args) END",
}
_NAMES = {
    "postgresql": "CASE WHEN kwargs = '{{}}' THEN '[]' WHEN jsonb_typeof(kwargs) = 'object' THEN "
    "(SELECT CAST(jsonb_agg(one) AS text) FROM jsonb_object_keys(kwargs) AS one) END",
    "mysql": "CASE WHEN JSON_TYPE(kwargs) = 'OBJECT' THEN JSON_KEYS(kwargs) END",
    "sqlite": "CASE WHEN json_valid(kwargs) AND json_type(kwargs) = 'object' THEN "
    "(SELECT json_group_array(key) FROM json_each(kwargs)) END",
}


class Call(NamedTuple):
    """The form of a call.

    Attributes:
        args: number of positional arguments; None = the row has no list.
        names: names of keyword arguments, sorted; None = the row has no object.
    """

    args: int | None
    names: tuple[str, ...] | None


class Shape(NamedTuple):
    """The part of a row that decides whether it fits the code. ``hooks`` is JSON text."""

    task_name: str
    queue_name: str
    status: str
    call: Call
    hooks: str


def shapes_of_rows(alias: str, seconds: float) -> Iterator[tuple[Shape, int, str]]:
    """Yield the shapes of live rows, each with the number of rows and the id of one. A shape may come again.

    Args:
        seconds: the limit for all parts together.

    Raises:
        TookTooLong: the time is over; the shapes of the parts before were given.
        DatabaseError: such as the end of a statement at its limit.
    """
    until, after = time.monotonic() + seconds, None
    vendor = connections[alias].vendor
    sql = _SHAPES.replace("<args>", _ARGS[vendor]).replace("<names>", _NAMES[vendor])
    while True:
        left = until - time.monotonic()
        if left <= 0:
            raise TookTooLong(f"to read the waiting tasks took longer than {seconds:g} s")
        with reading(alias, left):
            bounds: dict[str, Any] = {} if after is None else {"after": after}
            begin = "" if after is None else "WHERE id > %(after)s"
            ends = fetch_within(
                alias, _END_OF_PART.replace("<from>", begin), left, rows=ROWS_PER_PART - 1, **bounds
            )
            if ends:
                bounds["end"] = ends[0][0]
                begin = f"{begin} AND id <= %(end)s" if begin else "WHERE id <= %(end)s"
            rows = fetch_within(alias, sql.replace("<range>", begin), left, **bounds)
        yield from map(_shape, rows)
        if not ends:
            return
        after = ends[0][0]


def hooks_of_batches(alias: str, seconds: float) -> tuple[list[tuple[str, int, str]], bool]:
    """Return the hooks of open batches, each with a number and the id of one, and whether there are more."""
    with reading(alias, seconds):
        found = fetch_within(alias, _BATCHES, seconds, limit=MOST_BATCHES + 1)
    return found, sum(count for _, count, _ in found) > MOST_BATCHES


def _shape(row: tuple[Any, ...]) -> tuple[Shape, int, str]:
    name, queue, status, args, names, hooks, count, sample = row
    known = None if names is None else tuple(sorted(set(json.loads(names))))
    return Shape(name, queue, status, Call(args, known), hooks or "{}"), count, sample
