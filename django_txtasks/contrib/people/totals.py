"""Figures of answered questions: how many, by whom, how fast. They show when a machine may take over."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from statistics import median
from typing import Any

from django.utils import timezone

from django_txtasks.contrib.people.kinds import Kind, kinds, name_of_kind
from django_txtasks.contrib.people.models import Question, alias_of_people
from django_txtasks.exceptions import InvalidOption

MOST_READ = 10_000
"""The number of closed questions of a kind that are read, the latest first."""


@dataclass(frozen=True)
class Figures:
    """Closed questions of one kind.

    Attributes:
        answered: by people and by the machine.
        by_machine: by the machine.
        unanswered: closed without an answer: too late, cancelled, or answered in another way.
        suggested: answers of people to questions with suggested values.
        agreed: those answers that have all suggested values.
        p50: median time from the asking to the answer of a person; None: no person has answered.
    """

    answered: int
    by_machine: int
    unanswered: int
    suggested: int
    agreed: int
    p50: timedelta | None


def figures(kind: Kind | str, since: datetime | timedelta) -> Figures:
    """Return the figures of the questions of a kind that were closed since a time. At most the last 10,000 count.

    Args:
        kind: a ``Kind``, or its name.
        since: an aware datetime, or the time until now.

    Raises:
        InvalidOption: ``since`` has another type, or is a naive datetime.
    """
    name = name_of_kind(kind)
    rows = Question.objects.using(alias_of_people()).filter(closed_at__gte=_begin(since), kind=name)
    columns = ("by_machine", "answered_as", "agreed", "asked_at", "closed_at")
    # With values_list(), Django would sort by its expression for the time in the SELECT, which no index has.
    found = list(rows.order_by("-closed_at").only(*columns)[:MOST_READ])
    people = [one for one in found if one.answered_as]
    spans = [(one.closed_at - one.asked_at).total_seconds() for one in people if one.closed_at]
    by_machine = sum(one.by_machine for one in found)
    judged = [one.agreed for one in people if one.agreed is not None]
    return Figures(
        answered=len(people) + by_machine,
        by_machine=by_machine,
        unanswered=len(found) - len(people) - by_machine,
        suggested=len(judged),
        agreed=sum(judged),
        p50=timedelta(seconds=median(spans)) if spans else None,
    )


def answers_by_kind(since: datetime | timedelta) -> dict[str, Figures]:
    """Return the figures of each declared kind, by its name; see ``figures``."""
    return {one.name: figures(one, since) for one in kinds()}


def _begin(since: Any) -> datetime:
    if isinstance(since, timedelta):
        return timezone.now() - since
    if isinstance(since, datetime) and since.utcoffset() is not None:
        return since
    raise InvalidOption(f"since is {since!r}; use a timedelta, or an aware datetime.")
