"""The status of a database for ``txtasks_status``: bounded counts and problems, from the overview."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from django.db import DatabaseError

from django_txtasks.database.errors import is_timeout
from django_txtasks.insight.late import Late
from django_txtasks.insight.no_writes import NAME as NO_WRITES
from django_txtasks.insight.status import QueueStatus, Snapshot, snapshot
from django_txtasks.overview import Count, Overview, QueueFigures
from django_txtasks.overview.gathering import gather

MOST_NAMED = 10
"""Number of late tasks that are named, each of another queue."""


def look(alias: str, *, exact: bool) -> Snapshot:
    """Return the status, with its problems.

    Args:
        exact: count all tasks. This is also done if there are more queues than an overview has.

    Raises:
        DatabaseError: the database cannot be reached.
    """
    found = _overview(alias)
    is_bounded = (
        found is not None and not found.more_queues and not found.has_more_queues and not exact
    )
    queues = {one.name: _status_of(one) for one in found.queues} if found and is_bounded else None
    now = snapshot(alias, queues)
    cost = found.cost if found is not None else now.cost
    return replace(now, problems=tuple(_problems(now, found)), cost=cost)


def _overview(alias: str) -> Overview | None:
    """Return an overview; None = a part of it took too long."""
    try:
        return gather(alias, {})[0]
    except DatabaseError as error:
        if is_timeout(error):
            return None
        raise


def _status_of(one: QueueFigures) -> QueueStatus:
    counts: dict[str, Count] = {
        "due": one.due, "later": one.later, "held": one.held, "dead": one.dead,
        "in_lanes": one.in_lanes, "retrying": one.retrying,
    }  # fmt: skip
    numbers: dict[str, Any] = {name: count.number for name, count in counts.items()}
    capped = tuple(name for name, count in counts.items() if count.is_capped)
    oldest = round(one.oldest, 3)
    return QueueStatus(claimed=one.running, oldest_due=oldest, capped=capped, **numbers)


def _problems(now: Snapshot, found: Overview | None) -> Iterator[str]:
    """Yield a sentence for each problem, the worst first."""
    every = found.problems if found is not None else ()
    if found is None:
        yield "The database answers slowly: not all of its problems are known."
    yield from (one.text for one in every if not one.is_warning)
    behind = {one.subject for one in every if one.name == "queue_behind"}
    all_late = [one for one in now.late if not (one.queue in behind and _is_next(one))]
    if any(one.name == NO_WRITES for one in every):
        all_late = []
    for late in all_late[:MOST_NAMED]:
        yield f"A task has been due for {late.seconds:.0f} s: {late}"
    if len(all_late) > MOST_NAMED:
        yield f"More queues have such a task: {len(all_late) - MOST_NAMED:,}."
    if now.dead:
        is_capped = any("dead" in queue.capped for queue in now.queues.values())
        yield f"Dead tasks: {Count(now.dead, is_capped)}. Read why, then revive or discard them."
    yield from (one.text for one in every if one.is_warning)


def _is_next(late: Late) -> bool:
    """Return True if a task waits only for a free slot."""
    return {one.gate for one in late.reasons} <= {"next", "slots"}
