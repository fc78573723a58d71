"""The page that enqueues the call of an ended task again, as a new task, also with other arguments."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import django
from django.contrib import admin, messages
from django.contrib.admin.models import ADDITION, LogEntry
from django.db import transaction
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import path, reverse
from django.utils.translation import gettext as _now

from django_txtasks import signals
from django_txtasks.admin import shown
from django_txtasks.admin.actions import may
from django_txtasks.admin.columns import parse
from django_txtasks.exceptions import TxTasksError
from django_txtasks.features.redaction.declaring import REDACTED
from django_txtasks.models import Status, Task

if TYPE_CHECKING:
    Base = admin.ModelAdmin[Any]
else:
    Base = object


class EnqueueAgain(Base):
    """Adds the page, for users with the permission ``again_task``."""

    def get_urls(self) -> list[Any]:
        """Add the URL of the page."""
        view = self.admin_site.admin_view(self.enqueue_again)
        return [
            path("<path:object_id>/again/", view, name=self._name_of_again),
            *super().get_urls(),
        ]

    @property
    def _name_of_again(self) -> str:
        return f"{self.opts.app_label}_{self.opts.model_name}_again"

    def enqueue_again(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Show the arguments, or enqueue a new task with what a person has made of them."""
        task = self.get_object(request, object_id)
        if task is None:
            return self._get_obj_does_not_exist_redirect(request, self.opts, object_id)  # type: ignore[attr-defined,no-any-return]
        if not (self.has_view_permission(request, task) and may(request, "again")):
            return HttpResponse(_now("You may not enqueue tasks again."), status=403)
        texts = task.texts.get("args"), task.texts.get("kwargs")
        try:
            seen = shown.call_values(*texts, task.task_name)
            typed = [
                request.POST.get(name, _json(one)) for name, one in zip(NAMES, seen, strict=True)
            ]
            if request.method == "POST":
                values = [
                    restored(json.loads(new), one, parse(old))
                    for new, one, old in zip(typed, seen, texts, strict=True)
                ]
                return self._enqueue(request, task, *values)
        except (TxTasksError, ValueError, RecursionError) as error:
            self.message_user(
                request, shown.line(f"{type(error).__name__}: {error}"), messages.ERROR
            )
            typed = [request.POST.get(name, "") for name in NAMES]
        context = {
            **self.admin_site.each_context(request),
            "title": _now("Enqueue again"), "opts": self.opts, "task": task, "typed": typed,
            "back": self._page(self.opts.model_name, task.pk), "redacted": REDACTED,
            "breadcrumbs_are_a_list": django.VERSION >= (6, 1),
        }  # fmt: skip
        return TemplateResponse(request, "admin/txtasks/again.html", context)

    def _enqueue(self, request: HttpRequest, task: Any, args: Any, kwargs: Any) -> HttpResponse:
        from django_txtasks.operations.again import with_arguments

        alias = (
            type(task).objects.select_for_update().db
        )  # the primary, even if pages read a replica
        with transaction.atomic(using=alias):
            handle = with_arguments(alias, task.pk, args, kwargs)
            new: Any = [Task(id=handle.id, task_name=task.task_name)]
            said = _now("Enqueued again, as task %(id)s was.") % {"id": task.pk}
            LogEntry.objects.log_actions(request.user.pk, new, ADDITION, said)  # type: ignore[arg-type]
        signals.tasks_operated.emit(
            verb="again", changed=1, choice=str(task.pk), by=request.user.get_username()
        )
        self.message_user(request, _now("This is the new task."), messages.SUCCESS)
        return HttpResponseRedirect(self._page("task", handle.id))

    def _page(self, model: str | None, task_id: Any) -> str:
        name = f"admin:{self.opts.app_label}_{model}_change"
        return reverse(name, args=[task_id], current_app=self.admin_site.name)

    def render_change_form(
        self, request: HttpRequest, context: dict[str, Any], *args: Any, **kwargs: Any
    ) -> HttpResponse:
        """Add a link to the page, if the task has ended."""
        task = context["original"]
        if getattr(task, "status", Status.DEAD) == Status.DEAD and may(request, "again"):
            name = f"admin:{self._name_of_again}"
            url = reverse(name, args=[task.pk], current_app=self.admin_site.name)
            context = {**context, "again_url": url}
        return super().render_change_form(request, context, *args, **kwargs)


NAMES = ("args", "kwargs")


def restored(new: Any, seen: Any, old: Any) -> Any:
    """Return a typed value, in which redacted parts that were left alone have their old values.

    Args:
        seen: the old value as the page has shown it.

    Raises:
        ValueError: a redacted text is in another place, so its old value is unknown.
    """
    if new == seen:
        return old
    if isinstance(new, dict) and isinstance(seen, dict):
        return {key: restored(item, seen.get(key), old.get(key)) for key, item in new.items()}
    if isinstance(new, list) and isinstance(seen, list):
        beside = zip(seen, old, strict=True)
        return [restored(item, *next(beside, (None, None))) for item in new]
    if str(REDACTED) in json.dumps(new, ensure_ascii=False):
        raise ValueError(
            _now("%(text)s stands where it did not stand before. Type the value.")
            % {"text": REDACTED}
        )
    return new


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, indent=2)
