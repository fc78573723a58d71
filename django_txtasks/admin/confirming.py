"""The confirmation page of an action that cannot be undone."""

from __future__ import annotations

from typing import NamedTuple

from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.db.models import QuerySet
from django.http import HttpRequest

from django_txtasks.admin import bounded
from django_txtasks.admin.bounded import (
    first_rows,
    following_indexes,
    has_more_rows,
)
from django_txtasks.admin.causes import order_of_list
from django_txtasks.admin.filters import RETRYING
from django_txtasks.models import Status, Task

MAX_LISTED_TASKS = 20
"""Highest number of tasks that the page lists."""


class Chosen(NamedTuple):
    """The tasks that an action would move, with some examples, and the number that it would leave unchanged.

    Attributes:
        moves: number of tasks; counts only the rows that were read, if there are more.
        leaves: selected tasks in another state; None if all pages are selected, because these are not counted.
        looked_at: number of rows that were read; None if all rows were read.
    """

    moves: int
    examples: list[Task]
    leaves: int | None
    looked_at: int | None

    @classmethod
    def of(
        cls, request: HttpRequest, queryset: QuerySet[Task], state: Status, *, is_id: bool
    ) -> Chosen:
        """Count the selected tasks; if all pages are selected, the first rows of the list.

        Args:
            is_id: True if the list is the result of a search for one id.
        """
        in_state = queryset.filter(status=state)
        rows = queryset.model._default_manager.using(queryset.db).order_by()
        leaves = looked_at = None
        with following_indexes(queryset.db):
            if request.POST.get("select_across") == "1" and not is_id:
                is_retrying = request.GET.get("state") == RETRYING
                chosen = {**request.GET.dict(), "state": RETRYING if is_retrying else state}
                order = order_of_list(chosen)
                ids = first_rows(in_state, order)
                found = ids.count()
                if has_more_rows(rows, order):
                    looked_at = bounded.MAX_ROWS
            else:
                ids = in_state.order_by("-pk").values_list("pk", flat=True)
                found = ids.count()
                leaves = len(set(request.POST.getlist(ACTION_CHECKBOX_NAME))) - found
            examples = rows.filter(pk__in=list(ids[:MAX_LISTED_TASKS])).only(
                "task_name", "queue_name"
            )
            return cls(found, list(examples), leaves, looked_at)
