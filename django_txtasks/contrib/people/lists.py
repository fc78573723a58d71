"""The lists of open questions: mine, free ones, overdue ones, all.

Each list reads the index of open questions, for each kind that the user may see, in the order of their due times.
One statement does this for all kinds, so that a page with 40 kinds has as many queries as a page with 2. No query
joins the tables of tasks: ``in_force`` then reads the rows of these tasks by their ids.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from django.db import connections
from django.db.models import Q, QuerySet
from django.db.models.expressions import RawSQL

from django_txtasks.contrib.people.holding import is_free
from django_txtasks.contrib.people.kinds import Kind, kinds, name_of_kind
from django_txtasks.contrib.people.models import Question, alias_of_people, key_of
from django_txtasks.models import DatabaseNow, Task, Wait

ASSIGN = "txtasks_people.assign_question"
"""The permission to give questions to other people, and to see all of them."""
VIEW = "txtasks_people.view_question"
"""The permission to see all questions."""
PAGE_SIZE = 50
ROWS_PER_LOOK = 200
"""Rows of each kind that are read together, because some of them may be left out."""
MOST_LOOKS = 5
"""Looks for one page. A page that is not full then has a place where the next one begins."""
MOST_COUNTED = 1_000
MOST_READ = 10_000
"""Free questions that are read for a count, because some of them may not be for the user."""
KINDS_PER_STATEMENT = 100
"""SQLite takes at most 500 parts of a UNION."""
# Each step of the recursion is one probe of the index. MariaDB and MySQL probe it for a GROUP BY.
_OPEN_KINDS = """
    WITH RECURSIVE kinds AS (
        SELECT MIN(kind) AS kind FROM txtasks_question WHERE closed_at IS NULL
        UNION ALL
        SELECT (SELECT MIN(q.kind) FROM txtasks_question q WHERE q.closed_at IS NULL AND q.kind > kinds.kind)
          FROM kinds WHERE kinds.kind IS NOT NULL)
    SELECT kind FROM kinds WHERE kind IS NOT NULL
