"""Base classes of the admin pages. They show rows, write nothing, and never read a whole large table."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from django.contrib import admin
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.contrib.admin.utils import flatten_fieldsets
from django.core.exceptions import BadRequest, ValidationError
from django.db.models import Model, OuterRef, Q, QuerySet, Subquery
from django.http import HttpRequest, HttpResponse
from django.template.loader import render_to_string
from django.utils.html import format_html, format_html_join
from django.utils.translation import gettext_lazy as _

from django_txtasks.admin import fields, links, shown
from django_txtasks.admin.attempts import timeline
from django_txtasks.admin.base import ModelAdmin
from django_txtasks.admin.bounded import NEWEST, BoundedList, ReadOrder
from django_txtasks.admin.columns import MAX_LISTED_JSON_CHARACTERS, LastError, json_text
from django_txtasks.admin.one_task import OneTask
from django_txtasks.admin.searching import search
from django_txtasks.admin.subjects.about import MAX_MERGED, SubjectsOnPage
from django_txtasks.core.declaring import registry
from django_txtasks.models import Batch, DatabaseNow, FinishedTask, Step, Task, Worker

SHORT_ID = 8
"""Characters of an id in lists."""
MAX_STEPS = 100
TASKS = ((Task, "task"), (FinishedTask, "finishedtask"))
"""The tables of tasks, with the names of their pages."""


class Pages(ModelAdmin):
    """Base of all pages: no URL or form can query hidden values or cause a server error."""

    change_list_template = "admin/txtasks/change_list.html"  # also for a proxy in another app
    show_full_result_count = False
    show_facets = admin.ShowFacets.NEVER  # facets count the table once for each choice
    sortable_by = ()

    def lookup_allowed(self, lookup: str, value: Any, request: HttpRequest | None = None) -> bool:
        """Allow only the page's own filters: ``?kwargs__password__startswith=a`` would reveal redacted values."""
        return any(_asks(lookup, chosen) for chosen in self.list_filter)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        """Return rows with the database's clock."""
        rows: QuerySet[Any] = super().get_queryset(request).annotate(now=DatabaseNow())
        return rows

    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Add a link to the page *At a glance*. Answer 400 if a selected row has an impossible key."""
        if not all(self._is_key(key) for key in request.POST.getlist(ACTION_CHECKBOX_NAME)):
            raise BadRequest("A selected row has a key that no row can have.")
        may_view = request.user.has_perm("txtasks.view_task")
        glance = links.url(self.admin_site.name, "overview_changelist") if may_view else ""
        return super().changelist_view(request, {**(extra_context or {}), "glance": glance})

    def get_object(
        self, request: HttpRequest, object_id: str, from_field: str | None = None
    ) -> Any:
        """Return the row; None if it does not exist, or if the key is impossible."""
        if not self._is_key(object_id):
            return None
        return super().get_object(request, object_id, from_field)

    def _is_key(self, text: str) -> bool:
        if "\0" in text:  # PostgreSQL refuses the statement
            return False
        try:
            self.opts.pk.to_python(text)
        except ValidationError:
            return False
        return True


class PagesWithStatus(Pages):
    """Pages of rows with a status, which one query reads for all rows of a list."""

    def read_status(self, alias: str, rows: Sequence[Any]) -> Sequence[Any]:
        """Return the status of each row, in the order of the rows."""
        raise NotImplementedError

    def status_of(self, row: Any) -> Any:
        """Return the status of a row; it is read once."""
        if not hasattr(row, "status_of_page"):
            (row.status_of_page,) = self.read_status(row._state.db or "default", [row])
        return row.status_of_page

    def get_changelist_instance(self, request: HttpRequest) -> Any:
        """Read the status of all rows of a list."""
        found: Any = super().get_changelist_instance(request)
        rows = list(found.result_list)
        for row, status in zip(rows, self.read_status(found.queryset.db, rows), strict=True):
            row.status_of_page = status
        found.result_list = rows
        return found


class ReadOnly(Pages):
    """Pages that only show rows, and read them in the order of an index."""

    actions: Any = ()
    change_form_template = "admin/txtasks/change_form.html"
    list_per_page = 50
    search_fields = ("id",)
    search_help_text = _("Search by full id")
    json_columns: tuple[str, ...] = ()

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> list[str]:
        """Return all fields, so that the page is read-only."""
        return flatten_fieldsets(self.get_fieldsets(request, obj))

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        """Leave the JSON columns out, which may be large."""
        return super().get_queryset(request).defer(*self.json_columns)

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[BoundedList]:
        """Return the class of the list, or of the part of it that the request names."""
        kind: type[BoundedList] = getattr(request, "kind_of_list", BoundedList)
        return kind

    def read_order(self, chosen: Mapping[str, Any]) -> ReadOrder:
        """Return the index and the order in which a list reads rows, for these filter values."""
        return NEWEST

    def is_id(self, text: str) -> bool:
        """Return True if the search text is an id; such a row is found wherever it is."""
        return _as_id(text) is not None

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        """Find the row with this id."""
        wanted = _as_id(search_term)
        if wanted is not None:
            return queryset.filter(pk=wanted), False
        return (queryset.none() if search_term else queryset), False

    def get_object(
        self, request: HttpRequest, object_id: str, from_field: str | None = None
    ) -> Any:
        """Return the row with its JSON columns as text, in ``texts``."""
        found = super().get_object(request, object_id, from_field)
        if found is not None and self.json_columns:
            found.texts = _texts(found, self.json_columns)
        return found


class TaskPages(SubjectsOnPage, OneTask, ReadOnly):
    """Base class of the pages of live and finished tasks."""

    json_columns: tuple[str, ...] = ("args", "kwargs", "errors", "late_finishes")
    search_help_text = _(
        "Search by full task id, or by a part of the name, the arguments or the last error"
    )
    queue = fields.line(_("queue"), "queue_name")
    keywords = fields.text(_("keyword arguments"), "kwargs", shown.json_block)
    late = fields.text(_("late finishes"), "late_finishes", shown.late_finishes)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        """Add the worker's host, the last error and the beginning of the arguments for the list."""
        host = Worker.objects.filter(pk=OuterRef("worker")).values("host")[:1]
        rows: QuerySet[Any] = super().get_queryset(request)
        rows = rows.annotate(
            worker_host=Subquery(host), error=LastError("errors"),
            listed_args=json_text("args", MAX_LISTED_JSON_CHARACTERS),
            listed_kwargs=json_text("kwargs", MAX_LISTED_JSON_CHARACTERS),
        )  # fmt: skip
        return rows

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        """Find the row with this id, or rows with the text in their name, their arguments or their last error."""
        if self.is_id(search_term) or not (text := search_term.replace("\0", "").strip()):
            return super().get_search_results(request, queryset, search_term)
        found = search(queryset, self.read_order(request.GET.dict()), text)
        request.txtasks_searched = found.rows  # type: ignore[attr-defined]
        return queryset.filter(Q(task_name__icontains=text) | Q(pk__in=found.ids)), False

    @admin.display(description=_("task"))
    def name(self, task: Any) -> str:
        """Show the function's name, with the last characters of the id: the first ones are the time."""
        return self._name(task, f"…{str(task.pk)[-SHORT_ID:]}")

    @admin.display(description=_("task"))
    def full_name(self, task: Any) -> str:
        """Show the function's name and the whole id."""
        return self._name(task, str(task.pk))

    @admin.display(description=_("arguments"))
    def call(self, task: Any) -> str:
        """Show the arguments in a short line."""
        return shown.listed_call(task.listed_args, task.listed_kwargs, task.task_name)

    def _name(self, task: Any, shown_id: str) -> str:
        note: Any = ""
        if getattr(task, "is_undeclared", False):
            note = _(
                "no living worker of its queue declares this name: the task waits until one does"
            )
        elif task.task_name not in registry.names():
            note = _("no task with this name is declared in this code")
        context = {"task": task, "note": note, "shown_id": shown_id}
        return render_to_string("admin/txtasks/name.html", context)

    @admin.display(description=_("worker"))
    def worker_link(self, task: Any) -> str:
        """Show the worker of the last attempt; without a link if its row is gone."""
        if task.worker is None:
            return shown.EMPTY
        if task.worker_host is None:
            return str(task.worker)
        url = links.url(self.admin_site.name, "worker_change", task.worker)
        return format_html("{} ({})", links.to(url, shown.line(task.worker_host)), task.worker)

    @admin.display(description=_("attempts, by worker"))
    def timeline(self, task: Any) -> str:
        """Show each known attempt: where it ran, when it ended, and its outcome."""
        return timeline(task, task.texts.get("errors"))

    @admin.display(description=_("last error"))
    def last_error(self, task: Any) -> str:
        return shown.last_error(task.error)

    @admin.display(description=_("arguments"))
    def arguments(self, task: Any) -> str:
        return shown.arguments(task.texts.get("args"), task.task_name)

    @admin.display(description=_("errors"))
    def error_list(self, task: Any) -> str:
        return shown.errors(task.texts.get("errors"), self._steps_of(task))

    @admin.display(description=_("steps done"))
    def steps(self, task: Any) -> str:
        """Show which steps are done, when, and by which attempt. Values may be secret, so they are left out."""
        lines = (
            (shown.line(one.name), shown.moment(one.done_at, task.now), shown.attempt(one.attempt))
            for one in self._steps_of(task)
        )
        return format_html_join("", "<div>{}: {}, {}</div>", lines) or shown.EMPTY

    def _steps_of(self, task: Any) -> list[Step]:
        """Return the latest steps of a task in their order; they are read once per page."""
        if not hasattr(task, "steps_done"):
            rows = Step.objects.using(task._state.db).filter(task_id=task.pk).defer("value")
            task.steps_done = list(rows.order_by("-attempt", "-done_at")[:MAX_STEPS])[::-1]
        return task.steps_done  # type: ignore[no-any-return]

    @admin.display(description=_("merged into it"))
    def merged(self, task: Any) -> str:
        """Show the newest tasks that were merged into this one, with links."""
        ids = self.merged_ids(task)
        return shown.first_of(ids, MAX_MERGED, partial(self.task_link, task._state.db))

    def task_link(self, alias: str, task_id: uuid.UUID | None) -> str:
        """Return a link to the page of a live or finished task; only its id if it has no row."""
        return shown.EMPTY if task_id is None else task_link(self.admin_site, alias, task_id)

    @admin.display(description=_("batch"))
    def batch_link(self, task: Any) -> str:
        """Show the task's batch; without a link if its row is gone."""
        if task.batch is None:
            return shown.EMPTY
        return _link(self.admin_site, task._state.db, task.batch, [(Batch, "batch")])

    @admin.display(description=_("admin actions"))
    def history(self, task: Any) -> str:
        """Show which users changed the task, while it was live and after it finished."""
        from django_txtasks.insight.story import acts_on  # imported by this page alone

        lines = (
            (shown.moment(entry.action_time, task.now), entry.user, entry.get_change_message())
            for entry in acts_on(task.pk)
        )
        return format_html_join("", "<div>{} <strong>{}</strong>: {}</div>", lines) or shown.EMPTY


