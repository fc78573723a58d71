"""The near future: when the next tasks become due, so that a worker is ready in time. It reads few rows."""

from __future__ import annotations

from datetime import timedelta
from itertools import islice
from typing import Any, NamedTuple

from django.db import connections

from django_txtasks.core.rows import statements
from django_txtasks.core.rows.buckets import pending_priorities
from django_txtasks.core.rows.turn import Bucket, Subscription
from django_txtasks.database.time_limits import fetch_within, within_together
from django_txtasks.database.transactions import (
    can_use_one_statement,
    fetch_in_one_statement,
    own_transaction,
)

ROWS_PER_PRIORITY = 200
MAX_PRIORITIES = 10
LONGEST_SECONDS = 0.25
"""Limit in seconds for all statements of a look together, because a worker's loop waits for them."""
STATEMENT_TIMEOUT = timedelta(seconds=1)
"""Limit for one statement on PostgreSQL."""

# The rows that become due within ``%(delay)s`` seconds. It reads no other rows, however many are due later.
UPCOMING = """
    SELECT task_name, priority, {wait} AS wait FROM txtasks_task {forced}
     WHERE status = 'pending' AND lane = '' AND queue_name = %(queue)s AND priority = %(priority)s
       AND run_after > {now} AND run_after <= {later} AND %(queue)s NOT IN (<paused>)
     ORDER BY run_after, id LIMIT %(most)s
""".replace("<paused>", statements.PAUSED_QUEUES)
# PostgreSQL drops a condition that the index has, too, and would then read the whole index. So the condition
# compares whole rows, and rows behind the wanted ones are left out after a few rows were read.
_POSTGRES_SOON = """
    SELECT n.task_name, n.priority, n.wait FROM (
        SELECT t.task_name, t.lane, t.queue_name, t.priority, {wait} AS wait FROM txtasks_task t
         WHERE t.status = 'pending'
           AND (t.status, t.lane, t.queue_name, t.priority, t.run_after)
               > ('pending', '', %(queue)s, present.priority, {now})
         ORDER BY t.status, t.lane, t.queue_name, t.priority, t.run_after, t.id LIMIT %(most)s) AS n
     WHERE n.lane = '' AND n.queue_name = %(queue)s AND n.priority = present.priority AND n.wait <= %(delay)s
       AND %(queue)s NOT IN (<paused>)
""".replace("<paused>", statements.PAUSED_QUEUES)
POSTGRES_UPCOMING = statements.PENDING_PRIORITIES.replace(
    "SELECT priority FROM present WHERE priority IS NOT NULL\n",
    f"SELECT soon.* FROM present CROSS JOIN LATERAL ({_POSTGRES_SOON}) AS soon"
    " WHERE present.priority IS NOT NULL ORDER BY wait LIMIT %(most)s\n",
)


class Upcoming(NamedTuple):
    """The tasks that become due soon.

    Attributes:
        waits: seconds until each of a worker's next tasks is due, in increasing order.
        known_for: seconds ahead for which ``waits`` is complete.
        buckets: the buckets of these tasks.
    """

    waits: list[float]
    known_for: float
    buckets: set[Bucket]


def upcoming(subscription: Subscription, seconds: float) -> Upcoming:
    """Return when tasks outside of lanes become due within ``seconds``.

    Raises:
        DatabaseError: among others, if it takes too long: see ``database.errors.is_timeout``, ``TookTooLong``.
    """
    found: list[float] = []
    buckets: set[Bucket] = set()
    known_for = seconds
    for queue, rows in _rows(subscription, seconds):
        if len(rows) >= ROWS_PER_PRIORITY:
            known_for = min(known_for, float(rows[-1][2]))
        ours = [row for row in rows if row[0] in subscription.names]
        found += [float(wait) for _, _, wait in ours]
        buckets.update(Bucket(priority, queue) for _, priority, _ in ours)
    return Upcoming(sorted(found), known_for, buckets)


_Rows = list[tuple[str, list[tuple[Any, ...]]]]
"""The rows in the order of their times, for each queue or each priority of a queue."""


def _rows(subscription: Subscription, seconds: float) -> _Rows:
    alias = subscription.alias
    if connections[alias].vendor != "postgresql":
        return _rows_by_priority(subscription, seconds)
    params = {"delay": seconds, "most": ROWS_PER_PRIORITY}
    if can_use_one_statement(alias):
        return [
            (
                queue,
                fetch_in_one_statement(
                    alias,
                    POSTGRES_UPCOMING,
                    limit=STATEMENT_TIMEOUT,
                    queue=queue,
                    **params,
                ),
            )
            for queue in subscription.queues
        ]
    with own_transaction(alias, limit=STATEMENT_TIMEOUT, in_order=True):
        return [
            (queue, fetch_within(alias, POSTGRES_UPCOMING, 1.0, queue=queue, **params))
            for queue in subscription.queues
        ]


def _rows_by_priority(subscription: Subscription, seconds: float) -> _Rows:
    alias, look = subscription.alias, within_together(LONGEST_SECONDS, "what is due soon")
    force = connections[alias].vendor == "mysql"
    sql = UPCOMING.replace("{forced}", "FORCE INDEX (txtasks_pending)" * force)
    place = {"delay": seconds, "most": ROWS_PER_PRIORITY}
    return [
        (queue, look(alias, sql, queue=queue, priority=priority, **place))
        for queue in subscription.queues
        for priority in islice(pending_priorities(alias, queue, look), MAX_PRIORITIES)
    ]
