"""The pending rows of lanes, bucket by bucket: one probe of the index for each bucket, whatever its size."""

from __future__ import annotations

import math
import time
from typing import Any, NamedTuple

from django.db import connections

from django_txtasks.database.execute import fetch, fetch_as, fetch_results

LOOK_SECONDS = 0.025
"""Seconds that one turn spends on the search for lanes with due rows."""
PAGE_BUCKETS = 200
"""Number of buckets that one statement reads."""
BUCKETS_OF_LANE = 1000
"""Number of buckets of one lane that are read: one for each priority of each of its queues."""

# One probe of the index for each bucket, whatever its size; the first row of a bucket says when the bucket is due.
# PostgreSQL goes from bucket to bucket in one statement. It finds the next one directly, because the condition
# compares whole rows.
_BUCKET = """
    SELECT t.lane, t.queue_name, t.priority, t.id, t.run_after FROM txtasks_task t
     WHERE t.status = 'pending' AND {behind}
     ORDER BY t.status, t.lane, t.queue_name, t.priority, t.run_after, t.id LIMIT 1
"""
_NEXT_BUCKET = _BUCKET.replace(
    "{behind}",
    "(t.status, t.lane, t.queue_name, t.priority) > ('pending', b.lane, b.queue_name, b.priority)",
)
POSTGRES_BUCKETS = (
    "WITH RECURSIVE b AS (("
    + _BUCKET.replace("{behind}", "(t.status, t.lane) <from> ('pending', %(lane)s)")
    + f""") UNION ALL SELECT n.* FROM b CROSS JOIN LATERAL ({_NEXT_BUCKET}) AS n <while>)
    SELECT lane, queue_name, priority, id, {{wait}} FROM b LIMIT %(limit)s
"""
)
WHILE_OF_LANE = "WHERE b.lane = %(lane)s"
# Elsewhere a statement reads one bucket: the next priority of the queue, then the next queue, then the next lane.
_BUCKET_BEHIND = """
    SELECT * FROM (
        SELECT lane, queue_name, priority, id, {wait} AS wait, <place> AS place FROM txtasks_task {by_queue}
         WHERE status = 'pending' AND <behind> ORDER BY <order>, run_after, id LIMIT 1) AS b<place>
"""


def _bucket_behind(place: int, behind: str, order: str) -> str:
    text = _BUCKET_BEHIND.replace("<place>", str(place)).replace("<behind>", behind)
    return text.replace("<order>", order)


FIRST_BUCKET = _bucket_behind(1, "lane <from> %(lane)s", "lane, queue_name, priority")
NEXT_BUCKET = (
    _bucket_behind(
        1, "lane = %(lane)s AND queue_name = %(queue)s AND priority > %(priority)s", "priority"
    )
    + "UNION ALL"
    + _bucket_behind(2, "lane = %(lane)s AND queue_name > %(queue)s", "queue_name, priority")
    + "UNION ALL"
    + _bucket_behind(3, "lane > %(lane)s", "lane, queue_name, priority")
    + "ORDER BY place LIMIT 1"
)


# MariaDB walks from bucket to bucket by itself: a round trip for each would take much longer than the probe.
_COLUMNS, _VARIABLES = (
    "lane, queue_name, priority, id, wait",
    "a_lane, a_queue, a_priority, an_id, a_wait",
)
_ONE_INTO = f"SELECT {_COLUMNS} INTO {_VARIABLES} FROM (<bucket>) AS one;"
_NEXT_INTO = _ONE_INTO.replace(
    "<bucket>",
    NEXT_BUCKET.replace("%(lane)s", "a_lane")
    .replace("%(queue)s", "a_queue")
    .replace("%(priority)s", "a_priority"),
)
MARIADB_BUCKETS_OF_LANE = f"""BEGIN NOT ATOMIC
    DECLARE a_lane TYPE OF txtasks_task.lane;
    DECLARE a_queue TYPE OF txtasks_task.queue_name;
    DECLARE a_priority INT;
    DECLARE an_id TYPE OF txtasks_task.id;
    DECLARE a_wait DECIMAL(30, 6);
    DECLARE room INT DEFAULT %(limit)s;
    DECLARE EXIT HANDLER FOR NOT FOUND SET room = 0;
    {_ONE_INTO.replace("<bucket>", FIRST_BUCKET)}
    WHILE room > 0 AND a_lane = %(lane)s DO
        SELECT {_VARIABLES};
        SET room = room - 1;
        {_NEXT_INTO}
    END WHILE;
END"""
"""Each bucket is a result of its own."""


