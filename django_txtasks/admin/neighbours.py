"""The tasks before and after a task in the list from which a person came."""

from __future__ import annotations

import copy
import uuid
from typing import Any

from django.contrib.admin.options import IncorrectLookupParameters
from django.core.exceptions import SuspiciousOperation
from django.http import HttpRequest, QueryDict

from django_txtasks.admin.bounded import BoundedList, first_rows, following_indexes

MAX_ROWS = 1_000
"""Rows of the list that are searched for the task."""


class Ids(BoundedList):
    """The ids of a list's first rows, and nothing else of it."""

    ids: list[uuid.UUID]

    def get_results(self, request: HttpRequest) -> None:
        """Read the ids."""
        with following_indexes(self.queryset.db):
            order = self.model_admin.read_order(self._chosen())  # type: ignore[attr-defined]
            self.ids = list(first_rows(self.queryset, order)[:MAX_ROWS])


def neighbours(pages: Any, request: HttpRequest, row: Any) -> tuple[Any, Any]:
    """Return the ids before and after a row; None = no such row, or no filtered list."""
    filters = request.GET.get("_changelist_filters")
    if filters is None:
        return None, None
    of_list = copy.copy(request)
    of_list.GET, of_list.kind_of_list = QueryDict(filters), Ids  # type: ignore[attr-defined]
    try:
        ids = pages.get_changelist_instance(of_list).ids
    except (IncorrectLookupParameters, SuspiciousOperation):  # the URL was written by hand
        return None, None
    place = ids.index(row.pk) if row.pk in ids else None
    if place is None:
        return None, None
    before, after = ids[place - 1 : place] if place else [], ids[place + 1 : place + 2]
    return next(iter(before), None), next(iter(after), None)
