"""The running tasks, workers, lanes and schedules of the page *At a glance*."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from typing import Any, NamedTuple

from django.utils.translation import gettext as _

from django_txtasks.admin import shown
from django_txtasks.admin.columns import json_text
from django_txtasks.admin.glance.words import Links, exact, number, rough
from django_txtasks.core.ground.wording import time_text
from django_txtasks.models import Task
from django_txtasks.overview import FullLane, LateSchedule, Overview, RunningTask, WorkerFigures

MOST_ARGUMENT_CHARACTERS = 60


class ShownRow(NamedTuple):
    """A lane or a schedule: its name, its page, and its state in words."""

    name: str
    url: str
    cells: tuple[str, ...]
    note: str


def running(found: Overview, links: Links) -> list[dict[str, Any]]:
    calls = _calls(found.database, found.running)
    return [
        {
            "name": one.task_name,
            "url": links.page("task_change", one.id),
            "details": _details(one, calls.get(one.id, "")),
            "since": rough(one.seconds),
            "limit": _("of %(span)s") % {"span": rough(one.timeout)}
            if one.timeout
            else _("no time limit"),
            "percent": None if one.share is None else round(100 * one.share),
            "is_long": one.share is not None and one.share > 0.9,
        }
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


def _details(one: RunningTask, call: str) -> str:
    asked = ""
    if one.asked_at is not None:
        asked = _("asked to stop at %(at)s") % {"at": time_text(one.asked_at)}
    return " · ".join(filter(None, (call, _where(one), _progress(one), asked)))


def _where(one: RunningTask) -> str:
    return f"{one.host} · {one.pid}" if one.pid is not None else str(one.worker)[:8]


def _progress(one: RunningTask) -> str:
    if one.progress is None:
        return ""
    share = one.progress.share
    done = shown.percent(share) if share is not None else shown.amount(one.progress.done)
    return f"{done} {one.progress.note}".strip()


def worker(one: WorkerFigures, links: Links) -> dict[str, Any]:
    states = {
        "silent": _("silent: nobody has declared it lost yet"),
        "lost": _("silent: declared lost"),
        "suspected": _("suspected"),
    }
    return {
        "figures": one,
        "url": links.page("worker_change", one.id),
        "queues": shown.line(", ".join(one.queues), 80),
        "load": _("drain")
        if one.is_drain
        else _("%(running)s of %(slots)s")
        % {"running": number(one.running), "slots": number(one.slots)},
        "percent": round(100 * one.share),
        "seen": exact(one.seen),
        "note": states.get(one.state, _("runs tasks alone after a crash") if one.is_alone else ""),
        "is_bad": not one.is_alive,
    }


def lane(one: FullLane, links: Links) -> ShownRow:
    note = _("paused") if one.is_paused else one.limits
    cells = (number(one.running), number(one.waiting))
    return ShownRow(one.name, links.page("lane_change", one.name), cells, note)


def schedule(one: LateSchedule, links: Links) -> ShownRow:
    late = _("late by %(span)s") % {"span": rough(one.late)} if one.late else ""
    off = _("off for %(span)s") % {"span": rough(one.off)} if one.off else ""
    note = one.problem or late or off or _("not done by its hour")
    return ShownRow(
        one.name, links.page("schedule_change", one.name), (shown.state(one.state),), note
    )


def cleaner(found: Overview) -> str:
    last = found.cleaners.last_pass
    if last is None:
        return _("cleaner: no pass yet")
    return _("cleaner: last pass %(span)s ago") % {"span": rough(last)}
