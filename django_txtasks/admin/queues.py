"""The admin page of paused queues: add a queue to pause it, delete it to resume."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib import admin, messages
from django.db import router
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from django_txtasks.admin import fields
from django_txtasks.admin.pages import Pages
from django_txtasks.conf import get_config
from django_txtasks.core.rows import workers
from django_txtasks.models import PausedQueue
from django_txtasks.operations import pausing


class PauseForm(forms.ModelForm):  # type: ignore[type-arg]
    """A queue of the settings, and the reason for the pause."""

    queue_name = forms.ChoiceField(
        label=_("queue"),
        help_text=_("Its waiting tasks do not start until it is resumed. Running tasks continue."),
    )

    class Meta:
        model = PausedQueue
        fields = ("queue_name", "reason")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        names = sorted(get_config().queues)
        self.fields["queue_name"].choices = [(name, name) for name in names]  # type: ignore[attr-defined]


@admin.register(PausedQueue)
class PausedQueueAdmin(Pages):
    """Paused queues. The add permission allows to pause, the delete permission to resume."""

    form = PauseForm
    list_display = ("queue", "since", "by", "why")
    actions = ("delete_selected",)
    ordering = ("queue_name",)
    queue = fields.line(_("queue"), "queue_name")
    since = fields.age(_("paused"), "paused_at")
    by = fields.line(_("by"), "paused_by")
    why = fields.line(_("reason"), "reason")

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    @admin.action(description=_("Resume the selected queues"), permissions=["delete"])
    def delete_selected(self, request: HttpRequest, chosen: QuerySet[Any]) -> None:
        """Resume the queues. The method's name makes it replace Django's delete action."""
        for row in chosen:
            self.log_deletions(request, chosen.filter(pk=row.pk))
            self.delete_model(request, row)
        self.message_user(request, gettext("Their tasks start again with the next scan."))

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:
        """Pause the queue, and warn about workers that are too old to obey."""
        alias = router.db_for_write(PausedQueue)
        pausing.pause(alias, obj.pk, by=request.user.get_username(), reason=obj.reason)
        if old := workers.workers_that_ignore_pauses(alias):
            text = _(
                "Workers of an older release ignore the pause until they are replaced: %(names)s"
            )
            self.message_user(request, text % {"names": ", ".join(old)}, messages.WARNING)

    def delete_model(self, request: HttpRequest, obj: Any) -> None:
        """Resume the queue."""
        pausing.resume(router.db_for_write(PausedQueue), obj.pk, by=request.user.get_username())
