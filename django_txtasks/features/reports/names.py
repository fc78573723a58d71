"""Names of waiting tasks that no living worker of their queue declares.

A task whose module its workers do not import waits without an error: its row is valid, but no worker of its queue
asks for its name. Such rows grow old, so they are at the head of their queue and priority. This module reads a few
rows there, never a backlog.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from contextlib import nullcontext
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import islice

from django.db import connections
from django.utils.translation import gettext as _

from django_txtasks.core.rows.buckets import BUCKET_BY_COLUMNS, BUCKET_BY_ROWS, pending_priorities
from django_txtasks.core.rows.claim_parts import parts
from django_txtasks.core.rows.workers import DRAIN_MARK
from django_txtasks.database.execute import fetch
from django_txtasks.database.places import asking, in_chunks
from django_txtasks.database.transactions import only_reading
from django_txtasks.features.reports.whose import Living, Whose, is_handed, living

MOST_ROWS, FEWEST_ROWS, MOST_ROWS_READ = 200, 20, 4_000
"""Number of rows that are read for each priority of a queue, in the order of their times. With many priorities the
number is lower, down to ``FEWEST_ROWS``, so that all of them together read about ``MOST_ROWS_READ`` rows."""
MAX_PRIORITIES = 10
"""Number of priorities that are read for a queue: the highest ones."""
MAX_NAMES_SAID = 10
MAX_SENTENCES = 3
STATEMENT_TIMEOUT = timedelta(seconds=5)
Bucket = tuple[str, int]
"""A queue and a priority that have pending tasks without a lane."""
Found = dict[str, dict[str, int]]
"""Number of pending tasks that were read, by queue and name."""


@dataclass(frozen=True)
class Heads:
    """The names in the rows at the heads of queues.

    Attributes:
        undeclared: as the function ``undeclared`` returns it.
        by_queue: whose rows they are, by queue and name.
        expired: the queues of which only rows were read that have expired.
    """

    undeclared: Found = field(default_factory=dict)
    by_queue: dict[str, dict[str, Whose]] = field(default_factory=dict)
    expired: frozenset[str] = frozenset()

    def elsewhere(self, queue: str) -> tuple[str, ...]:
        """Return the functions that were read in a queue; empty: this code has one of them."""
        found = self.by_queue.get(queue, {})
        is_ours = any(one in (Whose.OURS, Whose.HANDED) for one in found.values())
        return () if is_ours else tuple(found)


_HEAD = """
    SELECT <number>, task_name, COUNT(*), COUNT(CASE WHEN expires_at <= {now} THEN 1 END) FROM (
        SELECT lane, queue_name, priority, task_name, expires_at FROM txtasks_task {by_queue}
         WHERE status = 'pending' AND <start> ORDER BY <order> run_after, id LIMIT %(limit)s) AS t
     WHERE lane = '' AND queue_name = <queue> AND priority = <priority> GROUP BY task_name
