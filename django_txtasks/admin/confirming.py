"""The tasks that an action has chosen, for the page that asks before it acts, and the page from which it came."""

from __future__ import annotations

import uuid
from typing import NamedTuple

from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.db.models import QuerySet
from django.http import HttpRequest

from django_txtasks.admin import bounded, links
from django_txtasks.admin.bounded import (
    first_rows,
    following_indexes,
    has_more_rows,
)
from django_txtasks.admin.causes import order_of_list
from django_txtasks.admin.numbers import RETRYING
from django_txtasks.admin.pages import page_of
from django_txtasks.models import Status, Task
from django_txtasks.stats import by_cause

MAX_LISTED_TASKS = 20
"""Highest number of tasks that the page lists."""
MAX_IN_REQUEST = 1_000
"""Highest number of tasks that one request changes."""

ON_PAGE = "on_page"
"""Field of the forms on the page of one task."""


class Chosen(NamedTuple):
    """The tasks that an action would move, with some examples, and the number that it would leave unchanged.

    Attributes:
        moves: number of tasks; counts only the rows that were read, if there are more.
        ids: the first ``MAX_IN_REQUEST`` of them.
        leaves: selected tasks in another state; None if all pages are selected, because these are not counted.
        looked_at: number of rows that were read; None if all rows were read.
        places: number of queues and causes that were read, if this has left rows out; else None.
    """

    moves: int
    ids: list[uuid.UUID]
    examples: list[Task]
    leaves: int | None
    looked_at: int | None
    places: int | None = None

    @property
    def are_many(self) -> bool:
        """True if there are, or may be, more tasks than one request changes."""
        return self.looked_at is not None or self.moves > MAX_IN_REQUEST

    @classmethod
    def of(
        cls, request: HttpRequest, queryset: QuerySet[Task], state: Status, *, is_all: bool
    ) -> Chosen:
        """Count the selected tasks; if all pages are selected, the first rows of the list.

        Args:
            is_all: all pages are selected. A search for one id has one page.
        """
        in_state = queryset.filter(status=state)
        rows = queryset.model._default_manager.using(queryset.db).order_by()
        leaves = looked_at = places = None
        with following_indexes(queryset.db):
            if is_all:
                is_retrying = request.GET.get("state") == RETRYING
                chosen = {**request.GET.dict(), "state": RETRYING if is_retrying else state}
                order = order_of_list(chosen)
                found = first_rows(in_state, order)
                moves = found.count()
                if has_more_rows(rows, order):
                    looked_at = bounded.MAX_ROWS
                    places = by_cause.MAX_PROBES if order.leaves_out(queryset.db) else None
            else:
                found = in_state.order_by("-pk").values_list("pk", flat=True)
                moves = found.count()
                leaves = len(set(request.POST.getlist(ACTION_CHECKBOX_NAME))) - moves
            ids = list(found[:MAX_IN_REQUEST])
            some = {
                one.pk: one
                for one in rows.filter(pk__in=ids[:MAX_LISTED_TASKS]).only(
                    "task_name", "queue_name"
                )
            }
            examples = [some[one] for one in ids[:MAX_LISTED_TASKS] if one in some]
            return cls(moves, ids, examples, leaves, looked_at, places)


def page_of_request(site: str, request: HttpRequest, queryset: QuerySet[Task]) -> str:
    """Return the address of the task's page if its button was pressed there; empty = the action came from a list.

    The address is also empty if the task has no page any more, or none that the user may view.
    """
    chosen = request.POST.getlist(ACTION_CHECKBOX_NAME)
    if ON_PAGE not in request.POST or len(chosen) != 1:
        return ""
    page = page_of(queryset.select_for_update().db, chosen[0])
    may_view = page and request.user.has_perm(f"txtasks.view_{page.removesuffix('_change')}")
    return links.url(site, page, chosen[0]) if may_view else ""
