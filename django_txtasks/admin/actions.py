"""Admin actions that change a task's state, each with its own permission; ``operations`` makes the change."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import django
from django.contrib import admin, messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.contrib.admin.models import CHANGE, DELETION, LogEntry
from django.db import transaction
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.utils.translation import gettext_lazy as _
from django.utils.translation import ngettext_lazy

from django_txtasks.admin import bulk, causes
from django_txtasks.admin.bounded import following_indexes
from django_txtasks.admin.confirming import ON_PAGE, Chosen, page_of_request
from django_txtasks.conf import get_config
from django_txtasks.database.execute import as_uuid
from django_txtasks.features.reports import names
from django_txtasks.models import FinishedTask, Outcome, Status, Task
from django_txtasks.operations import slices
from django_txtasks.operations.moved import Moved
from django_txtasks.operations.operators import Spread
from django_txtasks.operations.rows import Row
from django_txtasks.operations.verbs import COMPENSATED, VERBS, Verb

if TYPE_CHECKING:
    Tasks = QuerySet[Task]
    Base = admin.ModelAdmin[Task]
else:
    Base = object


class Act(NamedTuple):
    """One state change as a person sees it.

    Attributes:
        name: the action, which is also the verb in ``operations``.
        state: the state in which a task must be.
        selected: its name in the menu of the list.
        button: its name on the page of one task.
        log: the line in the admin's history.
        done, left: messages about ``n`` tasks that moved, or did not.
        barred: message about ``n`` compensated tasks; None if the action is allowed for them.
        asks: what the page says that asks, for an action that cannot be undone; None = only many tasks are asked
            about.
        starts: True if workers may run the tasks then.
        ends: the outcome of the tasks, if they leave the live table.
    """

    name: str
    state: Status
    selected: Any
    button: Any
    log: Any
    done: Any
    left: Any
    barred: Any = None
    asks: Any = None
    starts: bool = False
    ends: Outcome | None = None

    @property
    def verb(self) -> Verb:
        """The change."""
        return VERBS[self.name]


_NOT_DEAD = ngettext_lazy(
    "%(n)s task unchanged: no longer dead.",
    "%(n)s tasks unchanged: no longer dead.",
    "n",
)
_NOT_HELD = ngettext_lazy(
    "%(n)s task unchanged: no longer held.",
    "%(n)s tasks unchanged: no longer held.",
    "n",
)
_NOT_PENDING = ngettext_lazy(
    "%(n)s task unchanged: no longer pending.",
    "%(n)s tasks unchanged: no longer pending.",
    "n",
)
_NOT_RUNNING = ngettext_lazy(
    "%(n)s task unchanged: no longer running, already asked, or changing state at this moment.",
    "%(n)s tasks unchanged: no longer running, already asked, or changing state at this moment.",
    "n",
)
_COMPENSATED = ngettext_lazy(
    "%(n)s task left dead, because its compensation was enqueued: undone work must not be done again.",
    "%(n)s tasks left dead, because their compensations were enqueued: undone work must not be done again.",
    "n",
)
ACTS = {one.name: one for one in (
    Act(
        name="run_now", state=Status.PENDING, selected=_("Run selected tasks now (pending)"), starts=True,
        button=_("Run now"), log=_("Made due at once."), left=_NOT_PENDING,
        done=ngettext_lazy("%(n)s task made due now.", "%(n)s tasks made due now.", "n"),
    ),
    Act(
        name="hold", state=Status.PENDING, selected=_("Hold selected tasks (pending)"),
        button=_("Hold"), log=_("Held."), left=_NOT_PENDING,
        done=ngettext_lazy("%(n)s task held.", "%(n)s tasks held.", "n"),
    ),
    Act(
        name="resume", state=Status.HELD, selected=_("Resume selected tasks (held)"), starts=True,
        button=_("Resume"), log=_("Resumed."), left=_NOT_HELD,
        done=ngettext_lazy("%(n)s task resumed.", "%(n)s tasks resumed.", "n"),
    ),
    Act(
        name="cancel", state=Status.PENDING, selected=_("Cancel selected tasks (pending)"), ends=Outcome.CANCELLED,
        button=_("Cancel"), log=_("Cancelled."), left=_NOT_PENDING,
        asks=_("A cancelled task never runs and cannot be restored. It can only be enqueued again."),
        done=ngettext_lazy("%(n)s task cancelled.", "%(n)s tasks cancelled.", "n"),
    ),
    Act(
        name="ask_to_stop", state=Status.CLAIMED, selected=_("Ask selected tasks to stop (claimed)"),
        button=_("Ask to stop"), log=_("Asked to stop."), left=_NOT_RUNNING,
        asks=_(
            "A running task sees this at its next check, and is cancelled when it stops. No other attempt starts, "
            "even if this one fails. If its worker crashes, a task that may run again is cancelled; any other "
            "task is dead, because it may have done half of its work."
        ),
        done=ngettext_lazy(
            "%(n)s task asked to stop. If it does not end within 10 s, its page says how to end it.",
            "%(n)s tasks asked to stop. If one does not end within 10 s, its page says how to end it.",
            "n",
        ),
    ),
    Act(
        name="revive", state=Status.DEAD, selected=_("Revive selected tasks (dead)"), starts=True,
        button=_("Revive"), log=_("Revived."), left=_NOT_DEAD, barred=_COMPENSATED,
        done=ngettext_lazy("%(n)s task revived.", "%(n)s tasks revived.", "n"),
    ),
    Act(
        name="discard", state=Status.DEAD, selected=_("Discard selected tasks (dead)"), ends=Outcome.DISCARDED,
        button=_("Discard"), log=_("Discarded."), left=_NOT_DEAD,
        asks=_("A discarded task is never tried again and cannot be revived. It can only be enqueued again."),
        done=ngettext_lazy("%(n)s task discarded.", "%(n)s tasks discarded.", "n"),
    ),
)}  # fmt: skip


class TaskActions(Base):
    """The actions of the task list. Each action has a permission; a user sees only the permitted actions."""

    actions = tuple(ACTS)
    is_id: Callable[[str], bool]

    def do(self, request: HttpRequest, queryset: Tasks, act: Act) -> HttpResponse | None:
        """Act, or show a page that asks and sends the same action again; permissions are checked again then.

        The answer is the page of the task if its button was pressed there; None = the list.
        """
        is_all = request.POST.get("select_across") == "1" and not self.is_id(
            request.GET.get("q", "")
        )
        if not is_all and (act.asks is None or "confirmed" in request.POST):
            self.act(request, queryset, act)
            return self._back(request, queryset)
        chosen = Chosen.of(request, queryset, act.state, is_all=is_all)
        if is_all and chosen.are_many:
            return bulk.page(self, request, queryset, act, chosen)
        if is_all:
            queryset = queryset.filter(pk__in=chosen.ids)
        if "confirmed" in request.POST:
            self.act(request, queryset, act)
            return None
        if not chosen.moves:  # nothing to confirm
            self.act(request, queryset.none(), act)
            return self._back(request, queryset)
        selected = request.POST.getlist(ACTION_CHECKBOX_NAME)
        there = page_of_request(self.admin_site.name, request, queryset)
        context = {"selected": selected, ON_PAGE: bool(there)} | ({"back": there} if there else {})
        return self.ask(request, "confirm", act, chosen, context)

    def _back(self, request: HttpRequest, queryset: Tasks) -> HttpResponse | None:
        there = page_of_request(self.admin_site.name, request, queryset)
        return HttpResponseRedirect(there) if there else None

    def ask(
        self, request: HttpRequest, page: str, act: Act, chosen: Chosen, context: dict[str, Any]
    ) -> HttpResponse:
        """Return a page about an action and its tasks."""
        alias = self.get_queryset(request).db
        cause = request.GET.get("cause")
        about, warning = causes.before_act(alias, cause, revives=act.name == "revive")
        context = {
            **self.admin_site.each_context(request), "about": about, "warning": warning,
            "title": act.button, "name": act.name, "act": act, "chosen": chosen, "opts": self.model._meta,
            "select_across": request.POST.get("select_across", "0"), "back": request.get_full_path(),
            "breadcrumbs_are_a_list": django.VERSION >= (6, 1), **context,
        }  # fmt: skip
        return TemplateResponse(request, f"admin/txtasks/{page}.html", context)

    def act(
        self, request: HttpRequest, queryset: Tasks, act: Act, spread: Spread | None = None
    ) -> None:
        """Change these tasks, and show their numbers."""
        alias = queryset.select_for_update().db  # the primary, even if pages read a replica
        moved, changed = take(request, queryset.using(alias), act, spread)
        barred = sum(one.count for one in moved.reasons if one.reason == COMPENSATED)
        if moved.changed:
            self.message_user(request, act.done % {"n": moved.changed}, messages.SUCCESS)
        if barred:
            self.message_user(request, act.barred % {"n": barred}, messages.WARNING)
        if left := _count_chosen(request, moved) - moved.changed - barred:
            self.message_user(request, act.left % {"n": left}, messages.WARNING)
        if act.starts and changed:
            due = {(row.queue, row.task) for row in changed}
            for text in names.without_worker(alias, due):
                self.message_user(request, text, messages.WARNING)


def may(request: HttpRequest, name: str) -> bool:
    """Return True if the user has the permission for this action."""
    return request.user.has_perm(f"txtasks.{name}_task")


def _add_to_list(act: Act) -> None:
    """Add the action, and the method that Django asks for its permission, to the list of tasks."""

    @admin.action(permissions=[act.name], description=act.selected)
    def action(pages: TaskActions, request: HttpRequest, queryset: Tasks) -> HttpResponse | None:
        return pages.do(request, queryset, act)

    def has_permission(pages: TaskActions, request: HttpRequest) -> bool:
        return may(request, act.name)

    setattr(TaskActions, act.name, action)
    setattr(TaskActions, f"has_{act.name}_permission", has_permission)


for _act in ACTS.values():
    _add_to_list(_act)


def take(
    request: HttpRequest, queryset: Tasks, act: Act, spread: Spread | None = None
) -> tuple[Moved, list[Row]]:
    """Change the state of the chosen tasks. Each slice commits separately, together with its history entries.

    Returns:
        The counts, and the tasks that were changed.
    """
    alias, moved, changed = queryset.db, Moved(), list[Row]()
    for rows in _slices(queryset, act.state):
        with transaction.atomic(using=alias):
            taken = act.verb.take(alias, rows, spread)
            some = [row for row in rows if row.id in taken.changed]
            _log(request, act, some)
        moved = moved.plus(rows, taken)
        changed += some
    return moved, changed


def _count_chosen(request: HttpRequest, moved: Moved) -> int:
    """Return the number of chosen tasks, also of those that have left the list since the page was loaded."""
    read = moved.changed + moved.skipped
    if request.POST.get("select_across") == "1":
        return read
    return max(read, len(set(request.POST.getlist(ACTION_CHECKBOX_NAME))))


def _slices(queryset: Tasks, state: Status) -> Iterator[list[Row]]:
    """Read the chosen tasks in the order of their keys, so that rows that leave the set shift nothing."""
    rows = _first(queryset, state)
    while rows:
        yield rows
        rows = _first(queryset.filter(pk__gt=rows[-1].id), state)


def _first(queryset: Tasks, state: Status) -> list[Row]:
    columns = queryset.order_by("pk").values_list("pk", "queue_name", "task_name")
    with following_indexes(queryset.db):
        found = list(columns[: slices.ROWS_PER_SLICE])
    return [Row(as_uuid(task_id), queue, task, status=state) for task_id, queue, task in found]


def _log(request: HttpRequest, act: Act, rows: list[Row]) -> None:
    """Write an entry of the admin's history for each task, under the model whose page shows the task now."""
    is_kept = act.ends is None or get_config().keeps(act.ends)
    model = FinishedTask if act.ends and is_kept else Task
    flag = CHANGE if is_kept else DELETION
    tasks = [model(id=row.id, task_name=row.task) for row in rows]
    if tasks:
        LogEntry.objects.log_actions(request.user.pk, tasks, flag, str(act.log))  # type: ignore[arg-type]
