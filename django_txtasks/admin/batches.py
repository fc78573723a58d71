"""The admin page of batches and their members."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.utils.html import format_html, format_html_join
from django.utils.translation import gettext_lazy as _

from django_txtasks.admin import fields, shown
from django_txtasks.admin.pages import ReadOnly, task_link
from django_txtasks.core.ground.wording import whole
from django_txtasks.features.batches import rows as batches
from django_txtasks.features.batches.api import MOST_COUNTED, BatchHandle, BatchStatus
from django_txtasks.models import Batch, FinishedTask, Task

MOST_MEMBERS = 50
"""Highest number of members of one kind that a batch's page lists."""


@admin.register(Batch)
class BatchAdmin(ReadOnly):
    """Batches, newest first."""

    ordering = ("-pk",)
    json_columns = ("hooks", "hook_tasks")
    list_display = ("title", "state", "created", "ended")
    fieldsets = (
        (None, {"fields": ("id", "title", "state", "opener", "hook_names", "created", "ended")}),
        (_("Members"), {"fields": ("numbers", "failed_members", "live_members", "done_members")}),
    )
    created = fields.age(_("created"), "created_at")
    ended = fields.age(_("ended"), "finished_at")

    @admin.display(description=_("batch"))
    def title(self, batch: Any) -> str:
        return shown.line(str(batch))

    @admin.display(description=_("state"))
    def state(self, batch: Any) -> str:
        """Show whether the batch is still open, and whether a member failed."""
        if batch.finished_at is None:
            return shown.badge("claimed", _("open"))
        if batch.failed:
            return shown.badge("dead", _("a member failed"))
        return shown.badge("succeeded", _("all succeeded"))

    @admin.display(description=_("opened by the task"))
    def opener(self, batch: Any) -> str:
        """Show the task that opened the batch; without a link if it has no row."""
        if batch.opened_by is None:
            return shown.EMPTY
        return task_link(self.admin_site, batch._state.db, batch.opened_by)

    @admin.display(description=_("hooks"))
    def hook_names(self, batch: Any) -> str:
        """Show the hooks and, once the batch has ended, the tasks that they enqueued."""
        tasks = batches.hook_tasks_of(batch.texts.get("hook_tasks"))
        links = format_html_join(
            "",
            "<div>{}: {}</div>",
            (
                (shown.line(hook), task_link(self.admin_site, batch._state.db, task_id))
                for hook, task_id in tasks.items()
            ),
        )
        return format_html("{}{}", shown.hooks(batch.texts.get("hooks")), links)

    @admin.display(description=_("counts"))
    def numbers(self, batch: Any) -> str:
        """Count the members, up to a limit."""
        status = BatchHandle(batch.pk, batch.name, batch._state.db).status()
        return format_html_join("", "<div>{}: {}</div>", _numbers(status))

    @admin.display(description=_("failed"))
    def failed_members(self, batch: Any) -> str:
        """Show members that are dead, or that ended without success."""
        alias = batch._state.db
        dead = _waiting(batch).filter(status="dead")
        ended = FinishedTask.objects.using(alias).filter(batch=batch.pk, outcome__in=batches.FAILED)
        return self._links(alias, [*_some(dead), *_some(ended)])

    @admin.display(description=_("waiting or running"))
    def live_members(self, batch: Any) -> str:
        alias = batch._state.db
        running = Task.objects.using(alias).filter(batch=batch.pk, status="claimed")
        return self._links(alias, [*_some(running), *_some(_waiting(batch).exclude(status="dead"))])

    @admin.display(description=_("succeeded"))
    def done_members(self, batch: Any) -> str:
        rows = FinishedTask.objects.using(batch._state.db).filter(
            batch=batch.pk, outcome__in=batches.SUCCEEDED
        )
        return self._links(batch._state.db, _some(rows))

    def _links(self, alias: str, members: list[tuple[Any, str]]) -> str:
        def line_of(member: tuple[Any, str]) -> str:
            task_id, name = member
            link = task_link(self.admin_site, alias, task_id)
            return format_html("{} {}", shown.line(name), link)

        return shown.first_of(members, MOST_MEMBERS, line_of)


def _waiting(batch: Any) -> Any:
    """Return the live members that are not claimed; an index covers them."""
    rows = Task.objects.using(batch._state.db).filter(batch=batch.pk)
    return rows.exclude(status="claimed")


def _some(rows: Any) -> list[tuple[Any, str]]:
    """Return id and name of some rows, in the order of the index."""
    return list(rows.order_by().values_list("pk", "task_name")[: MOST_MEMBERS + 1])


def _numbers(status: BatchStatus) -> list[tuple[Any, Any]]:
    known = (
        (_("waiting"), status.waiting),
        (_("running"), status.running),
        (_("succeeded"), status.succeeded),
        (_("failed"), status.failed),
    )
    return [
        (
            label,
            _("not kept") if count is None else f"{whole(count)}{'+' * (count >= MOST_COUNTED)}",
        )
        for label, count in known
    ]
