"""What a person is shown before an action that cannot be taken back."""

from __future__ import annotations

from dataclasses import dataclass

from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.db.models import QuerySet
from django.http import HttpRequest

from django_txtasks.admin import bounded
from django_txtasks.admin.bounded import (
    CappedCount,
    first_rows,
    following_indexes,
    order_of_tasks,
)
from django_txtasks.models import Status, Task

EXAMPLES = 20
"""Tasks that are listed."""


@dataclass(frozen=True)
class Chosen:
    """What an action would do: how many tasks it moves, a few of them, and how many it leaves alone.

    Attributes:
        moves: a number, or "at least so many" of all that match a filter.
        leaves: selected ones in another state; None = those of all pages are not counted.
    """

    moves: int
    examples: list[Task]
    leaves: int | None

    @classmethod
    def of(cls, request: HttpRequest, queryset: QuerySet[Task], state: Status) -> Chosen:
        """Look at the tasks that were selected, or at the first of all that match."""
        in_state = queryset.filter(status=state)
        rows = queryset.model._default_manager.using(queryset.db).order_by()
        with following_indexes(queryset.db):
            if request.POST.get("select_across") == "1":
                order = order_of_tasks({"state": state})
                ids = first_rows(in_state, order)
                found = min(ids.count(), bounded.MOST)
                if first_rows(rows, order).order_by().count() > bounded.MOST:
                    found = CappedCount(found)
                leaves = None
            else:
                ids = in_state.order_by("-pk").values_list("pk", flat=True)
                found = ids.count()
                leaves = len(set(request.POST.getlist(ACTION_CHECKBOX_NAME))) - found
            examples = rows.filter(pk__in=list(ids[:EXAMPLES])).only("task_name", "queue_name")
            return cls(found, list(examples), leaves)