class LaneBucket(NamedTuple):
    """The pending rows of one lane, queue and priority.

    Attributes:
        first_id: id of the row that is due first.
        wait: seconds until that row is due; zero or less = due.
    """

    lane: str
    queue_name: str
    priority: int
    first_id: Any
    wait: float


def look(alias: str, behind: str, seconds: float = LOOK_SECONDS) -> tuple[list[LaneBucket], str]:
    """Return the buckets of the lanes after ``behind``, as many as can be read in ``seconds``.

    Returns:
        Also the last lane that was read; empty = there are no more lanes.
    """
    found: list[LaneBucket] = []
    until = time.monotonic() + seconds
    while True:
        page = _buckets(alias, behind, PAGE_BUCKETS, until=until)
        if len(page) < PAGE_BUCKETS and time.monotonic() < until:
            return found + page, ""
        if not page:
            return found, ""
        behind = page[-1].lane
        whole = [one for one in page if one.lane != behind]
        if whole:  # the last lane of the page may have more buckets
            page, behind = whole, whole[-1].lane
        found += page
        if time.monotonic() >= until:
            return found, behind


def first_of_lanes(alias: str) -> list[LaneBucket]:
    """Return the first buckets of all lanes, at most ``PAGE_BUCKETS``."""
    until = time.monotonic() + LOOK_SECONDS
    return _buckets(alias, "", PAGE_BUCKETS, until=until)


def buckets_of(alias: str, lane: str, most: int = BUCKETS_OF_LANE) -> list[LaneBucket]:
    """Return the first buckets of one lane."""
    found = _buckets(alias, lane, most, own=True)
    return [one for one in found if one.lane == lane]


def _buckets(
    alias: str, lane: str, limit: int, *, own: bool = False, until: float = float("inf")
) -> list[LaneBucket]:
    """Return the first buckets of the lanes after ``lane``; with ``own``, begin with that lane itself."""
    start = ">=" if own else ">"
    connection: Any = connections[alias]
    if connection.vendor == "postgresql":
        sql = POSTGRES_BUCKETS.replace("<from>", start)
        sql = sql.replace("<while>", WHILE_OF_LANE if own else "")
        return fetch_as(_bucket, alias, sql, lane=lane, limit=limit)
    if own and connection.vendor == "mysql" and connection.mysql_is_mariadb:
        sql = MARIADB_BUCKETS_OF_LANE.replace("<from>", start)
        return [_bucket(*row) for (row,) in fetch_results(alias, sql, lane=lane, limit=limit)]
    found: list[LaneBucket] = []
    rows = fetch(alias, FIRST_BUCKET.replace("<from>", start), lane=lane)
    while rows:
        one = _bucket(*rows[0][:5])
        if own and one.lane != lane:
            break
        found.append(one)
        if len(found) == limit or time.monotonic() >= until:
            break
        place = {"lane": one.lane, "queue": one.queue_name, "priority": one.priority}
        rows = fetch(alias, NEXT_BUCKET, **place)
    return found


def _bucket(lane: str, queue_name: str, priority: int, first_id: Any, wait: Any) -> LaneBucket:
    # MariaDB returns a Decimal; a row written by hand may have no valid time
    return LaneBucket(
        lane, queue_name, priority, first_id, math.inf if wait is None else float(wait)
    )
