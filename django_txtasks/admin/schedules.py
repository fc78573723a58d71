"""The admin page of schedules: their ticks and last tasks; turn on and off, run now, change."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

from django import forms
from django.contrib import admin, messages
from django.contrib.admin.helpers import ActionForm
from django.core.exceptions import ValidationError
from django.db import IntegrityError, router
from django.db.models import QuerySet
from django.forms.fields import InvalidJSONInput
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.utils.html import format_html, format_html_join
from django.utils.translation import gettext as _now
from django.utils.translation import gettext_lazy as _

from django_txtasks.admin import fields, links, shown
from django_txtasks.admin.pages import Pages, PagesWithStatus
from django_txtasks.conf import get_config
from django_txtasks.core.declaring import registry
from django_txtasks.core.ground.wording import span
from django_txtasks.exceptions import InvalidSchedule, TxTasksError
from django_txtasks.features.results.task_states import DONE
from django_txtasks.features.schedules.code_versions import CONFIGURATION
from django_txtasks.models import FinishedTask, Schedule, Status, Task

if TYPE_CHECKING:
    from django_txtasks.features.schedules.status import ScheduleStatus

LONGEST_REASON = 200
"""Characters of a reason for turning a schedule off."""
READ_ONLY = ("state", "next_times", "last", "origin")


class Arguments(forms.JSONField):
    """A JSON field that reports unreadable JSON in words, and shows the user's text again unchanged."""

    def to_python(self, value: Any) -> Any:
        """Return the value. Raise ValidationError also for too many digits or too deep nesting."""
        try:
            return super().to_python(value)
        except RecursionError:
            raise ValidationError(_("It is nested too deeply.")) from None
        except ValueError as error:  # Python refuses numbers of more than 4,300 digits
            raise ValidationError(str(error)) from None

    def bound_data(self, data: Any, initial: Any) -> Any:
        return initial if data is None else InvalidJSONInput(data)


class ScheduleForm(forms.ModelForm):  # type: ignore[type-arg]
    """The options of ``@periodic``, with the same checks."""

    task_name = forms.ChoiceField(label=_("task"))
    queue_name = forms.ChoiceField(label=_("queue"))

    class Meta:
        model = Schedule
        fields = ("name", *CONFIGURATION)
        field_classes = dict.fromkeys(("args", "kwargs"), Arguments)
        widgets = {name: forms.Textarea(attrs={"rows": 3}) for name in ("args", "kwargs")}

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        row = self.instance
        choices = {"task_name": registry.names(), "queue_name": get_config().queues}
        if row._state.adding:
            self.initial = {
                "args": [],
                "kwargs": {},
                "tz": "UTC",
                "catch_up": "last",
                **self.initial,
            }
        for name, known in choices.items():
            if name in self.fields:
                own = [] if row._state.adding else [getattr(row, name)]
                names = sorted({*known, *own})
                self.fields[name].choices = [(one, one) for one in names]  # type: ignore[attr-defined]
        for one in self.fields.values():  # empty if the user may only view
            one.show_hidden_initial = not row._state.adding  # keeps other users' changes

    def clean(self) -> dict[str, Any]:
        """Refuse what ``@periodic`` would refuse."""
        cleaned: dict[str, Any] = super().clean() or {}
        for name, empty in (("args", list), ("kwargs", dict)):
            if name in cleaned and cleaned[name] is None:
                cleaned[name] = empty()
        if not self.errors:
            from django_txtasks.features.schedules.periodic import DeclaredSchedule, check

            name = cleaned.get("name") or self.instance.pk
            try:
                check(DeclaredSchedule(name=name, **{key: cleaned[key] for key in CONFIGURATION}))
            except TxTasksError as error:
                self.add_error(None, str(error))
        return cleaned


class ActionWithReason(ActionForm):
    """The menu of actions, with a reason for turning schedules off."""

    reason = forms.CharField(
        required=False, max_length=LONGEST_REASON, label=_("Reason for turning off")
    )


