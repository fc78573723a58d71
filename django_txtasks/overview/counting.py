"""Counts of live tasks by queue, from index entries alone, each up to a limit.

A cell is a queue and a state. Each part of its count reads at most ``MOST + 1`` entries of one index, whatever the
size of the table and the age of its statistics, and fewer if there are many parts. Many parts share one statement.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from django.db import DatabaseError, connections

from django_txtasks.core.ground.wording import whole
from django_txtasks.core.rows.buckets import BUCKET_BY_COLUMNS, BUCKET_BY_ROWS
from django_txtasks.database.errors import is_timeout
from django_txtasks.database.places import asking, in_chunks
from django_txtasks.database.time_limits import fetch_within, try_within
from django_txtasks.features.lanes.buckets import LaneBucket

MOST, FEWEST, MOST_ENTRIES = 2_000, 50, 10_000
"""Highest number of tasks that one count has; more are shown as "2,000+". With many queues it is lower, down to
``FEWEST``, so that all counts together read about ``MOST_ENTRIES`` entries."""
STATEMENT_SECONDS = 0.25
"""Longest time of one statement. The cells of a statement that takes longer keep their last counts."""

# On PostgreSQL a range begins at a place that is given by whole rows, and ends by LIMIT; the conditions outside
# leave the rows of the next queue out. An end inside the subquery would make PostgreSQL walk all rows before the
# range. Elsewhere the columns before the range are compared one by one.
_PENDING = """
    SELECT <number>, COUNT(*) FROM (
        SELECT lane, queue_name, priority, run_after FROM txtasks_task {by_queue}
         WHERE status = 'pending' AND <start> ORDER BY <order> run_after, id LIMIT %(limit)s) AS t
     WHERE lane = '' AND queue_name = <queue> AND priority = <priority> AND <when>
"""
_STOPPED = """
    SELECT <number>, COUNT(*) FROM (
        SELECT {failed_status} AS status, queue_name FROM txtasks_task {by_cause}
         WHERE {is_failed} AND <start>
         ORDER BY <order> cause, run_after, id LIMIT %(limit)s) AS t
     WHERE status = <status> AND queue_name = <queue>
"""
_IN_LANES = """
    SELECT queue_name, waiting, due, {wait} FROM (
        SELECT queue_name, COUNT(*) AS waiting, SUM(CASE WHEN run_after <= {now} THEN 1 ELSE 0 END) AS due,
               MIN(run_after) AS run_after FROM (
            SELECT queue_name, run_after FROM txtasks_task {by_queue}
             WHERE status = 'pending' AND <start> ORDER BY <order> LIMIT %(limit)s) AS t
         GROUP BY queue_name) AS queues