"""
_NAMES_OF = "SELECT queue_name, task_name FROM txtasks_task WHERE id {in_ids}"


def advice(name: str) -> str:
    """Return what helps tasks whose function no living worker of their queue runs."""
    text = _(
        "If a deploy has renamed the function, write its old name into the decorator of the new function: "
        "@task(was=['%(name)s']). Otherwise start workers that import its module, and whose --task and "
        "--exclude-task do not leave it out. If a worker in another language runs it, start that worker."
    )
    return text % {"name": name}


def without_worker(alias: str, tasks: Iterable[tuple[str, str]]) -> list[str]:
    """Return a sentence for each queue and function whose tasks no living worker can run; empty if none lives.

    Args:
        tasks: pairs of queue and function.
    """
    able, said = declared(alias), []
    for queue, name in sorted(set(tasks)) if able else ():
        theirs = able.get(queue, set())
        if queue not in able and is_handed(queue):
            text = _("No living drain hands over queue %(queue)s, so its tasks wait.")
            said.append(text % {"queue": queue})
        elif queue not in able:
            text = _("No living worker serves queue %(queue)s, so its tasks wait.")
            said.append(text % {"queue": queue})
        elif theirs is not None and name not in theirs:
            text = _("No living worker of queue %(queue)s runs %(task)s, so these tasks wait.")
            said.append(text % {"queue": queue, "task": name})
    return [*dict.fromkeys(said)][:MAX_SENTENCES]


def declared(alias: str) -> dict[str, set[str] | None]:
    """Return, for each queue with a living worker, the names that its workers declare; None = any.

    A worker of an older release, whose row does not list them, may declare any name in its queues.
    """
    return declared_by(living(alias))


def declared_by(crew: Living) -> dict[str, set[str] | None]:
    """Return the same of living workers that were read before."""
    found: dict[str, set[str] | None] = {}
    for worker in crew.workers:
        names = worker.names - {DRAIN_MARK}  # a drain takes any name
        for queue in worker.queues:
            others = found.get(queue, set())
            found[queue] = others | names if names and others is not None else None
    return found


def undeclared(
    alias: str,
    queues: Iterable[str],
    known: Iterable[str] = (),
    buckets: Iterable[Bucket] | None = None,
) -> Found:
    """Return, by queue, the names of pending tasks that no living worker of the queue declares.

    Expired tasks are left out: they wait for a cleaner. The counts are lower bounds. A queue without a living
    worker is left out, because other reports name it.

    Args:
        known: names that a worker declares which is about to start and to serve these queues.
        buckets: the queues and priorities that have pending tasks without a lane; None = read them.
    """
    able, starting = declared(alias), set(known)
    names = {
        queue: theirs | starting
        for queue in queues
        if (theirs := able.get(queue, set())) is not None and (theirs or starting)
    }
    found: Found = {}
    for (queue, name), count in sorted(_waiting(alias, names, buckets).items()) if names else ():
        if count and name not in names[queue]:
            found.setdefault(queue, {})[name] = count
    return found


def at_heads(alias: str, queues: Collection[str], buckets: Iterable[Bucket]) -> Heads:
    """Return what the rows at the heads of these queues tell, from one read."""
    crew = living(alias)
    able = declared_by(crew)
    waiting = _waiting(alias, queues, buckets, few=[one for one in queues if not able.get(one)])
    valid = {queue for (queue, _), count in waiting.items() if count}
    found = Heads(expired=frozenset(queue for queue, _ in waiting if queue not in valid))
    for (queue, name), count in sorted(waiting.items()):
        if not count:
            continue
        theirs = able.get(queue, set())
        if theirs and name not in theirs:
            found.undeclared.setdefault(queue, {})[name] = count
        found.by_queue.setdefault(queue, {})[name] = crew.whose(queue, name)
    return found


def sentence(found: Found) -> str:
    """Return the findings as sentences for people."""
    text = _(
        "Pending tasks have names that no living worker of their queue declares: %(names)s. Check that workers "
        "import their modules (an app's tasks.py, INSTALLED_APPS), and deploy them; or write the old name of a "
        "renamed function into the decorator of the new one, @task(was=[…])."
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


def _waiting(
    alias: str,
    queues: Collection[str],
    buckets: Iterable[Bucket] | None,
    few: Collection[str] = (),
) -> Counter[tuple[str, str]]:
    """Count the tasks that were read, without expired ones: 0 = all of a queue and name have expired.

    Args:
        few: queues of which ``FEWEST_ROWS`` of each priority are enough.
    """
    many = [one for one in queues if one not in few]
    # elsewhere, a transaction that reads may block others
    is_postgresql = connections[alias].vendor == "postgresql"
    with only_reading(alias, STATEMENT_TIMEOUT) if is_postgresql else nullcontext():
        found = _heads(alias, many, buckets, MOST_ROWS)
        found.update(_heads(alias, few, buckets, FEWEST_ROWS))
        found.update(_heads_of_parts(alias, queues))  # a sum of counters would leave zeros out
    return found


def _heads(
    alias: str, queues: Collection[str], buckets: Iterable[Bucket] | None, most: int
) -> Counter[tuple[str, str]]:
    priorities: dict[str, list[int]] = {queue: [] for queue in queues}
    if buckets is None:
        for queue in queues:
            priorities[queue] = [*islice(pending_priorities(alias, queue), MAX_PRIORITIES)]
    else:
        for queue, priority in sorted(buckets, reverse=True):
            if queue in priorities and len(priorities[queue]) < MAX_PRIORITIES:
                priorities[queue].append(priority)
    places = [
        {"queue": queue, "priority": priority}
        for queue, every in priorities.items()
        for priority in every
    ]
    is_postgresql = connections[alias].vendor == "postgresql"
    start, order = BUCKET_BY_ROWS if is_postgresql else BUCKET_BY_COLUMNS
    question = _HEAD.replace("<start>", start).replace("<order>", order)
    most = min(most, max(FEWEST_ROWS, MOST_ROWS_READ // max(1, len(places))))
    found: Counter[tuple[str, str]] = Counter()
    for chunk in in_chunks(alias, places):
        sql, params = asking(alias, question, chunk)
        for number, name, count, expired in fetch(alias, sql, limit=most, **params):
            found[chunk[number]["queue"], name] += int(count) - int(expired)
    return found


def _heads_of_parts(alias: str, queues: Collection[str]) -> Counter[tuple[str, str]]:
    """Count the names of the oldest rows that scans leave to features, such as rows in lanes."""
    found = [one for of_part in parts().heads for one in of_part(alias)]
    ids = [first_id for queue, first_id in found if queue in queues]
    rows = fetch(alias, _NAMES_OF, ids=ids) if ids else []
    return Counter((queue, name) for queue, name in rows)