class ScheduleActions(Pages):
    """The actions of the list of schedules."""

    action_form = ActionWithReason

    @admin.action(description=_("Turn on"), permissions=["change"])
    def turn_on(self, request: HttpRequest, chosen: QuerySet[Any]) -> None:
        from django_txtasks.features.schedules.changes import enable

        self._do(request, chosen, enable, _now("turned on"))

    @admin.action(description=_("Turn off"), permissions=["change"])
    def turn_off(self, request: HttpRequest, chosen: QuerySet[Any]) -> None:
        """Turn the schedules off; the admin's log keeps the reason, which others see with the schedule."""
        from django_txtasks.features.schedules.changes import disable
        from django_txtasks.features.schedules.off import said_when_off

        reason = request.POST.get("reason", "").strip()[:LONGEST_REASON]
        self._do(request, chosen, partial(disable, reason=reason), said_when_off(reason))

    @admin.action(description=_("Run now"), permissions=["change"])
    def run_now(self, request: HttpRequest, chosen: QuerySet[Any]) -> None:
        """Enqueue a task of each chosen schedule, regardless of its ticks."""
        from django_txtasks.features.schedules.periodic import run_now

        self._do(request, chosen, lambda alias, name, *, keep, by: run_now(alias, name, by=by),
                 _now("runs now"))  # fmt: skip

    @admin.action(description=_("Follow the code again"), permissions=["change"])
    def follow_code(self, request: HttpRequest, chosen: QuerySet[Any]) -> None:
        """Undo the changes that people made to schedules of the code."""
        from django_txtasks.features.schedules import changes, periodic

        def follow(alias: str, name: str, *, keep: bool, by: str) -> bool:
            declared = periodic.declared(alias).get(name)
            if declared is None:
                return False
            changes.follow_code(alias, name, declared, keep=keep, by=by)
            return True

        self._do(request, chosen, follow, _now("as in the code"))

    @admin.action(
        description=_("Delete the selected schedules that people added"), permissions=["delete"]
    )
    def delete_selected(self, request: HttpRequest, chosen: QuerySet[Any]) -> None:
        """Delete schedules that people added. The method's name makes it replace Django's delete action."""
        for row in chosen.filter(from_code=False):
            self.log_deletions(request, chosen.filter(pk=row.pk))
            self.delete_model(request, row)
            self.message_user(request, _now("%(name)s: deleted") % {"name": shown.line(row.pk)})

    def _do(
        self, request: HttpRequest, chosen: QuerySet[Any], change: Callable[..., Any], what: str
    ) -> None:
        alias, by = router.db_for_write(Schedule), request.user.get_username()
        for row in chosen:
            try:
                is_done = change(alias, row.pk, keep=get_config().keeps("cancelled"), by=by)
            except TxTasksError as error:
                self.message_user(request, f"{shown.line(row.pk)}: {error}", messages.ERROR)
                continue
            if is_done:
                self.log_change(request, row, what)
                self.message_user(request, f"{shown.line(row.pk)}: {shown.line(what)}")


class ScheduleColumns(PagesWithStatus):
    """The columns of the list, and the fields that the page shows without changing them."""

    schedule = fields.line(_("schedule"), "pk")
    task = fields.line(_("task"), "task_name")

    def read_status(self, alias: str, rows: Sequence[Any]) -> list[ScheduleStatus]:
        """Return the status of schedules. Only requests import the code of schedules, not each process's start."""
        from django_txtasks.features.schedules.status import status_of_rows, with_authors

        return with_authors(status_of_rows(alias, rows))

    @admin.display(description=_("ticks"))
    def ticks(self, row: Any) -> str:
        if row.cron:
            return shown.line(f"{row.cron} {row.tz}")
        return (
            shown.line(_now("every %(n)s s") % {"n": shown.amount(row.every)})
            if row.every
            else shown.EMPTY
        )

    @admin.display(description=_("state"))
    def state(self, row: Any) -> str:
        """Show whether the schedule is on, and its problems."""
        status = self.status_of(row)
        badge = shown.badge("claimed", _("on")) if row.enabled else shown.badge("held", _("off"))
        troubles = [shown.line(status.problem)] if status.problem else []
        if status.off is not None:
            text = _now("for %(span)s") % {"span": span(status.off)}
            troubles.append(shown.line(f"{text}: {status.author}" if status.author else text))
        if status.late:
            troubles.append(
                _now("late by %(span)s: is a cleaner of this code running?")
                % {"span": span(timedelta(seconds=status.late))}
            )
        if status.unready:
            troubles.append(_not_done(self.admin_site.name, row, status))
        return badge + format_html_join(
            "", '<br><small class="txtasks-warning">{}</small>', [(one,) for one in troubles]
        )

    @admin.display(description=_("next"))
    def next(self, row: Any) -> str:
        ticks = self._next_ticks(row, 1)
        return shown.age(ticks[0], row.now) if ticks else shown.EMPTY

    @admin.display(description=_("next times"))
    def next_times(self, row: Any) -> str:
        """Show the next five ticks."""
        ticks = [(shown.moment(one, row.now),) for one in self._next_ticks(row, 5)]
        return format_html_join("", "{}<br>", ticks) if ticks else shown.EMPTY

    def _next_ticks(self, row: Any, count: int) -> list[datetime]:
        """Return the next ticks; none while the code lacks the task function."""
        from django_txtasks.features.schedules.status import next_ticks

        return [] if self.status_of(row).lacks_function else next_ticks(row, count)

    @admin.display(description=_("last task"))
    def last(self, row: Any) -> str:
        """Show the last tick, and the state of its task."""
        if row.last_task is None:
            return shown.EMPTY
        state = self.status_of(row).state
        kind = "succeeded" if state in DONE else state
        badge = shown.badge(kind, shown.state(state))
        model = Task if state in Status.values else FinishedTask
        url = links.url(self.admin_site.name, f"{model._meta.model_name}_change", row.last_task)
        return format_html("{} {}", shown.age(row.last_at, row.now), links.to(url, badge))

    @admin.display(description=_("declared"))
    def origin(self, row: Any) -> str:
        if not row.from_code:
            return _now("not in the code")
        return _now("in the code, changed by people") if row.edited else _now("in the code")

    @admin.display(description=_("arguments"))
    def arguments(self, row: Any) -> str:
        return format_html(
            "{}{}",
            shown.arguments(json.dumps(row.args), row.task_name),
            shown.json_block(json.dumps(row.kwargs)),
        )


