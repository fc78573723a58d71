"""The page of one task: fields that are not empty, and links to the tasks beside it in the list."""

from __future__ import annotations

import copy
import uuid
from collections.abc import Callable
from typing import Any

from django.contrib.admin.options import IncorrectLookupParameters
from django.core.exceptions import SuspiciousOperation
from django.http import HttpRequest, HttpResponse, QueryDict
from django.urls import reverse
from django.utils.translation import gettext_lazy as _

from django_txtasks.admin import fields, links, shown
from django_txtasks.admin.base import ModelAdmin
from django_txtasks.admin.bounded import BoundedList, first_rows, following_indexes
from django_txtasks.database import side_tables

MAX_ROWS = 1_000
"""Rows of the list that are searched for the task."""
ALWAYS_SHOWN = {"priority", "arguments"}
_EMPTY = {"", shown.EMPTY, "<pre>{}</pre>"}


class Ids(BoundedList):
    """The ids of a list's first rows, and nothing else of it."""

    ids: list[uuid.UUID]

    def get_results(self, request: HttpRequest) -> None:
        """Read the ids."""
        with following_indexes(self.queryset.db):
            order = self.model_admin.read_order(self._chosen())  # type: ignore[attr-defined]
            self.ids = list(first_rows(self.queryset, order)[:MAX_ROWS])


class OneTask(ModelAdmin):
    """The page of one task: fields that are not empty, its times, and links to the tasks beside it in the list."""

    enqueued = fields.age(_("enqueued"), "enqueued_at")
    enqueued_moment = fields.moment(_("enqueued"), "enqueued_at")
    due_moment = fields.moment(_("due"), "run_after")
    started_moment = fields.moment(_("started"), "started_at")

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:
        """Leave empty fields out."""
        fieldsets: Any = super().get_fieldsets(request, obj)
        if obj is None:
            return fieldsets
        if not hasattr(obj, "fieldsets"):  # Django asks several times
            obj.fieldsets = self._without_empty(obj, fieldsets)
        return obj.fieldsets

    def _without_empty(self, row: Any, fieldsets: Any) -> list[Any]:
        """Return fieldsets without empty fields. Methods are replaced by functions with their values."""
        found = []
        for title, options in fieldsets:
            kept = [one for name in options["fields"] if (one := self._kept(row, name)) is not None]
            if kept:
                found.append((title, {**options, "fields": kept}))
        return found

    def _kept(self, row: Any, field: Any) -> Any:
        """Return the field, or the function that replaces it; None = it is empty."""
        method = getattr(self, field, None) if isinstance(field, str) else None
        if method is None:
            is_shown = (
                not isinstance(field, str) or field in ALWAYS_SHOWN or getattr(row, field, True)
            )
            return field if is_shown else None
        value = method(row)
        if field not in ALWAYS_SHOWN and value in _EMPTY:
            return None
        return _constant(field, method, value)

    def render_change_form(
        self, request: HttpRequest, context: dict[str, Any], *args: Any, **kwargs: Any
    ) -> HttpResponse:
        """Add links to the tasks before and after this one, and to its rows in other apps."""
        task = context["original"]
        before, after = self._neighbours(request, task)
        urls: dict[str, Any] = {"before": self._page_of(before), "after": self._page_of(after)}
        urls["beside"] = [
            (one.label, f"{url}?task={task.pk}")
            for one in side_tables.shown_beside(task._state.db, task.pk)
            if (url := links.url(self.admin_site.name, one.page))
        ]
        context = {**context, **urls}
        return super().render_change_form(request, context, *args, **kwargs)

    def _neighbours(self, request: HttpRequest, row: Any) -> tuple[Any, Any]:
        """Return the ids before and after a row; None = no such row, or no filtered list."""
        filters = request.GET.get("_changelist_filters")
        if filters is None:
            return None, None
        of_list: Any = copy.copy(request)
        of_list.GET, of_list.kind_of_list = QueryDict(filters), Ids
        try:
            ids: list[Any] = self.get_changelist_instance(of_list).ids  # type: ignore[attr-defined]
        except (IncorrectLookupParameters, SuspiciousOperation):  # the URL was written by hand
            return None, None
        if row.pk not in ids:
            return None, None
        place = ids.index(row.pk)
        before, after = ids[place - 1 : place] if place else [], ids[place + 1 : place + 2]
        return next(iter(before), None), next(iter(after), None)

    def _page_of(self, task_id: Any) -> str:
        name = f"admin:{self.opts.app_label}_{self.opts.model_name}_change"
        return reverse(name, args=[task_id], current_app=self.admin_site.name) if task_id else ""


def _constant(name: str, method: Any, value: Any) -> Callable[[Any], Any]:
    def field(row: Any) -> Any:
        return value

    field.__name__ = name  # the class of its element
    field.short_description = getattr(method, "short_description", name)  # type: ignore[attr-defined]
    return field
