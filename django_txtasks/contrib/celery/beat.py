"""The periodic tasks of django-celery-beat as schedules. Its tables are only read."""

from __future__ import annotations

import difflib
import json
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from typing import Any

import celery
from django.apps import apps
from django.db import connections, transaction

from django_txtasks.conf import get_config
from django_txtasks.contrib.celery.crontabs import cron_of
from django_txtasks.contrib.celery.rows import target_of
from django_txtasks.core.declaring import registry
from django_txtasks.core.rows.enqueueing import insert
from django_txtasks.exceptions import InvalidSchedule, LibraryMissing, TxTasksError
from django_txtasks.features.schedules import changes
from django_txtasks.features.schedules.periodic import DeclaredSchedule, check, new_task
from django_txtasks.models import FinishedTask, Schedule, Task
from django_txtasks.operations import operators

MODEL = "django_celery_beat.PeriodicTask"
SECONDS = {"microseconds": 1e-6, "seconds": 1, "minutes": 60, "hours": 3600, "days": 86_400}
OF_ROUTING = ("queue", "exchange", "routing_key", "priority")
NO_HEADERS = (None, "", "{}")
SIMILAR = 0.9
"""Least similarity of a name to one in the code, by ``difflib``, so that it may be misspelt."""
MOMENTS = uuid.UUID("6ecba4e9-b3b0-5c07-a5ff-57df2d9d1c9b")
"""Namespace of the ids of tasks for one moment, so that a second import finds them."""


@dataclass(frozen=True)
class Found:
    """A periodic task of beat.

    Attributes:
        is_on: beat sends it.
        schedule: its schedule; None: it is for one moment, or refused.
        moment: the time of a task for one moment.
        is_over: beat has sent the task for one moment, so nothing is left to write.
        why_not: the reason why it is refused; empty: it is not.
        meant: a name in the code that is similar to the task's, which no code here has; empty: the code has the
            task, or nothing similar.
    """

    name: str
    is_on: bool
    task_name: str
    queue_name: str = ""
    args: list[Any] = field(default_factory=list)
    kwargs: dict[str, Any] = field(default_factory=dict)
    schedule: DeclaredSchedule | None = None
    moment: datetime | None = None
    is_over: bool = False
    why_not: str = ""
    meant: str = ""


def periodic_tasks(alias: str) -> Iterator[Found]:
    """Yield all periodic tasks by name.

    Raises:
        LibraryMissing: django-celery-beat is not among the installed apps.
    """
    try:
        model = apps.get_model(MODEL)
    except LookupError:
        raise LibraryMissing(
            "django_celery_beat is not in INSTALLED_APPS, so there are no periodic tasks to import."
        ) from None
    queue, known = _queue_of_celery(), _names()
    rows = model._default_manager.select_related("interval", "crontab", "solar", "clocked")
    for row in rows.order_by("name"):
        try:
            yield replace(_read(alias, row, queue), meant=_similar(row.task, known))
        except TxTasksError as error:
            yield Found(row.name, row.enabled, row.task, why_not=str(error).rstrip("."))


def line_of(found: Found) -> str:
    """Return a periodic task that is not refused, as text for people."""
    if found.schedule is None:
        when = f"once at {found.moment:%Y-%m-%d %H:%M:%S} UTC"
        if found.is_over:
            return f"{when}, {found.task_name}: beat has sent it, so there is nothing to import"
    elif found.schedule.cron:
        when = f"cron {found.schedule.cron} ({found.schedule.tz})"
    else:
        when = f"every {found.schedule.every:.12g} s"
    grace = "" if found.schedule is None else _grace_of(found.schedule)
    off = "" if found.is_on else ", off in beat"
    return f"{when}, {found.task_name} in the queue {found.queue_name}{grace}{off}"


def _grace_of(schedule: DeclaredSchedule) -> str:
    if schedule.grace is None:
        return ""
    return f", its task left out if it would be enqueued {schedule.grace:.12g} s late"