"""


class _Ranges(NamedTuple):
    """The starts of the ranges, and the columns before those by which each range is sorted anyway."""

    bucket: str
    later: str
    by_bucket: str
    status: str
    retrying: str
    by_status: str
    lanes: str
    by_lane: str


_BY_ROWS = _Ranges(
    bucket=BUCKET_BY_ROWS[0],
    later="(status, lane, queue_name, priority, run_after) > ('pending', '', <queue>, <priority>, {now})",
    by_bucket=BUCKET_BY_ROWS[1],
    status="(status, queue_name) >= (<status>, <queue>)",
    retrying="(status, queue_name) >= (<status>, <queue>)",
    by_status="status, queue_name,",
    lanes="(status, lane) > ('pending', '')",
    by_lane="status, lane, queue_name, priority, run_after, id",
)
_BY_COLUMNS = _Ranges(
    bucket=BUCKET_BY_COLUMNS[0],
    later=f"{BUCKET_BY_COLUMNS[0]} AND run_after > {{now}}",
    by_bucket=BUCKET_BY_COLUMNS[1],
    status="{failed_status} = <status> AND queue_name = <queue>",
    retrying="{failed_status} = <status> AND queue_name = <queue> AND cause IS NOT NULL",
    by_status="",
    lanes="lane > ''",
    by_lane="lane, queue_name, priority, run_after, id",
)


@dataclass(frozen=True)
class Count:
    """A number of tasks.

    Attributes:
        is_capped: True if there are more: the count ended at its limit.
        age: seconds since the count; 0 = it is new. An older count is used if the database does not answer in
            time.
    """

    number: int = 0
    is_capped: bool = False
    age: float = 0.0

    def __bool__(self) -> bool:
        return self.number > 0

    def __str__(self) -> str:
        return f"{whole(self.number)}{'+' * self.is_capped}"

    def __add__(self, other: Count) -> Count:
        age = max(self.age, other.age)
        return Count(self.number + other.number, self.is_capped or other.is_capped, age)


NONE = Count()
UNKNOWN = Count(is_capped=True)
"""A count that the database has never answered in time: shown as "0+"."""


class Cell(NamedTuple):
    """A count to be read: the tasks of a queue in a state."""

    queue: str
    state: str


Counts = dict[Cell, Count]
DUE, LATER, RETRYING, DEAD, HELD = "due", "later", "retrying", "dead", "held"
STATES = (DUE, LATER, RETRYING, DEAD, HELD)
STATUS_OF = {RETRYING: "pending", DEAD: "dead", HELD: "held"}


class Part(NamedTuple):
    """One count: the question that it asks, the place, and the cell to which its number belongs."""

    cell: Cell
    question: str
    place: dict[str, Any]


class InLanes(NamedTuple):
    """The tasks of a queue that wait in lanes; ``oldest``: seconds for which the oldest due task has waited."""

    due: Count
    later: Count
    oldest: float


def counts(
    alias: str, queues: Iterable[str], buckets: Iterable[LaneBucket], before: Counts
) -> Counts:
    """Return the counts of all cells of these queues, without the tasks in lanes.

    Args:
        buckets: the pending tasks without a lane.
        before: older counts, with their ages, for cells whose statement takes too long.
    """
    names = sorted(set(queues))
    parts = [part for one in buckets if one.queue_name in names for part in _parts_of(alias, one)]
    parts += [_stopped(alias, queue, state) for queue in names for state in STATUS_OF]
    most = min(MOST, max(FEWEST, MOST_ENTRIES // max(1, len(parts))))
    by_question: dict[str, list[Part]] = {}
    for part in parts:
        by_question.setdefault(part.question, []).append(part)
    found: Counts = {}
    late: set[Cell] = set()
    for question, same in by_question.items():
        for chunk in in_chunks(alias, same):
            sql, params = asking(alias, question, [part.place for part in chunk])
            rows = _within(alias, sql, {"limit": most + 1, **params})
            if rows is None:
                late |= {part.cell for part in chunk}
            for place, number in rows or ():
                cell, count = chunk[place].cell, Count(min(int(number), most), number > most)
                found[cell] = found.get(cell, NONE) + count
    return found | {cell: before.get(cell, UNKNOWN) for cell in late}


def in_lanes(alias: str) -> tuple[dict[str, InLanes], bool]:
    """Return what waits in lanes, by queue, and whether more waits there than the ``MOST`` rows that were read."""
    ranges = _ranges(alias)
    sql = _IN_LANES.replace("<start>", ranges.lanes).replace("<order>", ranges.by_lane)
    rows = _within(alias, sql, {"limit": MOST + 1}) or []
    is_cut = sum(int(count) for _, count, _, _ in rows) > MOST
    return {
        queue: InLanes(
            Count(min(int(due or 0), MOST), is_cut),
            Count(min(int(count) - int(due or 0), MOST), is_cut),
            max(0.0, -float(wait or 0)),
        )
        for queue, count, due, wait in rows
    }, is_cut


def aged(found: Counts, seconds: float) -> Counts:
    """Return counts as they are shown ``seconds`` later."""
    return {cell: replace(count, age=count.age + seconds) for cell, count in found.items()}


def _parts_of(alias: str, bucket: LaneBucket) -> Iterator[Part]:
    """Yield the counts of a bucket. Without a due task at its head, no task of it is due."""
    ranges, place = _ranges(alias), {"queue": bucket.queue_name, "priority": bucket.priority}
    sql = _PENDING.replace("<order>", ranges.by_bucket)
    if bucket.wait <= 0:
        due = sql.replace("<start>", ranges.bucket).replace("<when>", "run_after <= {now}")
        yield Part(Cell(bucket.queue_name, DUE), due, place)
    later = sql.replace("<start>", ranges.later).replace("<when>", "run_after > {now}")
    yield Part(Cell(bucket.queue_name, LATER), later, place)


def _stopped(alias: str, queue: str, state: str) -> Part:
    ranges = _ranges(alias)
    sql = _STOPPED.replace("<start>", ranges.retrying if state == RETRYING else ranges.status)
    place = {"status": STATUS_OF[state], "queue": queue}
    return Part(Cell(queue, state), sql.replace("<order>", ranges.by_status), place)


def _ranges(alias: str) -> _Ranges:
    return _BY_ROWS if connections[alias].vendor == "postgresql" else _BY_COLUMNS


def _within(alias: str, sql: str, params: dict[str, Any]) -> list[tuple[Any, ...]] | None:
    """Return the rows of a statement; None = it took longer than ``STATEMENT_SECONDS``."""
    if connections[alias].vendor == "postgresql":
        return try_within(alias, sql, STATEMENT_SECONDS, **params).rows
    try:
        return fetch_within(alias, sql, STATEMENT_SECONDS, **params)
    except DatabaseError as error:
        if is_timeout(error):
            return None
        raise