def task_link(site: admin.AdminSite, alias: str, task_id: uuid.UUID) -> str:
    """Return a link to the page of a live or finished task; only its id if it has no row."""
    return _link(site, alias, task_id, TASKS)


def _link(
    site: admin.AdminSite, alias: str, row_id: uuid.UUID, kinds: Sequence[tuple[Any, str]]
) -> str:
    name = page_of(alias, row_id, kinds)
    return links.to(links.url(site.name, name, row_id), row_id) if name else str(row_id)


def page_of(alias: str, row_id: Any, kinds: Sequence[tuple[Any, str]] = TASKS) -> str:
    """Return the name of the page of a row; empty if no table has it."""
    for model, name in kinds:
        if model._default_manager.using(alias).filter(pk=row_id).exists():
            return f"{name}_change"
    return ""


def _asks(lookup: str, chosen: Any) -> bool:
    """Return True if a URL parameter belongs to this entry of ``list_filter``."""
    if hasattr(chosen, "parameter_name"):
        return bool(lookup == chosen.parameter_name)
    field = chosen if isinstance(chosen, str) else chosen[0]  # from a site's own subclass
    return lookup == field or lookup.startswith(f"{field}__")


def _as_id(text: str) -> uuid.UUID | None:
    try:
        return uuid.UUID(text.strip())
    except ValueError:
        return None


def _texts(row: Model, columns: tuple[str, ...]) -> dict[str, str | None]:
    """Read JSON columns as text; empty if the row has been deleted since."""
    rows = type(row)._default_manager.using(row._state.db).filter(pk=row.pk)
    texts = rows.values_list(*(json_text(column) for column in columns)).first() or ()
    return dict(zip(columns, texts, strict=False))