def save(alias: str, found: Found, *, by: str) -> str:
    """Write a periodic task, unless it is there; return the result as text.

    A schedule is off, and a task for one moment is held, until a person turns it on: beat still sends it.
    """
    if found.schedule is not None:
        if Schedule.objects.using(alias).filter(pk=found.name).exists():
            return "is there already"
        columns = {**found.schedule.configuration, "enabled": False}
        changes.add(alias, found.name, columns, by=by, is_import=True)
        return "written, off"
    task_id = uuid.uuid5(MOMENTS, f"{found.name} {found.moment}")
    if any(
        model.objects.using(alias).filter(pk=task_id).exists() for model in (Task, FinishedTask)
    ):
        return "is there already"
    task = new_task(found, found.args, found.kwargs)
    defaults = task.defaults._replace(run_after=found.moment)
    with transaction.atomic(using=alias):
        insert(connections[alias], [task._replace(task_id=task_id, defaults=defaults)])
        operators.hold(alias, [task_id])
    return f"written as the task {task_id}, held"


def _read(alias: str, row: Any, queue_of_celery: str) -> Found:
    """Return a row of beat, read.

    Raises:
        TxTasksError: the reason why it becomes nothing.
    """
    _refuse_what_has_no_match(row)
    declaration = registry.find(row.task)
    queue = queue_of_celery if declaration is None else declaration.queue_name
    if not queue:
        raise InvalidSchedule(
            f"no @task declares {row.task} here, and no queue of TXTASKS['hand_over'] goes to a Celery app"
        )
    args, kwargs = _json(row.args, list), _json(row.kwargs, dict)
    cron, every = "", None
    if row.crontab is not None:
        cron = cron_of(row.crontab)
    elif row.interval is not None:
        every = float(row.interval.every * SECONDS[row.interval.period])
    schedule = DeclaredSchedule(
        name=row.name,
        task_name=row.task,
        queue_name=queue,
        args=args,
        kwargs=kwargs,
        cron=cron,
        every=every,
        tz=str(row.crontab.timezone) if cron else "UTC",
        catch_up="last",
        grace=None if row.expire_seconds is None else float(row.expire_seconds),
        ready_by="",
        using=alias,
    )
    moment = None if row.clocked is None else row.clocked.clocked_time
    if moment is None:
        check(schedule)
        return Found(row.name, row.enabled, row.task, queue, args, kwargs, schedule)
    is_past = moment <= datetime.now(timezone.utc)
    if is_past and row.enabled:
        raise InvalidSchedule(f"its time, {moment:%Y-%m-%d %H:%M} UTC, has passed")
    return Found(
        row.name, row.enabled, row.task, queue, args, kwargs, moment=moment, is_over=is_past
    )


def _refuse_what_has_no_match(row: Any) -> None:
    if row.solar is not None:
        raise InvalidSchedule("it follows the sun, which schedules do not")
    if row.one_off and row.clocked is None:
        raise InvalidSchedule("it is to run once. Say this in the code: apply_async(eta=...)")
    if row.start_time is not None and row.start_time > datetime.now(timezone.utc):
        raise InvalidSchedule(f"it starts at {row.start_time:%Y-%m-%d %H:%M} UTC. Import it then")
    if row.expires is not None:
        raise InvalidSchedule(
            f"it ends at {row.expires:%Y-%m-%d %H:%M} UTC, and schedules do not end"
        )
    for name in OF_ROUTING:
        if (value := getattr(row, name)) is not None:
            raise InvalidSchedule(
                f"it has {name} {value!r}. Say this in Celery's task_routes or in the task, and empty the field"
            )
    if row.headers not in NO_HEADERS:
        raise InvalidSchedule("it has headers of its own. Empty the field")


def _json(text: str, kind: type[Any]) -> Any:
    try:
        value = json.loads(text or "null") or kind()
    except ValueError as error:
        raise InvalidSchedule(f"{text[:100]!r} is not JSON: {error}") from None
    if not isinstance(value, kind):
        raise InvalidSchedule(f"{text[:100]!r} is {type(value).__name__}, not {kind.__name__}")
    return value


def _queue_of_celery() -> str:
    """Return the first queue that is handed over to a Celery app; empty: no queue is."""
    return next(iter(_apps()), "")


def _apps() -> dict[str, Any]:
    """Return the Celery apps to which queues are handed over, by queue."""
    targets = {queue: target_of(one.to) for queue, one in get_config().hand_over.items()}
    return {queue: app for queue, app in targets.items() if isinstance(app, celery.Celery)}


def _names() -> set[str]:
    """Return the tasks that this code and these apps declare. The code of other tasks may be elsewhere."""
    known = set(registry.names())
    for app in _apps().values():
        app.loader.import_default_modules()
        known |= set(app.tasks)
    return known


def _similar(name: str, known: set[str]) -> str:
    found = [] if name in known else difflib.get_close_matches(name, known, n=1, cutoff=SIMILAR)
    return found[0] if found else ""
