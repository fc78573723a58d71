"""Change many tasks from code: revive, discard, hold, resume, run now, cancel, stop, and enqueue again.

Each function takes ids, or filters of which all must match. It changes the tasks in slices of 500, each in a
transaction of its own. If a call is interrupted, the slices before are done, and the same call goes on. Each call
leaves an entry in the admin's log and the signal ``tasks_operated``, and each task the signal of its change.

* ``choice``: which tasks; ``pages``: reads their ``rows``
* ``verbs``: the changes; ``again``: enqueues anew
* ``slices``: one call; ``watcher``: its caller's part; ``moved``: its counts; ``record``: its trace
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, TypedDict

from django_txtasks.operations.choice import choice_of, seconds_of
from django_txtasks.operations.moved import Moved, Sample, Skipped
from django_txtasks.operations.slices import Order

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = [
    "Moved", "Sample", "Skipped",
    "again", "ask_to_stop", "cancel", "discard", "hold", "resume", "revive", "run_now",
]  # fmt: skip
Ids = Iterable["uuid.UUID | str"] | uuid.UUID | str


class Options(TypedDict, total=False):
    """The choice of tasks, and other options of a call."""

    queue: str | None
    """The tasks of this queue."""
    task: str | None
    """The tasks of this function, by its full name."""
    cause: int | None
    """The tasks whose last failure has this fingerprint: the column ``cause``."""
    error: str | None
    """The tasks whose last error has this text in its class or message. Only 10,000 tasks are looked at."""
    lane: str | None
    """The tasks of this lane."""
    since: datetime | timedelta | None
    """The tasks that were due at or after this time, or not longer ago than this."""
    limit: int | None
    """The highest number of tasks. Tasks that were due first come first."""
    using: str
    """The alias of their database."""
    dry_run: bool
    """Count, and change nothing."""
    by: Any
    """The person, for the log: a user of the site, or a name."""


def revive(
    ids: Ids = (), *, spread: timedelta | float | None = None, **options: Unpack[Options]
) -> Moved:
    """Let dead tasks run again, with no failures counted.

    Tasks that die again during the call are not revived again.

    Args:
        spread: let each task run at a random time within this span, and not now.
    """
    return _operate("revive", ids, options, spread)


def discard(ids: Ids = (), **options: Unpack[Options]) -> Moved:
    """Give dead tasks up: they become finished, with the outcome *discarded*."""
    return _operate("discard", ids, options)


def hold(ids: Ids = (), **options: Unpack[Options]) -> Moved:
    """Keep pending tasks from starting until ``resume``."""
    return _operate("hold", ids, options)


def resume(ids: Ids = (), **options: Unpack[Options]) -> Moved:
    """Let held tasks run at their old times."""
    return _operate("resume", ids, options)


def run_now(
    ids: Ids = (), *, spread: timedelta | float | None = None, **options: Unpack[Options]
) -> Moved:
    """Make pending tasks due now that are due later. With filters, tasks that are due already keep their place.

    Args:
        spread: as of ``revive``; filters leave out tasks that are due within this span anyway.
    """
    return _operate("run_now", ids, options, spread)


def cancel(ids: Ids = (), **options: Unpack[Options]) -> Moved:
    """Cancel pending and held tasks: they never run."""
    return _operate("cancel", ids, options)


def ask_to_stop(ids: Ids = (), **options: Unpack[Options]) -> Moved:
    """Ask running tasks to stop. They stop when they check, and no other attempt starts."""
    return _operate("ask_to_stop", ids, options)


def again(ids: Ids = (), **options: Unpack[Options]) -> Moved:
    """Enqueue the calls of dead or finished tasks again, as new tasks; the old ones stay.

    The new tasks have the options that the code declares now, with queue, priority and arguments of the old ones.
    Filters look only for dead tasks; finished ones need ids. A second call enqueues them once more.
    """
    return _operate("again", ids, options)


def _operate(
    name: str, ids: Ids, options: Options, spread: timedelta | float | None = None
) -> Moved:
    """Carry out one call, and return its counts.

    Raises:
        InvalidChoice: see ``choice_of``; nothing was changed.
        DatabaseError: the slices before are done.
    """
    order, is_dry = order_of(name, ids, options, spread)
    if is_dry:
        return order.dry_run()
    *_, moved = order.carry_out()
    return moved


def order_of(
    name: str, ids: Ids, options: Options, spread: timedelta | float | None = None
) -> tuple[Order, bool]:
    """Return the call, checked, and whether it is a dry run."""
    filters: dict[str, Any] = dict(options)
    alias, is_dry, by = (
        filters.pop("using", "default"),
        filters.pop("dry_run", False),
        filters.pop("by", ""),
    )
    seconds_of(spread)
    order = Order(name=name, choice=choice_of(ids, **filters), alias=alias, spread=spread, by=by)
    return order, is_dry
