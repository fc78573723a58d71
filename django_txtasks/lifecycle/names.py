"""Names of waiting tasks that no living worker of their queue declares.

A task whose module its workers do not import waits without an error: its row is valid, but no worker of its queue
asks for its name. Such rows grow old, so they are at the head of their queue and priority. This module reads a few
rows there, never a backlog.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from datetime import timedelta
from itertools import islice

from django.db import connections
from django.db.models import TextField
from django.db.models.functions import Cast
from django.utils.translation import gettext as _

from django_txtasks.database.execute import fetch
from django_txtasks.database.transactions import only_reading
from django_txtasks.lifecycle import lane_buckets
from django_txtasks.lifecycle.buckets import pending_priorities
from django_txtasks.lifecycle.workers import DRAIN_MARK, texts_in
from django_txtasks.models import DatabaseNow, Worker

ROWS_PER_PRIORITY = 200
"""Number of rows that are read for each priority of a queue, in the order of their times."""
MAX_PRIORITIES = 10
"""Number of priorities that are read for a queue: the highest ones."""
ROWS_IN_LANES = 200
MAX_WORKERS = 1000
MAX_NAMES_SAID = 10
STATEMENT_TIMEOUT = timedelta(seconds=5)
Found = dict[str, dict[str, int]]
"""Number of pending tasks that were read, by queue and name."""

# ``{bounds}`` is for PostgreSQL: see ``Dialect.to_queue``.
_HEAD = """
    SELECT task_name FROM txtasks_task {forced}
     WHERE status = 'pending' AND lane = '' AND queue_name = %(queue)s AND priority = %(priority)s {bounds}
     ORDER BY run_after, id LIMIT %(limit)s
"""
_NAMES_OF = "SELECT queue_name, task_name FROM txtasks_task WHERE id {in_ids}"
_BOUNDS = """
       AND (status, lane, queue_name, priority) >= ('pending', '', %(queue)s, %(priority)s)
       AND (status, lane, queue_name, priority) <= ('pending', '', %(queue)s, %(priority)s)
"""


def declared(alias: str) -> dict[str, set[str] | None]:
    """Return, for each queue with a living worker, the names that its workers declare; None = any.

    A worker of an older release, whose row does not list them, may declare any name in its queues.
    """
    workers = (
        Worker.objects.using(alias)
        .filter(lost=False)
        .annotate(
            now=DatabaseNow(),
            their_queues=Cast("queues", TextField()),
            their_names=Cast("task_names", TextField()),
        )
    )
    found: dict[str, set[str] | None] = {}
    for worker in workers.only("seen_at", "lease")[:MAX_WORKERS]:
        if worker.is_silent(worker.now):
            continue
        names = texts_in(worker.their_names) - {DRAIN_MARK}  # a drain takes any name
        for queue in texts_in(worker.their_queues):
            others = found.get(queue, set())
            found[queue] = others | names if names and others is not None else None
    return found


def undeclared(alias: str, queues: Iterable[str], known: Iterable[str] = ()) -> Found:
    """Return, by queue, the names of pending tasks that no living worker of the queue declares.

    The counts are lower bounds. A queue without a living worker is left out, because other reports name it.

    Args:
        known: names that a worker declares which is about to start and to serve these queues.
    """
    able, starting = declared(alias), set(known)
    names = {
        queue: theirs | starting
        for queue in queues
        if (theirs := able.get(queue, set())) is not None and (theirs or starting)
    }
    found: Found = {}
    for (queue, name), count in sorted(_waiting(alias, names).items()) if names else ():
        if name not in names[queue]:
            found.setdefault(queue, {})[name] = count
    return found


def sentence(found: Found) -> str:
    """Return the findings as sentences for people."""
    text = _(
        "Pending tasks have names that no living worker of their queue declares: %(names)s. Check that workers "
        "import their modules (an app's tasks.py, INSTALLED_APPS), and deploy them; or keep the old name of a "
        "renamed function."
    )
    return text % {"names": listed(found)}


def listed(found: Found) -> str:
    """Return the first names with their queues and counts, as text for people."""
    said = [
        _("%(name)s (%(n)s or more in queue %(queue)s)")
        % {"name": name, "n": count, "queue": queue}
        for queue, names in found.items()
        for name, count in names.items()
    ]
    return ", ".join(said[:MAX_NAMES_SAID]) + ", …" * (len(said) > MAX_NAMES_SAID)


def _waiting(alias: str, queues: Collection[str]) -> Counter[tuple[str, str]]:
    vendor = connections[alias].vendor
    if vendor != "postgresql":  # elsewhere, a transaction that reads may block others
        forced = "FORCE INDEX (txtasks_pending)" * (vendor == "mysql")
        return _heads(alias, queues, forced=forced) + _heads_of_lanes(alias, queues)
    with only_reading(alias, STATEMENT_TIMEOUT):
        return _heads(alias, queues, bounds=_BOUNDS) + _heads_of_lanes(alias, queues)


def _heads(
    alias: str, queues: Collection[str], *, forced: str = "", bounds: str = ""
) -> Counter[tuple[str, str]]:
    sql = _HEAD.replace("{forced}", forced).replace("{bounds}", bounds)
    found: Counter[tuple[str, str]] = Counter()
    for queue in queues:
        for priority in islice(pending_priorities(alias, queue), MAX_PRIORITIES):
            rows = fetch(alias, sql, queue=queue, priority=priority, limit=ROWS_PER_PRIORITY)
            found.update((queue, name) for (name,) in rows)
    return found


def _heads_of_lanes(alias: str, queues: Collection[str]) -> Counter[tuple[str, str]]:
    """Count the names of the oldest rows in lanes: one row of each lane, queue and priority."""
    buckets, _ = lane_buckets.look(alias, "")
    ids = [one.first_id for one in buckets if one.queue_name in queues][:ROWS_IN_LANES]
    return (
        Counter((queue, name) for queue, name in fetch(alias, _NAMES_OF, ids=ids))
        if ids
        else Counter()
    )
