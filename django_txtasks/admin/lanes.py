"""The admin page of lanes: running and waiting tasks, and limits that override the settings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from django import forms
from django.contrib import admin, messages
from django.db import router
from django.http import HttpRequest
from django.utils.html import format_html
from django.utils.translation import gettext_lazy as _

from django_txtasks.admin import fields, shown
from django_txtasks.admin.pages import PagesWithStatus
from django_txtasks.core.ground.wording import decimal, whole
from django_txtasks.exceptions import ConfigError
from django_txtasks.features.lanes.rules import KEYS, parse_value
from django_txtasks.models import Lane

if TYPE_CHECKING:
    from django_txtasks.features.lanes.status import LaneStatus


class LaneForm(forms.ModelForm):  # type: ignore[type-arg]
    """The limits of a lane, where empty means as in the settings, and its pause."""

    paused = forms.BooleanField(
        label=_("paused"),
        required=False,
        help_text=_(
            "Its waiting tasks do not start until it is resumed. Running tasks continue. Also ticked while "
            "a task has asked the lane to wait."
        ),
    )

    class Meta:
        model = Lane
        fields = (*KEYS, "reason")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for name, one in self.fields.items():  # empty if the user may only view
            # so that saving does not revert a change that another user made in the meantime
            one.show_hidden_initial = True
            if name in KEYS:
                one.help_text = _("Empty: as in the settings.")
            elif name == "paused":
                waits = _states(self.instance._state.db or "default", [self.instance.pk])
                one.initial = any(lane.paused_at is not None or lane.held_for for lane in waits)

    def clean(self) -> dict[str, Any]:
        """Refuse invalid limits, as the settings do."""
        cleaned: dict[str, Any] = super().clean() or {}
        for key in KEYS:
            if cleaned.get(key) not in (None, ""):
                try:
                    parse_value(key, cleaned[key], key)
                except ConfigError as error:
                    self.add_error(key, str(error))
        return cleaned


@admin.register(Lane)
class LaneAdmin(PagesWithStatus):
    """Lanes. Workers write the rows. A user with the change permission sets limits, pauses and resumes."""

    form = LaneForm
    list_display = ("lane", "limits", "running", "waiting", "now")
    list_per_page = 50
    search_fields = ("name",)
    ordering = ("name",)
    actions = None
    readonly_fields = ("limits", "running", "waiting", "now")
    fieldsets = (
        (None, {"fields": ("limits", "running", "waiting", "now")}),
        (_("Instead of the settings"), {"fields": KEYS}),
        (_("Pause"), {"fields": ("paused", "reason")}),
    )
    lane = fields.line(_("lane"), "pk")

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def read_status(self, alias: str, rows: Sequence[Any]) -> list[LaneStatus]:
        by_name = {one.name: one for one in _states(alias, [row.pk for row in rows])}
        return [by_name[row.pk] for row in rows]

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:
        """Write only the changed fields, no column that workers write. Django's log keeps the user's name."""
        from django_txtasks.features.lanes import changes as lane_changes

        alias, user = router.db_for_write(Lane), request.user.get_username()
        values = {key: form.cleaned_data[key] for key in KEYS if key in form.changed_data}
        if values:
            lane_changes.limit(alias, obj.pk, values, by=user)
        if "paused" in form.changed_data and form.cleaned_data["paused"]:
            lane_changes.pause(alias, obj.pk, by=user, reason=form.cleaned_data["reason"])
        elif "paused" in form.changed_data:
            lane_changes.resume(alias, obj.pk, by=user)
        elif "reason" in form.changed_data:
            Lane.objects.using(alias).filter(pk=obj.pk).update(reason=form.cleaned_data["reason"])
        if old := lane_changes.workers_that_ignore_lanes(alias):
            text = _("Workers of an older release ignore lanes until they are replaced: %(names)s")
            self.message_user(request, text % {"names": ", ".join(old)}, messages.WARNING)

    @admin.display(description=_("limits"))
    def limits(self, row: Any) -> str:
        """Show the limits in force, from the settings or a person."""
        status: LaneStatus = self.status_of(row)
        if status.is_known:
            return status.limits
        return format_html(
            '{}<br><small class="txtasks-warning">{}</small>',
            status.limits,
            _("no rule in TXTASKS['lanes']"),
        )

    @admin.display(description=_("running"))
    def running(self, row: Any) -> int:
        return int(self.status_of(row).running)

    @admin.display(description=_("waiting"))
    def waiting(self, row: Any) -> str:
        status: LaneStatus = self.status_of(row)
        return f"{whole(status.waiting)}{'+' * status.may_have_more}"

    @admin.display(description=_("now"))
    def now(self, row: Any) -> str:
        """Show whether the next task of the lane may start."""
        status: LaneStatus = self.status_of(row)
        if status.paused_at is not None:
            since = shown.age(status.paused_at, row.now)
            why = shown.line(status.reason) if status.reason else ""
            return format_html("{} {} {}", shown.badge("held", _("paused")), since, why)
        if status.is_full:
            return shown.badge("claimed", _("full"))
        if status.held_for:
            return str(_("asked to wait for %(n)s s") % {"n": decimal(status.held_for, 1)})
        if status.opens_in:
            return str(_("next start in %(n)s s") % {"n": decimal(status.opens_in, 1)})
        return str(_("open"))


def _states(alias: str, names: list[str]) -> list[LaneStatus]:
    """Return the status of lanes. Only this page's requests import the code for it, which is large."""
    from django_txtasks.features.lanes.status import status_of_lanes

    return status_of_lanes(alias, names)
