"""The admin pages of live tasks and finished tasks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.contrib import admin
from django.http import HttpRequest, HttpResponse
from django.template.loader import render_to_string
from django.utils.html import format_html, format_html_join
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from django_txtasks.admin import causes, fields, filters, numbers, shown
from django_txtasks.admin.actions import ACTS, TaskActions, may
from django_txtasks.admin.again import EnqueueAgain
from django_txtasks.admin.bounded import LAST_FINISHED, ReadOrder
from django_txtasks.admin.pages import TaskPages
from django_txtasks.admin.stacks import StackOnPage, StopOnPage, on_page
from django_txtasks.conf import get_config
from django_txtasks.core.ground.wording import span
from django_txtasks.features.progress.rows import progress_of
from django_txtasks.features.reports import names
from django_txtasks.models import FinishedTask, Outcome, Status, Task

ON_CAUSE = {"revive": _("Revive all"), "hold": _("Hold all"), "discard": _("Discard all")}
"""Actions with a button above the list of a cause."""


@admin.register(Task)
class TaskAdmin(TaskActions, StopOnPage, StackOnPage, EnqueueAgain, TaskPages):
    """Live tasks, newest first."""

    ordering = ("-pk",)  # ids begin with the time, so one index serves every page
    list_display = ("name", "state", "call", "last_error", "attempts", "queue", "due", "enqueued")
    json_columns = (*TaskPages.json_columns, "hooks")
    list_filter = (
        filters.StateFilter, filters.RunningFilter, filters.DueFilter, filters.QueueFilter, filters.LaneFilter,
        filters.TaskFilter, causes.CauseFilter, causes.ExceptionFilter, filters.TwiceFilter,
    )  # fmt: skip
    fieldsets = (
        (None, {"fields": (
            "full_name", "subjects", "state", "reasons", "progress", "worker_link", "cancel_asked",
        )}),
        (_("Arguments"), {"fields": ("arguments", "keywords")}),
        (_("Attempts"), {"fields": (
            "error_list", "cause_link", "timeline", "attempts", "snoozes", "late", "steps",
        )}),
        (_("Policy"), {"fields": (
            "queue", "in_lane", "priority", "batch_link", "on_crash", "time_limit", "hook_names", "unique",
            "merged",
        )}),
        (_("Times"), {"fields": ("enqueued_moment", "due_moment", "expiry", "started_moment", "notified")}),
        (_("People"), {"fields": ("history",)}),
    )  # fmt: skip
    expiry = fields.moment(_("expires"), "expires_at")
    cancel_asked = fields.moment(_("asked to stop"), "cancel_asked_at")
    unique = fields.line(_("unique key"), "unique_text")
    in_lane = fields.line(_("lane"), "lane")
    notified = fields.moment(_("last re-notified"), "notified_at")
    hook_names = fields.text(_("hooks"), "hooks", shown.hooks)

    def read_order(self, chosen: Mapping[str, Any]) -> ReadOrder:
        return causes.order_of_list(chosen)

    @admin.display(description=_("state"))
    def state(self, task: Any) -> str:
        """Show the state; for a claimed task also its running time and its host."""
        badge = shown.badge(task.status, task.get_status_display())
        if task.is_compensated:
            return format_html('{} <small class="quiet">{}</small>', badge, _("compensated"))
        if task.claimed_at is None:
            return badge
        since = span(task.now - task.claimed_at)
        where = shown.line(task.worker_host or str(task.worker)[:8], 30)
        kind = "txtasks-warning" if _runs_for_long(task) else "quiet"
        return format_html('{} <small class="{}">{}, {}</small>', badge, kind, since, where)

    @admin.display(description=_("explanation"))
    def reasons(self, task: Any) -> str:
        """Show the reasons why the task does not run, and the remedies, as ``txtasks_explain`` does."""
        from django_txtasks.insight.explain import explain  # imported by this page alone

        try:
            reasons = [on_page(task, one) for one in explain(task._state.db, task.pk)]
        except Exception as error:  # the rest of the page is still useful
            return shown.line(f"{type(error).__name__}: {error}")
        lines = ((one.text, one.lift) for one in reasons)
        return format_html_join("", '<div>{} <span class="quiet">{}</span></div>', lines)

    @admin.display(description=_("due"))
    def due(self, task: Any) -> str:
        """Show when a pending task may start; empty in other states."""
        return shown.age(task.run_after if task.status == Status.PENDING else None, task.now)

    @admin.display(description=_("attempts"))
    def attempts(self, task: Any) -> str:
        """Show the number of attempts, and failures and crashes with their limits."""
        return render_to_string("admin/txtasks/attempts.html", {"task": task})

    @admin.display(description=_("progress"))
    def progress(self, task: Any) -> str:
        """Show the latest progress of the running attempt."""
        return shown.progress(progress_of(task._state.db, task.pk))

    @admin.display(description=_("cause"))
    def cause_link(self, task: Any) -> str:
        """Show a link to the tasks of the same cause."""
        return causes.link(self.admin_site.name, task.cause)

    @admin.display(description=_("time limit"))
    def time_limit(self, task: Any) -> str:
        return shown.EMPTY if task.timeout is None else shown.in_seconds(task.timeout)

    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Warn above the list about waiting tasks whose name no living worker of their queue declares."""
        found = names.undeclared(self.get_queryset(request).db, get_config().queues)
        warning = names.sentence(found) if found else ""
        waits = request.GET.get("state") == Status.PENDING or "due" in request.GET
        if get_config().lanes and waits and "queue" in request.GET and "lane" not in request.GET:
            warning += gettext(" Tasks of lanes are not in this list: choose the lane.")
        about = causes.sentence(self.get_queryset(request).db, request.GET.get("cause"))
        acts = _acts_on_cause(request) if about else []
        context = {
            **(extra_context or {}), "warning": warning, "about": about, "all_acts": acts,
            "notes": [*numbers.notes(self.get_queryset(request).db)],
        }  # fmt: skip
        return super().changelist_view(request, context)

    def get_object(
        self, request: HttpRequest, object_id: str, from_field: str | None = None
    ) -> Any:
        """Return the row. Set ``is_undeclared`` if it is pending and no living worker of its queue declares
        its name.
        """
        found = super().get_object(request, object_id, from_field)
        if found is not None and found.status == Status.PENDING:
            declared = names.declared(found._state.db).get(found.queue_name)
            found.is_undeclared = declared is not None and found.task_name not in declared
        return found

    def render_change_form(
        self, request: HttpRequest, context: dict[str, Any], *args: Any, **kwargs: Any
    ) -> HttpResponse:
        """Add a button for each action that the task's state and the user's permissions allow."""
        task = context["original"]
        acts = [
            (name, act.button)
            for name, act in ACTS.items()
            if act.state == task.status and may(request, name)
            if not (act.barred and task.is_compensated)
            if not (name == "ask_to_stop" and task.cancel_asked_at is not None)
        ]
        return super().render_change_form(request, {**context, "acts": acts}, *args, **kwargs)


