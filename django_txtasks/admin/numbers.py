"""The numbers beside the filters of the list of live tasks, from the data of the page *At a glance*."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from django.db import DatabaseError, connections
from django.utils.translation import gettext

from django_txtasks.core.ground.wording import span
from django_txtasks.models import Status, Task

if TYPE_CHECKING:
    from django_txtasks.overview import Count, Overview, QueueFigures

RETRYING = "retrying"
"""State of pending tasks whose last attempt has failed, for people."""
MAX_AGE_SECONDS = 60.0
"""Age up to which numbers are shown again. A process without numbers reads an overview."""


def with_numbers(
    choices: Iterator[Any], changelist: Any, numbers: Callable[[Overview], dict[str, Count | int]]
) -> Iterator[Any]:
    """Yield a filter's choices, in a list of live tasks with their numbers.

    Args:
        numbers: a function from an overview to counts, by the choice's label.
    """
    from django_txtasks.admin.glance.words import number  # imported by lists alone

    found = _overview(changelist.queryset.db) if issubclass(changelist.model, Task) else None
    counts = {} if found is None else numbers(found)
    for one in choices:
        count = counts.get(str(one["display"]))
        yield one if count is None else {**one, "display": f"{one['display']} ({number(count)})"}


def notes(alias: str) -> Iterator[str]:
    """Yield a sentence with the age of the numbers, if they are not as new as the rows beside them."""
    from django_txtasks.overview import READ_SECONDS, age_of  # imported by lists alone

    found = _overview(alias)
    age = 0.0 if found is None else age_of(found)
    if age >= READ_SECONDS:
        text = gettext("The numbers beside the filters are %(span)s old; the rows are new.")
        yield text % {"span": span(timedelta(seconds=age))}


def by_state(found: Overview) -> dict[str, Count | int]:
    """Return the number of tasks in each state, by value."""
    return {
        Status.PENDING: found.total("due") + found.total("later"),
        Status.CLAIMED: found.running_total,
        Status.DEAD: found.total("dead"),
        Status.HELD: found.total("held"),
        RETRYING: found.total("retrying"),
    }


def by_queue(found: Overview, state: str | None) -> dict[str, Count | int]:
    """Return the number of tasks in a state of each queue; without a state, of all live tasks."""
    return {one.name: _of_queue(one, state) for one in found.queues}


def _of_queue(queue: QueueFigures, state: str | None) -> Count | int:
    if state == Status.PENDING:
        return queue.due + queue.later
    if state == Status.CLAIMED:
        return queue.running
    if state in (Status.DEAD, Status.HELD, RETRYING):
        count: Count = getattr(queue, state)
        return count
    waiting = queue.due + queue.later + queue.dead + queue.held
    return replace(waiting, number=waiting.number + queue.running)


def _overview(alias: str) -> Overview | None:
    """Return an overview; None if the database does not answer, because the list is useful without it."""
    from django_txtasks.overview import overview  # imported by lists alone

    try:
        return overview(alias, max_age=MAX_AGE_SECONDS)
    except DatabaseError:
        connections[alias].close_if_unusable_or_obsolete()
        return None
