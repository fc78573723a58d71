"""The parts of the page *At a glance* as text and links; its templates only place them.

* ``queues``: problems, large numbers, queues
* ``processes``: running tasks, workers, lanes, schedules
* ``figures``: the chart and the functions, from ``charts``
* ``costs``: the cost of the queue for the database
* ``words``: numbers, times and addresses
"""

from __future__ import annotations

from typing import Any

from django_txtasks.admin.glance.costs import costs
from django_txtasks.admin.glance.figures import cause, chart, functions
from django_txtasks.admin.glance.processes import cleaner, lane, running, schedule, worker
from django_txtasks.admin.glance.queues import problem, queue, tiles
from django_txtasks.admin.glance.words import Links, number
from django_txtasks.features.figures.appending import WRITE_SECONDS
from django_txtasks.models import Status
from django_txtasks.overview import Overview
from django_txtasks.overview.gathering import MOST_BUCKETS

MOST_WORKERS_SHOWN = 20


def context_of(found: Overview, user: Any, site: str, span: str = "") -> dict[str, Any]:
    """Return the context of the page's body.

    Args:
        user: offers only the buttons that this user may press.
        site: name of the admin site.
        span: name of the time that the chart shows; with an unknown name it is the last hour.
    """
    links = Links(site)
    return {
        "overview": found,
        "problems": [problem(one, user, links) for one in found.problems],
        "tiles": tiles(found, links),
        "most_buckets": number(MOST_BUCKETS),
        "queues": [queue(one, links) for one in found.queues],
        "chart": chart(found, span),
        "seconds_of_figures": round(WRITE_SECONDS),
        "functions": functions(found, links),
        "costs": costs(found),
        "causes": [cause(one, found.at, links) for one in found.causes],
        "may_pause": user.has_perm("txtasks.add_pausedqueue"),
        "may_resume": user.has_perm("txtasks.delete_pausedqueue"),
        "running": running(found, links),
        "all_running": links.tasks(state=Status.CLAIMED),
        "running_total": number(found.running_total),
        "workers": [worker(one, links) for one in found.workers[:MOST_WORKERS_SHOWN]],
        "all_workers": links.page("worker_changelist"),
        "cleaner": cleaner(found),
        "lanes": [lane(one, links) for one in found.lanes],
        "schedules": [schedule(one, links) for one in found.schedules],
        "all_schedules": links.page("schedule_changelist"),
        "number_of_errors": sum(not one.is_warning for one in found.problems),
        "number_of_warnings": sum(one.is_warning for one in found.problems),
    }
