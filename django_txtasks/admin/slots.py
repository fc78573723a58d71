"""The tasks that a worker runs, on its page."""

from __future__ import annotations

from typing import Any

from django.urls import reverse
from django.utils.html import format_html, format_html_join
from django.utils.translation import gettext as _

from django_txtasks.admin import shown
from django_txtasks.admin.columns import MAX_LISTED_JSON_CHARACTERS, json_text
from django_txtasks.models import Status, Task
from django_txtasks.wording import span

MAX_TASKS = 100


def text(site_name: str, worker: Any) -> str:
    """Return a line for each claimed task of a worker, the longest first, and the number of free slots."""
    rows = Task.objects.using(worker._state.db).filter(status=Status.CLAIMED, worker=worker.pk)
    claimed = rows.annotate(
        listed_args=json_text("args", MAX_LISTED_JSON_CHARACTERS),
        listed_kwargs=json_text("kwargs", MAX_LISTED_JSON_CHARACTERS),
    ).only("task_name", "claimed_at", "started_at")  # fmt: skip
    tasks = sorted(
        claimed[:MAX_TASKS], key=lambda one: one.started_at or one.claimed_at or worker.now
    )
    lines = format_html_join(
        "", "<div>{}</div>", ((_line(site_name, worker, one),) for one in tasks)
    )
    free = worker.threads - len(tasks)
    if free <= 0 or worker.lost:
        return lines or shown.EMPTY
    return format_html("{}<div>{}</div>", lines, _("free slots: %(n)s") % {"n": free})


def _line(site_name: str, worker: Any, task: Any) -> str:
    url = reverse("admin:txtasks_task_change", args=[task.pk], current_app=site_name)
    since = task.started_at
    says = (
        _("waits for its slot")
        if since is None
        else _("for %(time)s") % {"time": span(worker.now - since)}
    )
    call = shown.listed_call(task.listed_args, task.listed_kwargs, task.task_name)
    return format_html(
        '<a href="{}">{}</a> {} <span class="quiet">{}</span>',
        url,
        shown.line(task.task_name),
        says,
        call,
    )
