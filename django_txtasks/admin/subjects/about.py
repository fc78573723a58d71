"""The business objects that a task is about, on the task's page in the admin."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any

from django.contrib import admin
from django.contrib.admin.utils import quote
from django.http import HttpRequest
from django.urls import reverse
from django.utils.translation import gettext_lazy as _

from django_txtasks.admin import links, shown
from django_txtasks.admin.base import ModelAdmin
from django_txtasks.features.links.subjects import model_named
from django_txtasks.models import FinishedTask, Link

MOST_OBJECTS = 20
MAX_MERGED = 20


class SubjectsOnPage(ModelAdmin):
    """The page of a task, with the objects that the task is about."""

    def get_object(
        self, request: HttpRequest, object_id: str, from_field: str | None = None
    ) -> Any:
        """Return the row, with the request in ``request``: users differ in the objects that they may view."""
        found = super().get_object(request, object_id, from_field)
        if found is not None:
            found.request = request
        return found

    @admin.display(description=_("about"))
    def subjects(self, task: Any) -> str:
        """Show the objects of the task, and the objects of the tasks that were merged into it."""
        ids = [task.pk, *self.merged_ids(task)]
        return objects_of(self.admin_site, task.request, task._state.db, ids)

    def merged_ids(self, task: Any) -> list[uuid.UUID]:
        """Return the newest tasks that were merged into this one, and one more; they are read once per page."""
        if not hasattr(task, "merged_ids"):
            rows = FinishedTask.objects.using(task._state.db).filter(merged_into=task.pk)
            newest = rows.order_by("-pk").values_list("pk", flat=True)
            task.merged_ids = list(newest[: MAX_MERGED + 1])
        return task.merged_ids  # type: ignore[no-any-return]


def objects_of(
    site: admin.AdminSite, request: HttpRequest, alias: str, ids: Sequence[uuid.UUID]
) -> str:
    """Return a line for each business object to which one of these tasks is linked.

    An object that this admin site has, and that the user may view, is a link to its page.
    """
    rows = Link.objects.using(alias).filter(task_id__in=ids)
    subjects = rows.order_by("subject_type", "subject_id").values_list("subject_type", "subject_id")
    found = list(subjects.distinct()[: MOST_OBJECTS + 1])
    return shown.first_of(found, MOST_OBJECTS, lambda subject: _shown(site, request, *subject))


def _shown(site: admin.AdminSite, request: HttpRequest, subject_type: str, subject_id: str) -> str:
    text = shown.line(f"{subject_type} {subject_id}")
    model = model_named(subject_type)
    pages = site._registry.get(model) if model is not None else None
    if model is None or pages is None:
        return text
    found: Any = pages.get_object(request, subject_id)
    if found is None or not pages.has_view_or_change_permission(request, found):
        return text
    address = reverse(
        f"admin:{model._meta.app_label}_{model._meta.model_name}_change",
        args=[quote(found.pk)],
        current_app=site.name,
    )
    return links.to(address, shown.line(f"{model._meta.verbose_name} {found}"))
