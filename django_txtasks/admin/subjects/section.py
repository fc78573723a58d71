"""The tasks of a business object, on its own page in the admin."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.contrib import admin
from django.http import HttpRequest
from django.utils.html import format_html, format_html_join
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from django_txtasks.admin import links, shown
from django_txtasks.admin.base import ModelAdmin
from django_txtasks.features.links.reading import links_of, tasks_of
from django_txtasks.models import DatabaseNow, FinishedTask, Link, Outcome, Status, Task

MOST_TASKS = 20
MOST_LINKS = 1_000
"""Newest links that a page reads. The user may not view most of their tasks, or the tasks may be gone."""
_FIELD = "txtasks_of_object"


class ShowsTasks(ModelAdmin):
    """A page of one business object with a section that lists its newest tasks. Derive your page from this class.

    The section lists live tasks for a user who may view tasks, and finished ones for a user who may view finished
    tasks. It writes nothing.
    """

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> list[Any]:
        """Add the field of the section."""
        return [*super().get_readonly_fields(request, obj), _FIELD]

    def get_fields(self, request: HttpRequest, obj: Any = None) -> list[Any]:
        """Leave the field of the section out, which has a fieldset of its own."""
        return [one for one in super().get_fields(request, obj) if one != _FIELD]

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> list[Any]:
        """Add the section, for a user who may view tasks."""
        fieldsets = list(super().get_fieldsets(request, obj))
        states = _visible_states(request)
        if obj is None or not states:
            return fieldsets
        obj.txtasks_states = states
        return [*fieldsets, (_("Tasks"), {"fields": (_FIELD,)})]

    @admin.display(description=_("newest tasks"))
    def txtasks_of_object(self, obj: Any) -> str:
        """Show a line for each of the newest tasks: its function, its state and its age."""
        found = tasks_of(obj).filter(task_state__in=obj.txtasks_states)
        ids = links_of(obj).values_list("task_id", flat=True)
        too_old = list(ids[MOST_LINKS : MOST_LINKS + 1])
        if too_old:
            found = found.filter(task_id__gt=too_old[0])
        newest = list(found[: MOST_TASKS + 1])
        lines = format_html_join(
            "",
            '<div>{} {} <span class="quiet">{}</span></div>',
            _lines(self.admin_site.name, found.db, newest[:MOST_TASKS]),
        )
        more = gettext("and others") if too_old or len(newest) > MOST_TASKS else ""
        return format_html("{}{}", lines, more) or shown.EMPTY


def _visible_states(request: HttpRequest) -> list[str]:
    """Return the states of tasks whose pages the user may view."""
    states: list[str] = []
    if request.user.has_perm("txtasks.view_task"):
        states += Status.values
    if request.user.has_perm("txtasks.view_finishedtask"):
        states += Outcome.values
    return states


def _lines(site: str, alias: str, found: Sequence[Any]) -> list[tuple[str, str, str]]:
    # In this order, so that a task which finishes between the two statements is found.
    pages = [("task_change", Task), ("finishedtask_change", FinishedTask)]
    ids = [link.task_id for link in found]
    rows = {
        row.pk: (page, row)
        for page, model in pages
        for row in model._default_manager.using(alias)
        .filter(pk__in=ids)
        .annotate(now=DatabaseNow())
        .only("enqueued_at")
    }
    return [_line(site, link, *rows[link.task_id]) for link in found if link.task_id in rows]


def _line(site: str, link: Link, page: str, row: Any) -> tuple[str, str, str]:
    task: Any = link
    name = links.to(links.url(site, page, row.pk), shown.line(task.task_name))
    return name, shown.state(task.task_state), shown.age(row.enqueued_at, row.now)