"""
_OPEN_KINDS_OF = {
    "mysql": "SELECT kind FROM txtasks_question WHERE closed_at IS NULL GROUP BY closed_at, kind"
}


class Box(str, enum.Enum):
    """The lists."""

    MINE = "mine"
    """Questions that the user has."""
    FREE = "free"
    """Free questions that the user may take, unless hidden."""
    OVERDUE = "overdue"
    """Questions that are due, also if a person has them, and hidden ones."""
    ALL = "all"
    """All open questions."""


class Place(NamedTuple):
    """The place of a question in the lists."""

    due_at: datetime
    pk: int


@dataclass(frozen=True)
class Page:
    """Questions of a list, the first due first.

    Attributes:
        next: the place where the next page begins; None: this is the last page.
    """

    questions: list[Question]
    next: Place | None


def inbox(
    user: Any,
    box: Box | str = Box.MINE,
    *,
    kind: Kind | str | None = None,
    search: str = "",
    after: Place | None = None,
    size: int = PAGE_SIZE,
) -> Page:
    """Return a page of a list.

    The lists *overdue* and *all* have the kinds that the user may answer; with the permission
    ``txtasks_people.assign_question`` or ``txtasks_people.view_question``, all kinds.

    Args:
        kind: the only kind in the list, or its name.
        search: a part of the titles, in any case of its letters. Only open questions are searched.
        after: ``next`` of the page before.
    """
    alias, box, kind = alias_of_people(), Box(box), name_of_kind(kind)
    found: list[Question] = []
    for _look in range(MOST_LOOKS):
        places = _next_places(alias, user, box, kind, after, search=search)
        rows = rows_at(alias, places)
        shown = in_force(alias, [one for one in rows if box is not Box.FREE or is_for(user, one)])
        room = size - len(found)
        found += shown[:room]
        if len(shown) > room:
            return Page(found, place_of(found[-1]))
        if len(places) < ROWS_PER_LOOK or not rows:
            return Page(found, None)
        after = place_of(rows[-1])
        if len(found) == size:
            break
    return Page(found, after)


def counts(user: Any, kind: Kind | str | None = None) -> dict[Box, int]:
    """Return the number of questions in each list; it stops at 1,000.

    Questions that need no answer any more are counted until the cleaner has closed them.

    Args:
        kind: the only kind that counts, or its name.
    """
    alias, name = alias_of_people(), name_of_kind(kind)
    return {box: _count(alias, user, box, name) for box in Box}


def kinds_for(user: Any) -> list[Kind]:
    """Return the declared kinds that this user may answer."""
    return [one for one in kinds() if one.allows(user)]


def sees_all(user: Any) -> bool:
    """Return True if the user sees the questions of all kinds."""
    return bool(user.has_perm(ASSIGN) or user.has_perm(VIEW))


def in_force(alias: str, questions: Sequence[Question]) -> list[Question]:
    """Return the questions that still need an answer: their task is there, and its wait is open."""
    if not questions:
        return []
    ids = {one.task_id for one in questions}
    there = set(Task.objects.using(alias).filter(pk__in=ids).values_list("pk", flat=True))
    waits = Wait.objects.using(alias).filter(task_id__in=ids, ended_at=None)
    waiting = set(waits.values_list("task_id", "name"))
    return [one for one in questions if one.task_id in there and (one.task_id, one.name) in waiting]


def open_rows(alias: str, kind: str, after: Place | None = None) -> QuerySet[Question]:
    """Return the open questions of a kind, in the order of the index."""
    rows = Question.objects.using(alias).filter(closed_at=None, kind=kind).order_by("due_at", "id")
    if after is None:
        return rows
    behind = Q(due_at__gt=after.due_at) | Q(due_at=after.due_at, pk__gt=after.pk)
    return rows.filter(behind, due_at__gte=after.due_at)


def free_rows(alias: str, kind: str, after: Place | None = None) -> QuerySet[Question]:
    """Return the free questions of a kind that are not hidden, in the order of the index."""
    is_shown = Q(hidden_until=None) | Q(hidden_until__lte=DatabaseNow())
    return open_rows(alias, kind, after).filter(is_free(), is_shown)


def open_kinds(alias: str) -> list[str]:
    """Return the kinds of all open questions, also ones that no app declares, sorted by name."""
    connection = connections[alias]
    with connection.cursor() as cursor:
        cursor.execute(_OPEN_KINDS_OF.get(connection.vendor, _OPEN_KINDS))
        return sorted(kind for (kind,) in cursor.fetchall())


def first_places(
    alias: str, lists: Sequence[QuerySet[Question]], each: int, *, most: int | None = None
) -> list[Place]:
    """Return the places of the first rows of each list, the first due first.

    Args:
        lists: in the order of an index.
        each: number of rows of each list.
        most: number of rows of all lists together; the last lists then have fewer.
    """
    found: list[Place] = []
    for begin in range(0, len(lists), KINDS_PER_STATEMENT):
        found += _places(alias, lists[begin : begin + KINDS_PER_STATEMENT], each, most)
    return sorted(found)[:most]


def rows_at(alias: str, places: Sequence[Place]) -> list[Question]:
    """Return the questions at these places with their assignees, the first due first."""
    found: list[Question] = []
    rows = Question.objects.using(alias).select_related("assignee")
    for begin in range(0, len(places), MOST_COUNTED):
        found += rows.filter(pk__in=[one.pk for one in places[begin : begin + MOST_COUNTED]])
    return sorted(found, key=place_of)


def is_for(user: Any, question: Question) -> bool:
    """Return True unless the task has excluded this person, or the person has hidden the question."""
    return key_of(user) not in (*question.not_by, *question.hidden_for)


def place_of(question: Question) -> Place:
    """Return the place of a question in the lists."""
    return Place(question.due_at, question.pk)


def _querysets(
    alias: str, user: Any, box: Box, kind: str | None, after: Place | None
) -> Iterable[QuerySet[Question]]:
    if box is Box.MINE:
        # A closed question has no assignee. With closed_at, databases would walk through all open ones instead.
        mine = Question.objects.using(alias).filter(assignee=user.pk).order_by("due_at", "id")
        if kind is not None:
            mine = mine.filter(kind=kind)
        if after is not None:
            mine = mine.filter(Q(due_at__gt=after.due_at) | Q(due_at=after.due_at, pk__gt=after.pk))
        yield mine
        return
    is_all = box is not Box.FREE and sees_all(user)
    names = open_kinds(alias) if is_all else [one.name for one in kinds_for(user)]
    for name in names:
        if kind not in (None, name):
            continue
        if box is Box.FREE:
            yield free_rows(alias, name, after)
        elif box is Box.OVERDUE:
            yield open_rows(alias, name, after).filter(due_at__lte=DatabaseNow())
        else:
            yield open_rows(alias, name, after)


def _next_places(
    alias: str, user: Any, box: Box, kind: str | None, after: Place | None, *, search: str
) -> list[Place]:
    """Return the places of the next rows of all kinds together, at most ``ROWS_PER_LOOK``."""
    text = search.replace("\0", "")  # PostgreSQL refuses the statement
    lists = _querysets(alias, user, box, kind, after)
    found = [one.filter(title__icontains=text) if text else one for one in lists]
    return first_places(alias, found, ROWS_PER_LOOK)[:ROWS_PER_LOOK]


def _places(
    alias: str, lists: Sequence[QuerySet[Question]], each: int, most: int | None
) -> list[Place]:
    """Run one statement for all lists. The times are as the driver returns them, and compare with each other."""
    connection, parts, values = connections[alias], [], []
    for number, one in enumerate(lists):
        # A plain column for Django would be converted, and Django would sort by the conversion: no index has it.
        rows = one.annotate(place=RawSQL("due_at", ())).values_list("place", "pk")[:each]
        sql, parameters = rows.query.get_compiler(using=alias).as_sql()
        parts.append(f"SELECT * FROM ({sql}) list{number}")  # noqa: S608 -- no text of users
        values += parameters
    limit = "" if most is None else f" LIMIT {most:d}"
    with connection.cursor() as cursor:
        cursor.execute(" UNION ALL ".join(parts) + limit, values)
        return [Place(due_at, pk) for due_at, pk in cursor.fetchall()]


def _count(alias: str, user: Any, box: Box, kind: str | None) -> int:
    lists = list(_querysets(alias, user, box, kind, None))
    if box is not Box.FREE:
        return len(first_places(alias, lists, MOST_COUNTED, most=MOST_COUNTED))
    number, places = 0, first_places(alias, lists, MOST_COUNTED, most=MOST_READ)
    for begin in range(0, len(places), MOST_COUNTED):
        some = [one.pk for one in places[begin : begin + MOST_COUNTED]]
        rows = Question.objects.using(alias).filter(pk__in=some).only("not_by", "hidden_for")
        number += sum(is_for(user, row) for row in rows)
        if number >= MOST_COUNTED:
            return MOST_COUNTED
    return number
