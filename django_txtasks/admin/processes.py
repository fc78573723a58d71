"""The admin pages of workers and cleaners: their health, the tasks in their slots, and what a red cross means."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from django.contrib import admin
from django.db.models import Q, QuerySet
from django.http import HttpRequest, HttpResponse
from django.utils.html import format_html, format_html_join
from django.utils.translation import gettext as _now
from django.utils.translation import gettext_lazy as _

from django_txtasks.admin import fields, links, shown
from django_txtasks.admin.columns import MAX_LISTED_JSON_CHARACTERS, json_text
from django_txtasks.admin.pages import ReadOnly
from django_txtasks.conf import get_config
from django_txtasks.core.ground.wording import span
from django_txtasks.models import Cleaner, Status, Task, Worker

MAX_DIGITS = 10
"""Digits of the longest process id. Python refuses to parse a number of more than 4,300 digits."""
MAX_TASKS = 100
"""Number of slots that a page shows."""


class ProcessPages(ReadOnly):
    """Base class of the pages of workers and cleaners."""

    search_help_text = _("Search by full id, process id, or a part of the host's name")
    seen = fields.age(_("seen"), "seen_at")
    started = fields.age(_("started"), "started_at")

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        """Find the row with this id, or processes by host name or process id."""
        if self.is_id(search_term) or not (text := search_term.replace("\0", "").strip()):
            return super().get_search_results(request, queryset, search_term)
        wanted = Q(host__icontains=text)
        if text.isdecimal() and len(text) <= MAX_DIGITS:
            wanted |= Q(pid=int(text))
        return queryset.filter(wanted), False


@admin.register(Worker)
class WorkerAdmin(ProcessPages):
    """Worker processes, by their heartbeats."""

    json_columns = ("queues", "sessions", "progress")
    ordering = ("-pk",)
    list_display = (
        "process", "health", "seen", "queue_names", "load", "hints", "last_will", "started", "code",
    )  # fmt: skip
    fieldsets = (
        (None, {"fields": (
            "id", "process", "health", "seen", "queue_names", "load", "hints_in_words", "will_in_words", "started",
            "code", "lease", "beat",
        )}),
    )  # fmt: skip

    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Say above the list what its crosses mean."""
        notes = [*_notes(self.get_queryset(request).db)]
        return super().changelist_view(request, {**(extra_context or {}), "notes": notes})

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:
        """Add the running tasks for a user who may view tasks."""
        fieldsets = super().get_fieldsets(request, obj)
        if obj is None or not request.user.has_perm("txtasks.view_task"):
            return fieldsets
        return [*fieldsets, (_("Slots"), {"fields": ("slots",)})]

    @admin.display(description=_("running now"))
    def slots(self, worker: Any) -> str:
        """Show the task of each slot: since when it runs, and its arguments."""
        return _slots(self.admin_site.name, worker)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        """Add the queues as text; they are few and short."""
        rows: QuerySet[Any] = super().get_queryset(request)
        rows = rows.annotate(queues_text=json_text("queues"))
        return rows

    @admin.display(description=_("worker"))
    def process(self, worker: Any) -> str:
        return shown.line(str(worker))

    @admin.display(description=_("health"))
    def health(self, worker: Any) -> str:
        """Show the worker's state: alive, suspected, silent for longer than its lease, or declared lost."""
        if worker.lost:
            return shown.badge("lost", _("lost"))
        if worker.suspected_at is not None:
            badge = shown.badge("suspected", _("suspected"))
            since = shown.age(worker.suspected_at, worker.now)
            return format_html('{}<br><small class="quiet">{}</small>', badge, since)
        if worker.is_silent(worker.now):
            return shown.badge("silent", _("silent"))
        return shown.badge("alive", _("alive"))

    @admin.display(description=_("release"))
    def code(self, worker: Any) -> str:
        return shown.line(worker.release)

    @admin.display(description=_("queues"))
    def queue_names(self, worker: Any) -> str:
        return shown.names(worker.queues_text)

    @admin.display(description=_("running"))
    def load(self, worker: Any) -> str:
        """Show running tasks and slots. Empty for a lost worker, because its tasks are no longer its own."""
        return shown.EMPTY if worker.lost else f"{worker.running} / {worker.threads}"

    @admin.display(description=_("listening"))
    def hints(self, worker: Any) -> str:
        return _icon(_listening(worker), _no_hints())

    @admin.display(description=_("listening"))
    def hints_in_words(self, worker: Any) -> str:
        return _in_words(_listening(worker), _no_hints())

    @admin.display(description=_("last will"))
    def last_will(self, worker: Any) -> str:
        return _icon(_has_will(worker), _no_will())

    @admin.display(description=_("last will"))
    def will_in_words(self, worker: Any) -> str:
        return _in_words(_has_will(worker), _no_will())


