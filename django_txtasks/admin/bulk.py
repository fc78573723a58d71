"""An action on more tasks than one request changes: a page that asks, and the task ``django_txtasks.bulk``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from django.contrib import messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.contrib.admin.models import CHANGE, LogEntry
from django.db import transaction
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.utils.translation import gettext as _now
from django.utils.translation import gettext_lazy as _

from django_txtasks.admin import causes
from django_txtasks.admin.bounded import MAX_ROWS
from django_txtasks.admin.confirming import MAX_IN_REQUEST, Chosen
from django_txtasks.admin.numbers import RETRYING
from django_txtasks.conf import get_config
from django_txtasks.core.declaring import registry
from django_txtasks.features.bulk import NAME, ordering
from django_txtasks.models import Task
from django_txtasks.operations.choice import Choice
from django_txtasks.operations.operators import Spread
from django_txtasks.operations.pages import Bound, click_of
from django_txtasks.operations.slices import Order

if TYPE_CHECKING:
    from django_txtasks.admin.actions import Act, TaskActions

NUMBER_FIRST = 10
MAX_SAMPLES = 5
SPREADS = {"0": _("now"), "600": _("within 10 minutes"), "3600": _("within 1 hour")}
"""Times in seconds over which tasks are spread."""
BY_TASK, BY_HAND, FIRST = "task", "hand", "first"
BY_HAND_BOUND = Bound(rows=MAX_ROWS, seconds=2.0)
_FILTERS = {"state", "queue", "task", "cause", "lane"}
_NO_FILTERS = {"o", "p", "all", "e", "_facets"}
"""URL parameters of a list that choose no rows."""


def page(
    pages: TaskActions, request: HttpRequest, queryset: QuerySet[Task], act: Act, chosen: Chosen
) -> HttpResponse | None:
    """Ask how to change all tasks of a list, or do what the page's button says."""
    alias = queryset.select_for_update().db  # the primary, even if pages read a replica
    seconds = _seconds(request) if act.verb.can_spread else 0.0
    order = _order_of(pages, request, act, alias, seconds)
    queue = ordering.queue_for(alias, order.choice.queue) if order is not None else None
    way = request.POST.get("way")
    if way == BY_TASK and order is not None and queue is not None:
        total = chosen.moves if chosen.looked_at is None else None
        return _ordered(pages, request, act, order, queue=queue, total=total)
    if way in (BY_HAND, FIRST):
        ids, is_cut = chosen.ids[:NUMBER_FIRST], False
        if way == BY_HAND:
            ids = chosen.ids
            if order is not None:
                ids, is_cut = order.first_ids(MAX_IN_REQUEST, BY_HAND_BOUND)
        spread = Spread(click_of(alias, 0).at, seconds) if seconds else None
        pages.act(request, queryset.filter(pk__in=ids), act, spread)
        if len(ids) == MAX_IN_REQUEST:
            text = _now("These were the first %(n)s tasks. More may match: repeat the action.")
            pages.message_user(request, text % {"n": len(ids)}, messages.WARNING)
        elif is_cut:
            text = _now(
                "This request has read only %(rows)s rows, and others may match. Start a worker that can run the "
                "task for all of them, or use manage.py txtasks_task."
            )
            pages.message_user(request, text % {"rows": BY_HAND_BOUND.rows}, messages.WARNING)
        return None
    context = {
        "has_task": order is not None, "queue": queue, "spreads": SPREADS if act.verb.can_spread else {},
        "first": NUMBER_FIRST, "in_request": MAX_IN_REQUEST,
        "samples": chosen.examples[:MAX_SAMPLES], "selected": request.POST.getlist(ACTION_CHECKBOX_NAME)[:1],
    }  # fmt: skip
    return pages.ask(request, "bulk", act, chosen, context)


def _seconds(request: HttpRequest) -> float:
    value = request.POST.get("spread", "0")
    return float(value) if value in SPREADS else 0.0


def _ordered(
    pages: TaskActions,
    request: HttpRequest,
    act: Act,
    order: Order,
    *,
    queue: str,
    total: int | None,
) -> HttpResponse:
    """Enqueue the task, and show its page."""
    said = _now("%(act)s, for all %(state)s tasks (%(filters)s).") % {
        "act": act.button, "state": act.state.label, "filters": str(order.choice) or _now("no filter"),
    }  # fmt: skip
    with transaction.atomic(using=order.alias):
        handle = ordering.enqueue(order, queue, total)
        tasks: Any = [Task(id=handle.id, task_name=NAME)]
        LogEntry.objects.log_actions(request.user.pk, tasks, CHANGE, said)  # type: ignore[arg-type]
    text = _now(
        "This task does it, and its page shows the progress. To keep the other tasks as they are, ask it to stop."
    )
    pages.message_user(request, text, messages.SUCCESS)
    url = "admin:txtasks_task_change"
    return HttpResponseRedirect(reverse(url, args=[handle.id], current_app=pages.admin_site.name))


def _order_of(
    pages: TaskActions, request: HttpRequest, act: Act, alias: str, seconds: float
) -> Order | None:
    """Return the order for all tasks of the list; None = its rows are chosen by more than a task can be told."""
    if pages.get_queryset(request).query.where:  # the site shows only some rows
        return None
    choice = choice_of_list(request.GET.dict(), act)
    if choice is None or act.name == "ask_to_stop":  # few tasks run
        return None
    return Order(
        name=act.name, choice=choice, alias=alias, spread=seconds, status=act.state,
        by=request.user.get_username(),
    )  # fmt: skip


def choice_of_list(filters: Mapping[str, str], act: Act) -> Choice | None:
    """Return the filters of a list as a choice for an action; None if one of them is no filter of a choice."""
    given = {name: value for name, value in filters.items() if name not in _NO_FILTERS}
    if given.pop("q", "") or given.keys() - _FILTERS:
        return None
    cause = causes.parsed(given["cause"]) if "cause" in given else None
    state = given.get("state", act.state)
    is_right = state == act.state or (state == RETRYING and cause is not None)
    known = {"queue": get_config().queues, "task": registry.names()}
    are_known = all(given[name] in names for name, names in known.items() if name in given)
    if not (is_right and are_known) or ("cause" in given and cause is None):
        return None
    lane = given.get("lane")
    if lane is not None and (not lane or "\0" in lane):
        return None
    return Choice(queue=given.get("queue"), task=given.get("task"), cause=cause, lane=lane)
