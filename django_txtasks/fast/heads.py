"""The heads of the due tasks: in each priority of a queue, the tasks that have been due for longest.

It reads no backlog: only the first rows of each priority, the first row of each lane, and the last chances after a
crash.
"""

from __future__ import annotations

import uuid
from datetime import timedelta
from itertools import islice

from django.db import connections

from django_txtasks.conf import get_config
from django_txtasks.core.rows.buckets import paused_queues, pending_priorities
from django_txtasks.core.rows.turn import Subscription
from django_txtasks.database.execute import as_uuid
from django_txtasks.database.time_limits import within_together
from django_txtasks.database.transactions import own_transaction
from django_txtasks.features.lanes import buckets as lane_buckets

ROWS_PER_PRIORITY = 100
MAX_PRIORITIES = 10
MAX_LANES = 100
LANES_SECONDS = 0.003
"""Seconds for the lanes. If there are more, workers find the other lanes as they do without hints."""
LONGEST_SECONDS = 0.25
"""Limit in seconds for all statements of a look together, because a worker's loop waits for them."""
STATEMENT_TIMEOUT = timedelta(seconds=1)
"""Limit for one statement on PostgreSQL."""

# The due rows that a worker is told about if the database itself sends no hints. It reads no further rows.
DUE_HEAD = """
    SELECT id, task_name FROM txtasks_task {forced}
     WHERE status = 'pending' AND lane = '' AND queue_name = %(queue)s AND priority = %(priority)s
       AND run_after <= {now} {sound_id}
     ORDER BY run_after, id LIMIT %(limit)s
"""


class Heads:
    """The due tasks of the last look. A row that stays due is news only once."""

    def __init__(self, subscription: Subscription) -> None:
        self._subscription = subscription
        self._known: set[uuid.UUID] = set()

    def news(self) -> tuple[list[uuid.UUID], bool]:
        """Return the due tasks that the last look did not find, and whether there may be more."""
        found, is_full = due(self._subscription)
        fresh = [task_id for task_id in found if task_id not in self._known]
        self._known = set(found)
        return fresh, is_full


def due(subscription: Subscription) -> tuple[list[uuid.UUID], bool]:
    """Return the tasks that a worker may claim and that have been due for longest, and whether there may be more.

    Raises:
        DatabaseError: among others, if it takes too long: see ``database.errors.is_timeout``, ``TookTooLong``.
    """
    if connections[subscription.alias].vendor != "postgresql":
        return _due(subscription)  # elsewhere, a transaction that reads may block others
    with own_transaction(subscription.alias, limit=STATEMENT_TIMEOUT, in_order=True):
        return _due(subscription)


def _due(subscription: Subscription) -> tuple[list[uuid.UUID], bool]:
    alias, found, is_full = subscription.alias, [], False
    force = connections[alias].vendor == "mysql"
    look = within_together(LONGEST_SECONDS, "what is due")
    sql = DUE_HEAD.replace("{forced}", "FORCE INDEX (txtasks_pending)" * force)
    paused = paused_queues(alias)
    for queue in subscription.queues:
        if queue in paused:
            continue
        for priority in islice(pending_priorities(alias, queue, look), MAX_PRIORITIES):
            rows = look(alias, sql, queue=queue, priority=priority, limit=ROWS_PER_PRIORITY)
            found += [as_uuid(task_id) for task_id, name in rows if name in subscription.names]
            is_full = is_full or len(rows) == ROWS_PER_PRIORITY
    if get_config().lanes:  # the first row of each lane is enough to wake a worker
        buckets, _ = lane_buckets.look(alias, "", LANES_SECONDS)
        queues = set(subscription.queues) - paused
        ours = [one for one in buckets if one.wait <= 0 and one.queue_name in queues]
        found += [as_uuid(one.first_id) for one in ours[:MAX_LANES]]
    return found, is_full