def _acts_on_cause(request: HttpRequest) -> list[tuple[str, Any]]:
    """Return the actions on all tasks of a cause that the user may do, and whose tasks the list can have."""
    state = request.GET.get("state")
    states = {name: {ACTS[name].state.value} for name in ON_CAUSE}
    states["hold"].add(numbers.RETRYING)
    return [
        (name, label)
        for name, label in ON_CAUSE.items()
        if may(request, name) and (not state or state in states[name])
    ]


def _runs_for_long(task: Any) -> bool:
    """Return True if the filter *running* would find this task."""
    if task.status != Status.CLAIMED or task.timeout is not None or task.started_at is None:
        return False
    return bool(task.now - task.started_at > get_config().long_running_after)


@admin.register(FinishedTask)
class FinishedTaskAdmin(EnqueueAgain, TaskPages):
    """Finished tasks, the last to finish first."""

    json_columns = (*TaskPages.json_columns, "result")
    ordering = ("-finished_at", "-pk")
    list_display = (
        "name",
        "ending",
        "call",
        "last_error",
        "attempt_number",
        "queue",
        "finished",
        "took",
    )
    list_filter = (
        filters.OutcomeFilter,
        filters.QueueFilter,
        filters.TaskFilter,
        filters.TwiceFilter,
    )
    fieldsets = (
        (None, {"fields": ("full_name", "subjects", "ending", "took", "merged_into_link", "worker_link")}),
        (_("Arguments"), {"fields": ("arguments", "keywords", "result_value")}),
        (_("Attempts"), {"fields": (
            "error_list", "timeline", "attempt", "failures", "crashes", "late", "steps",
        )}),
        (_("Policy"), {"fields": ("queue", "priority", "batch_link", "merged")}),
        (_("Times"), {"fields": ("enqueued_moment", "due_moment", "started_moment", "finished_moment")}),
        (_("People"), {"fields": ("history",)}),
    )  # fmt: skip
    finished = fields.age(_("finished"), "finished_at")
    finished_moment = fields.moment(_("finished"), "finished_at")
    result_value = fields.text(_("result"), "result", shown.json_block)

    def read_order(self, chosen: Mapping[str, Any]) -> ReadOrder:
        return LAST_FINISHED

    @admin.display(description=_("outcome"))
    def ending(self, task: Any) -> str:
        return shown.badge(task.outcome, task.get_outcome_display())

    @admin.display(description=_("attempts"))
    def attempt_number(self, task: Any) -> int:
        return int(task.attempt)

    @admin.display(description=_("took"))
    def took(self, task: Any) -> str:
        """Show the duration of the last attempt, if the task has succeeded."""
        ran = task.started_at is not None and task.outcome == Outcome.SUCCEEDED
        return shown.short_span(task.finished_at - task.started_at) if ran else shown.EMPTY

    @admin.display(description=_("merged into"))
    def merged_into_link(self, task: Any) -> str:
        """Show the task that ran instead, live or finished."""
        return self.task_link(task._state.db, task.merged_into)
