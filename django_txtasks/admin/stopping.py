"""The page of a running task that was asked to stop: it loads itself again, and leads to the end of the task."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from django.contrib import admin
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.utils.translation import gettext as _

from django_txtasks.admin import links
from django_txtasks.admin.actions import may
from django_txtasks.admin.pages import page_of
from django_txtasks.admin.stacks import RELOAD_SECONDS
from django_txtasks.cancel_requests import UNHEARD_AFTER
from django_txtasks.models import FinishedTask, Status

if TYPE_CHECKING:
    from django_txtasks.inspection.explain import Reason

    Base = admin.ModelAdmin[Any]
else:
    Base = object


class StopOnPage(Base):
    """The page of a live task: it follows the task until the task has stopped, or is known not to look."""

    def render_change_form(
        self, request: HttpRequest, context: dict[str, Any], *args: Any, **kwargs: Any
    ) -> HttpResponse:
        """While the task has time to stop, let the browser load the page again, also without JavaScript."""
        response = super().render_change_form(request, context, *args, **kwargs)
        if _may_stop_soon(context["original"]):
            response.headers["Refresh"] = str(RELOAD_SECONDS)
        return response

    def _get_obj_does_not_exist_redirect(
        self, request: HttpRequest, opts: Any, object_id: str
    ) -> HttpResponse:
        """Lead to the page of the finished task: it may have ended while its page was open."""
        alias = self.get_queryset(request).db
        if self._is_key(object_id) and request.user.has_perm("txtasks.view_finishedtask"):  # type: ignore[attr-defined]
            page = page_of(alias, object_id, [(FinishedTask, "finishedtask")])
            if url := page and links.url(self.admin_site.name, page, object_id):
                return HttpResponseRedirect(url)
        return super()._get_obj_does_not_exist_redirect(request, opts, object_id)  # type: ignore[misc,no-any-return]


def on_page(task: Any, reason: Reason) -> Reason:
    """Return a reason with what a person can do on the task's page, and with what the page does."""
    from django_txtasks.inspection.explain import stop_command

    if reason.gate == "claimed" and may(task.request, "ask_to_stop"):
        text = _("To stop it, press “Ask to stop” on this page, or run %(command)s.")
        return replace(reason, lift=text % {"command": stop_command(task._state.db, task.pk)})
    if reason.gate == "asked" and _may_stop_soon(task):
        text = _(
            "This page loads itself again. If the task still runs %(n)s s after the request, the page says how to "
            "end it."
        )
        after = f"{UNHEARD_AFTER.total_seconds():g}"
        return replace(reason, lift=f"{reason.lift} {text % {'n': after}}")
    return reason


def _may_stop_soon(task: Any) -> bool:
    """Return True if a running task was asked to stop, and has not had the time to do so."""
    if task.status != Status.CLAIMED or task.cancel_asked_at is None:
        return False
    return bool(task.now - task.cancel_asked_at < UNHEARD_AFTER)