@admin.register(Cleaner)
class CleanerAdmin(ProcessPages):
    """Cleaner processes, by their beats and passes."""

    ordering = ("-pk",)
    list_display = ("process", "health", "seen", "passed", "every", "started")
    fieldsets = ((None, {"fields": ("id", *list_display, "lease", "last_error")}),)
    passed = fields.age(_("last whole pass"), "passed_at")
    last_error = fields.line(_("error"), "error")

    @admin.display(description=_("cleaner"))
    def process(self, cleaner: Any) -> str:
        return shown.line(str(cleaner))

    @admin.display(description=_("health"))
    def health(self, cleaner: Any) -> str:
        """Show the cleaner's state: at work, alive without a recent pass, or gone."""
        from django_txtasks.core.rows.cleaners import Seen  # imported by this page alone

        state = Seen.of(cleaner)
        if not state.is_there:
            return shown.badge("lost", _("gone"))
        if state.achieves:
            return shown.badge("alive", _("at work"))
        badge = shown.badge("silent", _("finishes no pass"))
        return format_html('{}<br><small class="quiet">{}</small>', badge, shown.line(state.error))

    @admin.display(description=_("interval"))
    def every(self, cleaner: Any) -> str:
        """Show the interval between passes."""
        return str(_("once")) if cleaner.interval is None else shown.in_seconds(cleaner.interval)


def _slots(site_name: str, worker: Any) -> str:
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
    return format_html("{}<div>{}</div>", lines, _now("free slots: %(n)s") % {"n": free})


def _line(site_name: str, worker: Any, task: Any) -> str:
    name = links.to(links.url(site_name, "task_change", task.pk), shown.line(task.task_name))
    since = task.started_at
    says = (
        _now("waits for its slot")
        if since is None
        else _now("for %(time)s") % {"time": span(worker.now - since)}
    )
    call = shown.listed_call(task.listed_args, task.listed_kwargs, task.task_name)
    return format_html('{} {} <span class="quiet">{}</span>', name, says, call)


def _listening(worker: Any) -> bool | None:
    """Return whether hints reach the worker; None if there are no hints, or if it is lost."""
    found: bool | None = None if worker.lost else worker.listening
    return found


def _has_will(worker: Any) -> bool | None:
    """Return whether RabbitMQ holds a last will of the worker; None without a broker, or if it is lost."""
    if worker.lost or worker.listening is None or get_config().has_database_hints:
        return None
    return bool(worker.will)


def _no_hints() -> str:
    """Return the meaning of a cross under *listening*."""
    if get_config().has_database_hints:
        text = _now(
            "no hint of the database reaches the worker, so a new task waits up to %(poll)s until the worker "
            "looks. A new worker needs some seconds to connect. If the cross stays, the log of the worker has the "
            "reason."
        )
    else:
        text = _now(
            "the worker has no connection to RabbitMQ (%(broker)s), so a new task waits up to %(poll)s until the "
            "worker looks. A new worker needs some seconds to connect. If the cross stays, start RabbitMQ, or "
            "restore the way to it; the log of the worker has the reason."
        )
    return _filled(text)


def _no_will() -> str:
    """Return the meaning of a cross under *last will*."""
    text = _now(
        "RabbitMQ (%(broker)s) holds no last will of the worker, so a crash is noticed only %(lease)s later. "
        "A new worker needs some seconds to leave its will. If the cross stays, start RabbitMQ, or restore "
        "the way to it; the log of the worker has the reason."
    )
    return _filled(text)


def _no_broker() -> str:
    text = _now(
        "A cross under “listening” or “last will”: the worker has no connection to RabbitMQ (%(broker)s). A new "
        "task then waits up to %(poll)s until the worker looks, and a crash of the worker is noticed only "
        "%(lease)s later. A new worker needs some seconds to connect. If the cross stays, start RabbitMQ, or "
        "restore the way to it; the log of the worker has the reason."
    )
    return _filled(text)


def _filled(text: str) -> str:
    """Return a text with the broker and the times of the settings."""
    config = get_config()
    poll, lease = span(config.poll_interval), span(config.lease)
    return text % {"broker": config.broker_address, "poll": poll, "lease": lease}


def _icon(value: bool | None, meaning: str) -> str:
    """Return Django's icon, with the meaning as the tooltip of a cross."""
    if value is not False:
        return str(_plain_icon(value))
    return format_html('<span title="{}">{}</span>', meaning, _plain_icon(value))


def _in_words(value: bool | None, meaning: str) -> str:
    """Return Django's icon, with the meaning beside a cross."""
    return format_html("{} {}", _plain_icon(value), meaning if value is False else "")


def _plain_icon(value: bool | None) -> str:
    # the import takes time, and a process without the admin's pages needs no icon
    from django.contrib.admin.templatetags.admin_list import _boolean_icon  # type: ignore[attr-defined]

    return str(_boolean_icon(value))


def _notes(alias: str) -> Iterator[str]:
    """Yield what the crosses of the list mean."""
    workers = Worker.objects.using(alias).filter(lost=False).only("listening", "will")
    found = {(_listening(one), _has_will(one)) for one in workers}
    text = _now("A cross under “%(column)s”: %(meaning)s")
    lacks_hints = any(hints is False for hints, _will in found)
    lacks_will = any(will is False for _hints, will in found)
    if lacks_hints and lacks_will:
        yield _no_broker()
    elif lacks_hints:
        yield text % {"column": _now("listening"), "meaning": _no_hints()}
    elif lacks_will:
        yield text % {"column": _now("last will"), "meaning": _no_will()}
