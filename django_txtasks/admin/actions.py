"""Admin actions that change a task's state, each with its own permission; ``operators`` makes the change."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
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
from django_txtasks.enqueueing.commit_hints import notify_on_commit
from django_txtasks.lifecycle import names, operators
from django_txtasks.lifecycle.operators import Spread
from django_txtasks.models import FinishedTask, Outcome, Status, Task

if TYPE_CHECKING:
    Tasks = QuerySet[Task]
    Base = admin.ModelAdmin[Task]
else:
    Base = object

ROWS_PER_CHUNK = 500


class Act(NamedTuple):
    """One state change as a person sees it.

    Attributes:
        name: the action, which is also the verb in ``operations``.
        take: moves the tasks with these ids if they are in ``state``; returns the moved tasks.
        state: the state in which a task must be.
        button: its name on the page of one task.
        log: the line in the admin's history.
        done, left: messages about ``n`` tasks that moved, or did not.
        barred: message about ``n`` compensated tasks; None if the action is allowed for them.
        asks: what the page says that asks, for an action that cannot be undone; None = only many tasks are asked
            about.
        hint: True if workers get a hint for the moved tasks.
        ends: the outcome of the tasks, if they leave the live table.
        spreads: True if each task can get a time of its own.
    """

    name: str
    take: Callable[..., operators.Moved]
    state: Status
    button: Any
    log: Any
    done: Any
    left: Any
    barred: Any = None
    asks: Any = None
    hint: bool = False
    ends: Outcome | None = None
    spreads: bool = False


def _cancel(alias: str, ids: list[uuid.UUID]) -> operators.Moved:
    return operators.cancel(alias, ids, keep=get_config().keeps(Outcome.CANCELLED))


def _discard(alias: str, ids: list[uuid.UUID]) -> operators.Moved:
    return operators.discard(alias, ids, keep=get_config().keeps(Outcome.DISCARDED))


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
        name="run_now", take=operators.run_now, state=Status.PENDING, hint=True, spreads=True,
        button=_("Run now"), log=_("Made due at once."), left=_NOT_PENDING,
        done=ngettext_lazy("%(n)s task made due now.", "%(n)s tasks made due now.", "n"),
    ),
    Act(
        name="hold", take=operators.hold, state=Status.PENDING,
        button=_("Hold"), log=_("Held."), left=_NOT_PENDING,
        done=ngettext_lazy("%(n)s task held.", "%(n)s tasks held.", "n"),
    ),
    Act(
        name="resume", take=operators.resume, state=Status.HELD, hint=True,
        button=_("Resume"), log=_("Resumed."), left=_NOT_HELD,
        done=ngettext_lazy("%(n)s task resumed.", "%(n)s tasks resumed.", "n"),
    ),
    Act(
        name="cancel", take=_cancel, state=Status.PENDING, ends=Outcome.CANCELLED,
        button=_("Cancel"), log=_("Cancelled."), left=_NOT_PENDING,
        asks=_("A cancelled task never runs and cannot be restored. It can only be enqueued again."),
        done=ngettext_lazy("%(n)s task cancelled.", "%(n)s tasks cancelled.", "n"),
    ),
    Act(
        name="ask_to_stop", take=operators.ask_to_stop, state=Status.CLAIMED,
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
        name="revive", take=operators.revive, state=Status.DEAD, hint=True, spreads=True,
        button=_("Revive"), log=_("Revived."), left=_NOT_DEAD, barred=_COMPENSATED,
        done=ngettext_lazy("%(n)s task revived.", "%(n)s tasks revived.", "n"),
    ),
    Act(
        name="discard", take=_discard, state=Status.DEAD, ends=Outcome.DISCARDED,
        button=_("Discard"), log=_("Discarded."), left=_NOT_DEAD,
        asks=_("A discarded task is never tried again and cannot be revived. It can only be enqueued again."),
        done=ngettext_lazy("%(n)s task discarded.", "%(n)s tasks discarded.", "n"),
    ),
)}  # fmt: skip


class TaskActions(Base):
    """The actions of the task list. Each action has a permission; a user sees only the permitted actions."""

    actions = tuple(ACTS)
    is_id: Callable[[str], bool]

    @admin.action(permissions=["run_now"], description=_("Run selected tasks now (pending)"))
    def run_now(self, request: HttpRequest, queryset: Tasks) -> HttpResponse | None:
        """Make pending tasks due now instead of later."""
        return self._do(request, queryset, "run_now")

    @admin.action(permissions=["hold"], description=_("Hold selected tasks (pending)"))
    def hold(self, request: HttpRequest, queryset: Tasks) -> HttpResponse | None:
        """Hold pending tasks: PENDING -> HELD."""
        return self._do(request, queryset, "hold")

    @admin.action(permissions=["resume"], description=_("Resume selected tasks (held)"))
    def resume(self, request: HttpRequest, queryset: Tasks) -> HttpResponse | None:
        """Let held tasks run again: HELD -> PENDING."""
        return self._do(request, queryset, "resume")

    @admin.action(permissions=["cancel"], description=_("Cancel selected tasks (pending)"))
    def cancel(self, request: HttpRequest, queryset: Tasks) -> HttpResponse | None:
        """Cancel pending tasks: PENDING -> finished as cancelled."""
        return self._do(request, queryset, "cancel")

    @admin.action(
        permissions=["ask_to_stop"], description=_("Ask selected tasks to stop (claimed)")
    )
    def ask_to_stop(self, request: HttpRequest, queryset: Tasks) -> HttpResponse | None:
        """Ask claimed tasks to stop."""
        return self._do(request, queryset, "ask_to_stop")

    @admin.action(permissions=["revive"], description=_("Revive selected tasks (dead)"))
    def revive(self, request: HttpRequest, queryset: Tasks) -> HttpResponse | None:
        """Let dead tasks run again: DEAD -> PENDING."""
        return self._do(request, queryset, "revive")

    @admin.action(permissions=["discard"], description=_("Discard selected tasks (dead)"))
    def discard(self, request: HttpRequest, queryset: Tasks) -> HttpResponse | None:
        """Discard dead tasks: DEAD -> finished as discarded."""
        return self._do(request, queryset, "discard")

    # Django calls these methods for the permissions that the actions name.
    def has_run_now_permission(self, request: HttpRequest) -> bool:
        return may(request, "run_now")

    def has_hold_permission(self, request: HttpRequest) -> bool:
        return may(request, "hold")

    def has_resume_permission(self, request: HttpRequest) -> bool:
        return may(request, "resume")

    def has_cancel_permission(self, request: HttpRequest) -> bool:
        return may(request, "cancel")

    def has_ask_to_stop_permission(self, request: HttpRequest) -> bool:
        return may(request, "ask_to_stop")

    def has_revive_permission(self, request: HttpRequest) -> bool:
        return may(request, "revive")

    def has_discard_permission(self, request: HttpRequest) -> bool:
        return may(request, "discard")

    def _do(self, request: HttpRequest, queryset: Tasks, name: str) -> HttpResponse | None:
        """Act, or show a page that asks and sends the same action again; permissions are checked again then.

        The answer is the page of the task if its button was pressed there; None = the list.
        """
        act = ACTS[name]
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
        taken = take(request, queryset, act, spread)
        if taken.moved:
            self.message_user(request, act.done % {"n": taken.moved}, messages.SUCCESS)
        if taken.barred:
            self.message_user(request, act.barred % {"n": taken.barred}, messages.WARNING)
        if left := taken.chosen - taken.moved - taken.barred:
            self.message_user(request, act.left % {"n": left}, messages.WARNING)
        for text in names.without_worker(taken.alias, taken.due) if taken.due else ():
            self.message_user(request, text, messages.WARNING)


def may(request: HttpRequest, name: str) -> bool:
    """Return True if the user has the permission for this action."""
    return request.user.has_perm(f"txtasks.{name}_task")


@dataclass
class Taken:
    """Counts of one action: tasks chosen, tasks moved, and compensated tasks that may not be moved.

    Attributes:
        due: queue and function of the tasks that workers may run now.
    """

    alias: str
    chosen: int = 0
    moved: int = 0
    barred: int = 0
    due: set[tuple[str, str]] = field(default_factory=set)


def take(request: HttpRequest, queryset: Tasks, act: Act, spread: Spread | None = None) -> Taken:
    """Change the state of the chosen tasks. Each chunk commits separately, together with its history entries."""
    alias = queryset.select_for_update().db  # the primary, even if pages read a replica
    taken = Taken(alias)
    for chunk in _chunks(queryset.using(alias)):
        taken.chosen += len(chunk)
        moved = _take_chunk(request, alias, act, chunk, spread)
        taken.moved += len(moved)
        if act.hint:
            taken.due |= {(queue, chunk[task_id]) for task_id, queue in moved}
        if act.barred:
            taken.barred += Task.objects.using(alias).compensated().filter(pk__in=chunk).count()
    if request.POST.get("select_across") != "1":
        # Count also the chosen tasks that have left the list since the page was loaded.
        taken.chosen = max(taken.chosen, len(set(request.POST.getlist(ACTION_CHECKBOX_NAME))))
    return taken


def _take_chunk(
    request: HttpRequest, alias: str, act: Act, chunk: dict[uuid.UUID, str], spread: Spread | None
) -> operators.Moved:
    with transaction.atomic(using=alias):
        moved = act.take(alias, list(chunk), *([] if spread is None else [spread]))
        _log(request, act, {task_id: chunk[task_id] for task_id, _queue in moved})
        if act.hint and spread is None:
            notify_on_commit(alias, moved)
    return moved


def _chunks(queryset: Tasks) -> Iterator[dict[uuid.UUID, str]]:
    """Read the chosen tasks in pages, in the order of their keys, so that rows that leave the set shift
    nothing.
    """
    rows = _first(queryset)
    while rows:
        yield {as_uuid(task_id): name for task_id, name in rows}
        *_, (last, _) = rows
        rows = _first(queryset.filter(pk__gt=last))


def _first(queryset: Tasks) -> list[tuple[Any, str]]:
    with following_indexes(queryset.db):
        return list(queryset.order_by("pk").values_list("pk", "task_name")[:ROWS_PER_CHUNK])


def _log(request: HttpRequest, act: Act, names: dict[uuid.UUID, str]) -> None:
    """Write an entry of the admin's history for each task, under the model whose page shows the task now."""
    is_kept = act.ends is None or get_config().keeps(act.ends)
    model = FinishedTask if act.ends and is_kept else Task
    flag = CHANGE if is_kept else DELETION
    tasks = [model(id=task_id, task_name=name) for task_id, name in names.items()]
    if tasks:
        LogEntry.objects.log_actions(request.user.pk, tasks, flag, str(act.log))  # type: ignore[arg-type]
