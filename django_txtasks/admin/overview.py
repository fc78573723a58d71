"""The page *At a glance*: all that matters now, with the button that ends each problem."""

from __future__ import annotations

from typing import Any

import django
from django.contrib import admin, messages
from django.contrib.admin.models import ADDITION, DELETION, LogEntry
from django.core.exceptions import BadRequest, PermissionDenied
from django.db import DatabaseError, connections, router
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from django_txtasks.admin.base import ASKED, live_part
from django_txtasks.admin.pages import ReadOnly
from django_txtasks.conf import get_config
from django_txtasks.database.errors import text_of
from django_txtasks.models import Overview, PausedQueue, Task
from django_txtasks.operations import pausing

REFRESH_SECONDS = 5


@admin.register(Overview)
class OverviewAdmin(ReadOnly):
    """A page in the place of a list. A user who may view tasks may open it."""

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return request.user.has_perm("txtasks.view_task")

    def has_module_permission(self, request: HttpRequest) -> bool:
        return self.has_view_permission(request)

    def get_object(
        self, request: HttpRequest, object_id: str, from_field: str | None = None
    ) -> Any:
        """Return None: the overview has no rows of its own."""

    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Show the page, or only its body with ``?fragment=1``; a POST pauses or resumes a queue."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        alias = request.GET.get("db") or router.db_for_read(Task)
        if alias not in connections:
            raise BadRequest("There is no such database.")
        if request.method == "POST":
            if alias != router.db_for_write(PausedQueue):
                raise BadRequest("The buttons belong to another database.")
            return self._act(request)
        context = {
            **self.admin_site.each_context(request),
            **_shown(request, alias, self.admin_site.name),
            "title": _("Tasks at a glance"),
            "opts": self.opts,
            "breadcrumbs_are_a_list": django.VERSION >= (6, 1),
            "refresh_seconds": REFRESH_SECONDS,
            **live_part(request, f"overview {alias}", REFRESH_SECONDS),
            "other_database": request.GET.get("db", ""),
            **(extra_context or {}),
        }
        name = "glance_part" if ASKED in request.GET else "glance"
        request.current_app = self.admin_site.name
        response = TemplateResponse(request, f"admin/txtasks/{name}.html", context)
        response["Cache-Control"] = "no-store"
        return response

    def _act(self, request: HttpRequest) -> HttpResponse:
        """Pause or resume the queue that a button names, and log who did it, as the page of paused queues does."""
        alias = router.db_for_write(PausedQueue)
        by = request.user.get_username()
        if queue := request.POST.get("pause"):
            _need(request, "add_pausedqueue")
            if queue not in get_config().queues:
                raise BadRequest("There is no such queue in TXTASKS['queues'].")
            if pausing.pause(alias, queue, by=by):
                _log(request, queue, ADDITION)
            messages.success(request, gettext("Queue %(queue)s is paused.") % {"queue": queue})
        elif queue := request.POST.get("resume"):
            _need(request, "delete_pausedqueue")
            if "\0" not in queue and pausing.resume(alias, queue, by=by):
                _log(request, queue, DELETION)
            messages.success(request, gettext("Queue %(queue)s is resumed.") % {"queue": queue})
        else:
            raise BadRequest("The form names no queue.")
        from django_txtasks.overview import overview  # imported by this page alone

        overview(alias, max_age=0)  # so that the page shows the change
        return HttpResponseRedirect(request.get_full_path())


def _need(request: HttpRequest, permission: str) -> None:
    if not request.user.has_perm(f"txtasks.{permission}"):
        raise PermissionDenied


def _log(request: HttpRequest, queue: str, flag: int) -> None:
    rows: Any = [PausedQueue(pk=queue)]
    LogEntry.objects.log_actions(request.user.pk, rows, flag)  # type: ignore[arg-type]


def _shown(request: HttpRequest, alias: str, site: str) -> dict[str, Any]:
    """Return the parts of the page; only the error if the database does not answer."""
    from django_txtasks.admin import glance  # they are imported by this page alone
    from django_txtasks.overview import overview

    try:
        found = overview(alias)
        span = request.GET.get("span", "")
        return {"glance": glance.context_of(found, request.user, site, span)}
    except DatabaseError as error:
        connections[alias].close_if_unusable_or_obsolete()
        return {"error": text_of(error)}
