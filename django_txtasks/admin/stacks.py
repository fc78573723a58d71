"""The page of a running task: a button that asks for its stack, the answer, and how the task stops."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from django.contrib import admin, messages
from django.http import HttpRequest, HttpResponse, HttpResponseNotAllowed, HttpResponseRedirect
from django.urls import path, reverse
from django.utils.html import format_html
from django.utils.translation import gettext as _now
from django.utils.translation import gettext_lazy as _

from django_txtasks.admin import links, shown
from django_txtasks.admin.actions import may
from django_txtasks.admin.base import LivePage
from django_txtasks.admin.pages import page_of
from django_txtasks.core.ground.cancel_requests import UNHEARD_AFTER
from django_txtasks.exceptions import NotRunning
from django_txtasks.models import FinishedTask, Status

if TYPE_CHECKING:
    from django_txtasks.features.stacks.requests import StackAnswer
    from django_txtasks.insight.explain import Reason


class StackOnPage(LivePage):
    """Adds to a task's page what a user with the permission ``look_into_task`` may see and ask."""

    def get_urls(self) -> list[Any]:
        """Add the URL of the button."""
        view = self.admin_site.admin_view(self.ask_for_stack)
        return [path("<path:object_id>/stack/", view, name=self._url_name), *super().get_urls()]

    @property
    def _url_name(self) -> str:
        return f"{self.opts.app_label}_{self.opts.model_name}_stack"

    def ask_for_stack(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Ask the worker of a running task for its stack, and show the task's page again."""
        if request.method != "POST":
            return HttpResponseNotAllowed(["POST"])
        task = self.get_object(request, object_id)
        if task is None:
            return self._get_obj_does_not_exist_redirect(request, self.opts, object_id)  # type: ignore[attr-defined,no-any-return]
        if not (self.has_view_permission(request, task) and may(request, "look_into")):
            return HttpResponse(_now("You may not see the stack of running tasks."), status=403)
        from django_txtasks.features.stacks.requests import request_stack

        alias = (
            type(task).objects.select_for_update().db
        )  # the primary, even if pages read a replica
        try:
            request_stack(task.pk, using=alias, by=request.user.get_username())
        except NotRunning as error:
            self.message_user(request, shown.line(str(error)), messages.WARNING)
        else:
            self.log_change(request, task, _now("Asked for its stack."))
        page = f"admin:{self.opts.app_label}_{self.opts.model_name}_change"
        return HttpResponseRedirect(reverse(page, args=[task.pk], current_app=self.admin_site.name))

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:
        """Add the answer, if the user may see it and there is a request."""
        fieldsets = super().get_fieldsets(request, obj)
        if obj is None or not may(request, "look_into") or _last_answer(obj) is None:
            return fieldsets
        first, *others = fieldsets
        return [first, (_("Stack"), {"fields": ("stack",)}), *others]

    def render_change_form(
        self, request: HttpRequest, context: dict[str, Any], *args: Any, **kwargs: Any
    ) -> HttpResponse:
        """Add the button."""
        task = context["original"]
        if may(request, "look_into") and task.status == Status.CLAIMED:
            url = reverse(
                f"admin:{self._url_name}", args=[task.pk], current_app=self.admin_site.name
            )
            context = {**context, "stack_url": url}
        return super().render_change_form(request, context, *args, **kwargs)

    def is_awaited(self, request: HttpRequest, row: Any) -> bool:
        """Return True while the stack is awaited, too."""
        answer = _last_answer(row) if may(request, "look_into") else None
        return super().is_awaited(request, row) or (answer is not None and answer.is_awaited)

    @admin.display(description=_("where it is"))
    def stack(self, task: Any) -> str:
        """Show the last answer, or the reason why it is missing."""
        answer = _last_answer(task)
        if answer is None:
            return shown.EMPTY
        asked = _now("Asked by %(who)s, attempt %(attempt)s:") % {
            "who": shown.line(answer.asked_by) or "?", "attempt": answer.attempt,
        }  # fmt: skip
        said = _now("there is no answer yet; this page loads itself again.")
        if answer.answered_at is not None:
            said = shown.moment(answer.answered_at, task.now)
        elif answer.trouble:
            said = ""
        trouble = format_html(
            '<div class="txtasks-warning">{}</div>', shown.line(answer.trouble, 2000)
        )
        return format_html(
            "<div>{} {}</div>{}{}",
            asked, said, trouble if answer.trouble else "",
            format_html("<pre>{}</pre>", answer.text) if answer.text else "",
        )  # fmt: skip


class StopOnPage(LivePage):
    """The page of a live task: it follows the task until the task has stopped, or is known not to look."""

    def is_awaited(self, request: HttpRequest, row: Any) -> bool:
        """Return True while a task has time to stop, too."""
        return _may_stop_soon(row) or super().is_awaited(request, row)

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
    from django_txtasks.insight.explain import stop_command

    if reason.gate == "claimed" and may(task.request, "ask_to_stop"):
        text = _now("To stop it, press “Ask to stop” on this page, or run %(command)s.")
        return replace(reason, lift=text % {"command": stop_command(task._state.db, task.pk)})
    if reason.gate == "asked" and _may_stop_soon(task):
        text = _now(
            "This page loads itself again. If the task still runs %(n)s s after the request, the page says how to "
            "end it."
        )
        after = f"{UNHEARD_AFTER.total_seconds():g}"
        return replace(reason, lift=f"{reason.lift} {text % {'n': after}}")
    return reason


def _may_stop_soon(task: Any) -> bool:
    """Return True if a running task was asked to stop only a moment ago."""
    if task.status != Status.CLAIMED or task.cancel_asked_at is None:
        return False
    return bool(task.now - task.cancel_asked_at < UNHEARD_AFTER)


def _last_answer(task: Any) -> StackAnswer | None:
    """Return the last request for the stack of a task; it is read once per page."""
    if not hasattr(task, "stack_answer"):
        from django_txtasks.features.stacks.requests import stack_of

        task.stack_answer = stack_of(task.pk, using=task._state.db)
    return task.stack_answer  # type: ignore[no-any-return]