@admin.register(Schedule)
class ScheduleAdmin(ScheduleColumns, ScheduleActions):
    """Schedules. The change permission allows to turn them on and off, and to run them now.

    The add permission allows to run any task function with any arguments.
    """

    form = ScheduleForm
    change_form_template = "admin/txtasks/change_form.html"
    list_display = ("schedule", "task", "ticks", "state", "next", "last")
    list_per_page = 50
    search_fields = ("name", "task_name")
    ordering = ("name",)
    actions = ("turn_on", "turn_off", "run_now", "follow_code", "delete_selected")
    readonly_fields = (*READ_ONLY, "arguments")

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:
        """Hide secret-looking arguments from users without the change permission."""
        if obj is None:
            return [(None, {"fields": ("name", *CONFIGURATION)})]
        fields: tuple[str, ...] = CONFIGURATION
        if not self.has_change_permission(request, obj):
            fields = ("arguments", *(name for name in fields if name not in ("args", "kwargs")))
        return [(None, {"fields": READ_ONLY}), (_("Configuration"), {"fields": fields})]

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Return False for schedules that the code declares: they would come back. They can be turned off."""
        allowed = super().has_delete_permission(request, obj)
        return allowed and not (obj is not None and obj.from_code)

    def render_change_form(
        self, request: HttpRequest, context: dict[str, Any], *args: Any, **kwargs: Any
    ) -> HttpResponse:
        """Add a button that turns the schedule on or off."""
        row = context["original"]
        if row is not None and self.has_change_permission(request, row):
            act = ("turn_off", _("Turn off")) if row.enabled else ("turn_on", _("Turn on"))
            context = {**context, "acts": [act], "with_reason": ["turn_off"]}
        return super().render_change_form(request, context, *args, **kwargs)

    def changeform_view(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        """Show the form again, with the reason, if another user's change has made this one invalid."""
        try:
            return super().changeform_view(request, *args, **kwargs)
        except (TxTasksError, IntegrityError) as error:  # everything is rolled back
            why = _now("There is one of this name.") if isinstance(error, IntegrityError) else error
            text = _now(
                "Nothing was changed, because another user has changed schedules in the meantime: "
                "%(reason)s"
            )
            self.message_user(request, text % {"reason": shown.line(str(why))}, messages.ERROR)
            return HttpResponseRedirect(request.get_full_path())

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:
        """Write only the changed fields, no column that cleaners write. Django's log keeps the user's name."""
        from django_txtasks.features.schedules import changes, periodic

        alias, by = router.db_for_write(Schedule), request.user.get_username()
        if not change:
            values = {key: form.cleaned_data[key] for key in CONFIGURATION}
            changes.add(alias, obj.pk, values, by=by)
            return
        values = {key: form.cleaned_data[key] for key in CONFIGURATION if key in form.changed_data}
        if values:
            keep = get_config().keeps("cancelled")
            if not periodic.configure(alias, obj.pk, values, keep=keep, by=by):
                raise InvalidSchedule(_now("It was deleted in the meantime."))

    def delete_model(self, request: HttpRequest, obj: Any) -> None:
        """Delete the schedule, and cancel its task that was written ahead."""
        from django_txtasks.features.schedules.changes import disable

        alias, by = router.db_for_write(Schedule), request.user.get_username()
        disable(alias, obj.pk, keep=get_config().keeps("cancelled"), by=by)
        Schedule.objects.using(alias).filter(pk=obj.pk).delete()


def _not_done(site: str, row: Any, status: ScheduleStatus) -> str:
    """Return the warning about a tick that is not done in time, with a link to its unfinished batch."""
    text = _now("not done by %(hour)s") % {"hour": shown.line(row.ready_by)}
    left = status.unsettled
    if left is None:
        return text
    link = links.to(links.url(site, "batch_change", left.batch), left.batch)
    return format_html("{}: {} {} {}", text, _now("its batch"), link, left.text)
