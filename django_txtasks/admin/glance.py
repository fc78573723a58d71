"""The parts of the page *At a glance* as text and links; its templates only place them."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from datetime import timedelta
from typing import Any, NamedTuple
from urllib.parse import urlencode

from django.urls import NoReverseMatch, reverse
from django.utils.formats import number_format
from django.utils.translation import gettext as _
from django.utils.translation import ngettext_lazy

from django_txtasks.admin import shown
from django_txtasks.admin.columns import json_text
from django_txtasks.models import Status, Task
from django_txtasks.overview import (
    Count,
    FullLane,
    LateSchedule,
    Overview,
    Problem,
    QueueFigures,
    RunningTask,
    WorkerFigures,
)
from django_txtasks.wording import span

MOST_ARGUMENT_CHARACTERS = 60
MOST_WORKERS_SHOWN = 20
_WORKERS = ngettext_lazy("%(n)s worker", "%(n)s workers", "number")
_SLOTS = ngettext_lazy("%(n)s slot", "%(n)s slots", "number")
_OF_SLOTS = ngettext_lazy("of %(n)s slot", "of %(n)s slots", "number")


class Tile(NamedTuple):
    """One of the large numbers: its label, its list, a note below it, and whether the note is a warning."""

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


class ShownQueue(NamedTuple):
    """A row of the table of queues."""

    figures: QueueFigures
    url: str
    cells: list[Cell]
    oldest: str
    served_by: str
    is_bad: bool


class Cell(NamedTuple):
    """A number of the table of queues with its list; ``label`` names the column."""

    label: str
    number: str
    url: str
    is_bad: bool = False
    age: str = ""


class ShownTask(NamedTuple):
    """A running task."""

    name: str
    url: str
    details: str
    since: str
    limit: str
    percent: int | None
    is_long: bool


class ShownRow(NamedTuple):
    """A lane or a schedule: its name, its page, and its state in words."""

    name: str
    url: str
    cells: tuple[str, ...]
    note: str


class ShownWorker(NamedTuple):
    """A worker."""

    figures: WorkerFigures
    url: str
    queues: str
    load: str
    percent: int
    seen: str
    note: str
    is_bad: bool


class _Links:
    """Addresses of the pages of one admin site; empty if the site has no such page."""

    def __init__(self, site: str) -> None:
        self._site = site

    def tasks(self, **filters: str) -> str:
        """Return the list of tasks with these filters."""
        url = self.page("task_changelist")
        return url and f"{url}?{urlencode(filters)}"

    def page(self, name: str, *args: Any) -> str:
        """Return a page of this app."""
        try:
            return reverse(f"admin:txtasks_{name}", args=args, current_app=self._site)
        except NoReverseMatch:
            return ""


def context_of(found: Overview, user: Any, site: str) -> dict[str, Any]:
    """Return the context of the page's body.

    Args:
        user: offers only the buttons that this user may press.
        site: name of the admin site.
    """
    links = _Links(site)
    return {
        "overview": found,
        "problems": [_problem(one, user, links) for one in found.problems],
        "tiles": _tiles(found, links),
        "queues": [_queue(one, links) for one in found.queues],
        "may_pause": user.has_perm("txtasks.add_pausedqueue"),
        "may_resume": user.has_perm("txtasks.delete_pausedqueue"),
        "running": _running(found, links),
        "all_running": links.tasks(state=Status.CLAIMED),
        "running_total": number(found.running_total),
        "workers": [_worker(one, links) for one in found.workers[:MOST_WORKERS_SHOWN]],
        "all_workers": links.page("worker_changelist"),
        "cleaner": _cleaner(found),
        "lanes": [_lane(one, links) for one in found.lanes],
        "schedules": [_schedule(one, links) for one in found.schedules],
        "all_schedules": links.page("schedule_changelist"),
        "number_of_errors": sum(not one.is_warning for one in found.problems),
        "number_of_warnings": sum(one.is_warning for one in found.problems),
    }


def number(count: Count | int) -> str:
    """Return a number with separators, and a plus if there are more."""
    if isinstance(count, int):
        return str(number_format(count, force_grouping=True))
    return f"{number(count.number)}{'+' * count.is_capped}"


def _counted(noun: Any, amount: int) -> str:
    return str(noun % {"number": amount, "n": number(amount)})


def _age(count: Count) -> str:
    """Return the age of a count that the database did not renew in time; empty if it is new."""
    return _("%s ago") % span(timedelta(seconds=count.age)) if count.age >= 1 else ""


def _span(seconds: float) -> str:
    return shown.short_span(timedelta(seconds=seconds)) if seconds < 1 else _rough(seconds)


def _rough(seconds: float) -> str:
    return span(timedelta(seconds=seconds))


def _problem(one: Problem, user: Any, links: _Links) -> ShownProblem:
    resume = url = link = ""
    if one.name == "paused_queue" and user.has_perm("txtasks.delete_pausedqueue"):
        resume = one.subject
    elif one.name in ("unserved_queue", "undeclared_names"):
        url = links.tasks(state=Status.PENDING, queue=one.subject)
        link = _("Look at these tasks")
    elif one.name == "full_lane":
        url, link = links.page("lane_change", one.subject), _("Look at the lane")
    elif one.name == "schedule":
        url = links.page("schedule_change", one.subject)
        link = _("Look at the schedule")
    elif one.name == "silent_workers":
        url, link = links.page("worker_changelist"), _("Look at the workers")
    elif one.name == "no_cleaner":
        url, link = links.page("cleaner_changelist"), _("Look at the cleaners")
    elif one.name == "long_running":
        url, link = links.tasks(running="long"), _("Look at these tasks")
    return ShownProblem(one.text, one.is_warning, resume, url, link)


def _tiles(found: Overview, links: _Links) -> list[Tile]:
    due, dead = found.total("due"), found.total("dead")
    oldest = _("oldest %s") % _rough(found.oldest) if found.oldest >= 1 else ""
    running = found.running_total
    slots = _counted(_OF_SLOTS, found.slots)
    retrying, later, held = (found.total(state) for state in ("retrying", "later", "held"))
    return [
        Tile(number(due), _("due"), links.tasks(due="due"), oldest, found.oldest >= 60, _age(due)),
        Tile(number(running), _("running"), links.tasks(state=Status.CLAIMED), slots),
        Tile(
            number(retrying), _("retrying"), links.tasks(state=Status.PENDING), "", False,
            _age(retrying),
        ),
        Tile(number(later), _("later"), links.tasks(due="later"), "", False, _age(later)),
        Tile(number(dead), _("dead"), links.tasks(state=Status.DEAD), "", bool(dead), _age(dead)),
        Tile(number(held), _("held"), links.tasks(state=Status.HELD), "", False, _age(held)),
    ]  # fmt: skip


def _queue(one: QueueFigures, links: _Links) -> ShownQueue:
    cells = [
        _cell(_("due"), one.due, links.tasks(due="due", queue=one.name)),
        Cell(_("running"), number(one.running), links.tasks(state=Status.CLAIMED, queue=one.name)),
        _cell(_("retrying"), one.retrying, links.tasks(state=Status.PENDING, queue=one.name)),
        _cell(_("later"), one.later, links.tasks(due="later", queue=one.name)),
        _cell(_("dead"), one.dead, links.tasks(state=Status.DEAD, queue=one.name))._replace(
            is_bad=bool(one.dead)
        ),
    ]
    serves = _("no living worker")
    if one.workers:
        serves = f"{_counted(_WORKERS, one.workers)} · {_counted(_SLOTS, one.slots)}"
    is_bad = one.pause is not None or (bool(one.due) and not one.workers)
    oldest = _span(one.oldest) if one.due else shown.EMPTY
    return ShownQueue(one, links.tasks(queue=one.name), cells, oldest, serves, is_bad)


def _cell(label: str, count: Count, url: str) -> Cell:
    return Cell(label, number(count) if count else "·", url, False, _age(count))


def _running(found: Overview, links: _Links) -> list[ShownTask]:
    calls = _calls(found.database, found.running)
    return [
        ShownTask(
            name=one.task_name,
            url=links.page("task_change", one.id),
            details=" · ".join(filter(None, (calls.get(one.id, ""), _where(one), _progress(one)))),
            since=_rough(one.seconds),
            limit=_("of %s") % _rough(one.timeout) if one.timeout else _("no time limit"),
            percent=None if one.share is None else round(100 * one.share),
            is_long=one.share is not None and one.share > 0.9,
        )
        for one in found.running
    ]


def _calls(alias: str, tasks: Iterable[RunningTask]) -> dict[uuid.UUID, str]:
    """Return the arguments of tasks in one line, by id, with secrets redacted."""
    rows = Task.objects.using(alias).filter(pk__in=[one.id for one in tasks])
    texts = rows.values_list("pk", "task_name", json_text("args"), json_text("kwargs"))
    return {
        pk: shown.call(args, kwargs, name, MOST_ARGUMENT_CHARACTERS)
        for pk, name, args, kwargs in texts
    }


def _where(one: RunningTask) -> str:
    return f"{one.host} · {one.pid}" if one.pid is not None else str(one.worker)[:8]


def _progress(one: RunningTask) -> str:
    if one.progress is None:
        return ""
    share = one.progress.share
    done = f"{share:.0%}" if share is not None else f"{one.progress.done:.12g}"
    return f"{done} {one.progress.note}".strip()


def _worker(one: WorkerFigures, links: _Links) -> ShownWorker:
    states = {
        "silent": _("silent: nobody has declared it lost yet"),
        "lost": _("silent: declared lost"),
        "suspected": _("suspected"),
    }
    return ShownWorker(
        figures=one,
        url=links.page("worker_change", one.id),
        queues=shown.line(", ".join(one.queues), 80),
        load=_("%(running)s of %(slots)s")
        % {"running": number(one.running), "slots": number(one.slots)},
        percent=round(100 * one.share),
        seen=_span(one.seen),
        note=states.get(one.state, ""),
        is_bad=not one.is_alive,
    )


def _lane(one: FullLane, links: _Links) -> ShownRow:
    note = _("paused") if one.is_paused else one.limits
    cells = (number(one.running), number(one.waiting))
    return ShownRow(one.name, links.page("lane_change", one.name), cells, note)


def _schedule(one: LateSchedule, links: _Links) -> ShownRow:
    late = _("late by %s") % _rough(one.late) if one.late else ""
    note = one.problem or late or _("not done by its hour")
    return ShownRow(one.name, links.page("schedule_change", one.name), (one.state,), note)


def _cleaner(found: Overview) -> str:
    last = found.cleaners.last_pass
    if last is None:
        return _("cleaner: no pass yet")
    return _("cleaner: last pass %s ago") % _rough(last)
