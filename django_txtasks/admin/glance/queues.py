"""The problems, the large numbers and the queues of the page *At a glance*."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from django.utils.translation import gettext as _
from django.utils.translation import ngettext_lazy

from django_txtasks.admin import shown
from django_txtasks.admin.glance import charts
from django_txtasks.admin.glance.words import Links, age_of, counted, exact, number, rough
from django_txtasks.conf import get_config
from django_txtasks.core.ground.wording import decimal
from django_txtasks.features.reports.whose import is_handed
from django_txtasks.models import Status
from django_txtasks.overview import Count, Overview, Problem, QueueFigures
from django_txtasks.overview.counting import RETRYING
from django_txtasks.stats import Point

_OF_WORKERS = ("silent_workers", "nobody_listens", "deaf_workers", "no_broker", "several_releases")
_WORKERS = ngettext_lazy("%(n)s worker", "%(n)s workers", "number")

_DRAINS = ngettext_lazy("%(n)s drain", "%(n)s drains", "number")


_SLOTS = ngettext_lazy("%(n)s slot", "%(n)s slots", "number")


_OF_SLOTS = ngettext_lazy("of %(n)s slot", "of %(n)s slots", "number")


class LinkedNumber(NamedTuple):
    """A number with its label, its list, its age, a note below it, and whether it is a warning."""

    number: str
    label: str
    url: str
    note: str = ""
    is_bad: bool = False
    age: str = ""


class ShownProblem(NamedTuple):
    """A sentence, and the button or link that helps.

    Attributes:
        resume: the queue that the button resumes; empty = no button.
        url: a page to look at; empty = none.
    """

    text: str
    is_warning: bool
    resume: str = ""
    url: str = ""
    link: str = ""


def problem(one: Problem, user: Any, links: Links) -> ShownProblem:
    resume = url = link = ""
    if one.name == "paused_queue" and user.has_perm("txtasks.delete_pausedqueue"):
        resume = one.subject
    elif one.name in ("unserved_queue", "undeclared_names"):
        of_function = {"task": one.function} if one.function else {}
        url = links.tasks(state=Status.PENDING, queue=one.subject, **of_function)
        link = _("Look at these tasks")
    elif one.name in ("dying_workers", "held_threads"):
        if one.function:
            url, link = links.tasks(task=one.function), _("Look at its tasks")
        else:
            url, link = links.page("worker_changelist"), _("Look at the workers")
    elif one.name == "queue_behind":
        url, link = links.tasks(due="due", queue=one.subject), _("Look at these tasks")
    elif one.name == "failing_cause":
        url = links.tasks(state=Status.DEAD, **({"cause": one.subject} if one.subject else {}))
        link = _("Look at this cause")
    elif one.task:
        url, link = links.page("task_change", one.task), _("Look at this task")
    elif one.name in ("schedule", "schedule_off"):
        url = links.page("schedule_change", one.subject)
        link = _("Look at the schedule")
    elif one.name in _OF_WORKERS:
        url, link = links.page("worker_changelist"), _("Look at the workers")
    elif one.name == "no_cleaner" and one.values["rows"]:
        url, link = links.page("cleaner_changelist"), _("Look at the cleaners")
    elif one.name == "long_running":
        url, link = links.tasks(running="long"), _("Look at these tasks")
    return ShownProblem(one.text, one.is_warning, resume, url, link)


def tiles(found: Overview, links: Links) -> list[LinkedNumber]:
    due, dead = found.total("due"), found.total("dead")
    oldest = _("oldest %(span)s") % {"span": rough(found.oldest)} if found.oldest >= 1 else ""
    running = found.running_total
    slots = counted(_OF_SLOTS, found.slots)
    retrying, later, held = (found.total(state) for state in ("retrying", "later", "held"))
    return [
        _tile(_("due"), due, links.tasks(due="due"))._replace(
            note=oldest, is_bad=found.oldest >= 60
        ),
        LinkedNumber(number(running), _("running"), links.tasks(state=Status.CLAIMED), slots),
        _tile(_("retrying"), retrying, links.tasks(state=RETRYING)),
        _tile(_("later"), later, links.tasks(due="later")),
        _tile(_("dead"), dead, links.tasks(state=Status.DEAD))._replace(is_bad=bool(dead)),
        _tile(_("held"), held, links.tasks(state=Status.HELD)),
    ]


def queue(one: QueueFigures, links: Links) -> dict[str, Any]:
    cells = [
        _cell(_("due"), one.due, links.tasks(due="due", queue=one.name)),
        LinkedNumber(
            number(one.running), _("running"), links.tasks(state=Status.CLAIMED, queue=one.name)
        ),
        _cell(_("retrying"), one.retrying, links.tasks(state=RETRYING, queue=one.name)),
        _cell(_("later"), one.later, links.tasks(due="later", queue=one.name)),
        _cell(_("dead"), one.dead, links.tasks(state=Status.DEAD, queue=one.name))._replace(
            is_bad=bool(one.dead)
        ),
    ]
    serves = _("no living drain") if is_handed(one.name) else _("no living worker")
    if one.workers and is_handed(one.name):
        serves = counted(_DRAINS, one.workers)
    elif one.workers:
        serves = f"{counted(_WORKERS, one.workers)} · {counted(_SLOTS, one.slots)}"
    is_bad = one.pause is not None or (bool(one.due) and not one.workers)
    oldest = exact(one.oldest) if one.due else shown.EMPTY
    return {
        "figures": one,
        "url": links.tasks(queue=one.name),
        "cells": cells,
        "oldest": oldest,
        "per_minute": _rate(one.per_minute),
        "bars": bars_of(one.minutes),
        "empty_in": _empty_in(one),
        "served_by": serves,
        "is_bad": is_bad,
        "can_pause": one.name in get_config().queues,
    }


def _tile(label: str, count: Count, url: str) -> LinkedNumber:
    return LinkedNumber(number(count), label, url, age=age_of(count))


def _cell(label: str, count: Count, url: str) -> LinkedNumber:
    return LinkedNumber(number(count) if count else "·", label, url, age=age_of(count))


def _rate(per_minute: float) -> str:
    return (
        number(round(per_minute)) if per_minute >= 10 or not per_minute else decimal(per_minute, 1)
    )


def _empty_in(one: QueueFigures) -> str:
    if not one.due:
        return shown.EMPTY
    if one.empty_in is None:
        return _("not known yet")
    if math.isinf(one.empty_in):
        return _("never")
    more = "> " if one.due.is_capped else ""
    return more + rough(max(1.0, one.empty_in))


def bars_of(points: Sequence[Point], line: Sequence[int | None] = ()) -> charts.Bars:
    return charts.bars(
        [one.succeeded for one in points], [one.failed + one.died for one in points], line
    )
