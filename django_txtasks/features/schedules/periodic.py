"""``@periodic``: schedules that code declares, and the tasks of their ticks."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any, Literal, ParamSpec, TypeVar

from django.db import connections, transaction

from django_txtasks import signals
from django_txtasks.conf import get_config
from django_txtasks.core.declaring import registry
from django_txtasks.core.declaring.arguments import check_call
from django_txtasks.core.declaring.values import span_of
from django_txtasks.core.enqueueing.calls import bind, of_call, to_row
from django_txtasks.core.enqueueing.commit_hints import notify_on_commit
from django_txtasks.core.ground import payload
from django_txtasks.core.rows.enqueueing import NewTask, RowDefaults
from django_txtasks.exceptions import InvalidArguments, InvalidDeclaration, InvalidSchedule
from django_txtasks.features.lanes.rules import problem_of_name
from django_txtasks.features.schedules.code_versions import CONFIGURATION
from django_txtasks.features.schedules.elsewhere import is_elsewhere, task_of
from django_txtasks.features.schedules.rules import (
    CATCH_UP,
    check_grace,
    check_ready_by,
    id_of_tick,
    parse_schedule_rule,
)
from django_txtasks.features.schedules.ticks import ScheduleRow
from django_txtasks.features.traces import tracing
from django_txtasks.functions import TaskFunction

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True, kw_only=True)
class DeclaredSchedule:
    """A schedule as code declares it. The fields are columns of its row.

    Attributes:
        every, grace: seconds.
        using: alias of the database that has the schedule's row and its tasks.
        function: the decorated task function.
    """

    name: str
    task_name: str
    queue_name: str
    args: Sequence[Any]
    kwargs: Mapping[str, Any]
    cron: str
    every: float | None
    tz: str
    catch_up: str
    grace: float | None
    ready_by: str
    using: str = "default"
    function: Any = field(default=None, repr=False, compare=False)

    @property
    def configuration(self) -> dict[str, Any]:
        """The values by column, in the form in which the row returns them: JSON has no tuples."""
        values = {name: getattr(self, name) for name in CONFIGURATION}
        for name in ("args", "kwargs"):
            values[name] = json.loads(payload.encode(values[name], name=name))
        return values


_declared: dict[str, DeclaredSchedule] = {}


def periodic(
    cron: str = "",
    /,
    *,
    every: timedelta | float | None = None,
    tz: str = "UTC",
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    name: str = "",
    queue_name: str = "",
    catch_up: Literal["last", "all", "none"] = "last",
    grace: timedelta | float | None = None,
    ready_by: str = "",
    using: str = "default",
) -> Callable[[TaskFunction[P, R]], TaskFunction[P, R]]:
    """Enqueue a task function at each tick of a schedule. Use the decorator above ``@task``, also several times.

    ``manage.py migrate`` and each starting cleaner write the schedule to the database. Cleaners enqueue its ticks.

    Args:
        cron: minute, hour, day of the month, month, day of the week. It needs the extra ``periodic``.
        every: the interval between ticks, instead of cron: a timedelta or seconds, at least 1 second. Ticks are
            the multiples of it since 1970.
        tz: the time zone of ``cron`` and ``ready_by``, such as "Europe/Vienna".
        args, kwargs: the arguments of the function.
        name: the name of the schedule; default: the name of the function, with ``was`` its oldest name.
        queue_name: the queue of its tasks; default: the queue of the function.
        catch_up: the missed ticks to enqueue after a time in which no cleaner ran: "last", "all" (the newest
            1,000) or "none".
        grace: a timedelta or seconds: a tick that is later than this is not enqueued; None: no limit.
        ready_by: an hour such as "07:00": report if the task of a day has not succeeded by then.
        using: alias of the database.

    Raises:
        InvalidSchedule: an invalid value.
        InvalidDeclaration: not a task function, or two schedules with one name.
        InvalidArguments: the function does not take these arguments.
        LibraryMissing: the extra ``periodic`` is not installed.
    """

    def declare(function: TaskFunction[P, R]) -> TaskFunction[P, R]:
        if not isinstance(function, TaskFunction):
            raise InvalidDeclaration(
                f"@periodic was used on {function!r}, which is no task function. Put it above @task."
            )
        declaration = function.declaration
        rule = parse_schedule_rule(cron, every, tz)
        found = DeclaredSchedule(
            name=name or declaration.oldest_name,
            task_name=declaration.name,
            queue_name=queue_name or declaration.queue_name,
            args=args,
            kwargs=dict(kwargs or {}),
            cron=rule.cron,
            every=None if rule.every is None else rule.every.total_seconds(),
            tz=tz,
            catch_up=catch_up,
            grace=_grace(grace, declaration.name),
            ready_by=ready_by,
            using=using,
            function=function,
        )
        check(found)
        _register(found)
        return function

    return declare


def declared(alias: str | None = None) -> dict[str, DeclaredSchedule]:
    """Return the schedules that this code declares, by name, for one database or for all."""
    return {name: one for name, one in sorted(_declared.items()) if alias in (None, one.using)}


def check(schedule: DeclaredSchedule) -> None:
    """Refuse a schedule whose ticks no cleaner could write.

    Raises:
        InvalidSchedule, InvalidDeclaration, InvalidArguments, LibraryMissing: see ``periodic``.
        UnknownTask: no installed app declares the function, and its queue is not handed over.
    """
    if problem := problem_of_name(schedule.name):
        raise InvalidSchedule(f"name is {schedule.name!r}: {problem}.")
    if schedule.using not in connections.settings:
        raise InvalidSchedule(
            f"using is {schedule.using!r}, which is none of the site's DATABASES: "
            f"{', '.join(sorted(connections.settings))}."
        )
    if schedule.catch_up not in CATCH_UP:
        raise InvalidSchedule(f"catch_up is {schedule.catch_up!r}: use 'last', 'all' or 'none'.")
    if not isinstance(schedule.args, (list, tuple)) or not isinstance(schedule.kwargs, dict):
        raise InvalidArguments("args is a list, kwargs a dict.")
    check_grace(schedule.grace)
    check_ready_by(
        parse_schedule_rule(schedule.cron, schedule.every, schedule.tz), schedule.ready_by
    )
    payload.encode(list(schedule.args), name="args")
    payload.encode(dict(schedule.kwargs), name="kwargs")
    if not is_elsewhere(schedule.task_name, schedule.queue_name):
        _check_call(schedule)


def _check_call(schedule: DeclaredSchedule) -> None:
    declaration = registry.get(schedule.task_name)
    if declaration.once is not None or declaration.settle is not None:
        raise InvalidDeclaration(
            f"{declaration.name} has once= or settle=, which schedules do not heed: each tick is a task."
        )
    check_call(declaration, schedule.args, schedule.kwargs)


def bring(alias: str, *, only_new: bool = False) -> str:
    """Add and update this code's schedules in a database, for migrate and cleaners; return a summary as text.

    A schedule whose queue is not in the settings is left out, and ``schedule_not_written`` reports it.

    Args:
        only_new: add missing schedules, and update no others.
    """
    from django_txtasks.features.schedules import changes as schedule_changes

    config, sound = get_config(), {}
    for name, one in declared(alias).items():
        if one.queue_name in config.queues:
            sound[name] = one
        else:
            error = f"The queue {one.queue_name!r} is not among TXTASKS['queues']."
            signals.schedule_not_written.emit(schedule=name, error=error)
    if not sound:
        return ""
    done = schedule_changes.bring(alias, sound, keep=config.keeps("cancelled"), only_new=only_new)
    return ", ".join(f"{count} {what}" for what, count in done.items())


def tasks_of(row: ScheduleRow, ticks: Sequence[datetime]) -> list[NewTask]:
    """Return the tasks of ticks.

    Raises:
        InvalidSchedule: no code could make them.
        TxTasksError: this code cannot make them, but code of another release may.
    """
    try:
        args, kwargs = payload.decode_arguments(row.args, row.kwargs)
    except InvalidArguments as error:
        raise InvalidSchedule(str(error)) from None
    task = new_task(row, args, kwargs)
    if tracing.tracers:
        task = task._replace(defaults=task.defaults._replace(headers=tracing.of_tick(row)))
    return [
        task._replace(task_id=id_of_tick(tick), defaults=_at(task.defaults, tick)) for tick in ticks
    ]


def configure(
    alias: str, name: str, configuration: Mapping[str, Any], *, keep: bool, by: str = ""
) -> bool:
    """Write a person's changes of a schedule, if they are valid together with the row's other values.

    Another person may have changed these since the first person loaded the page.

    Args:
        configuration: the changed columns; see ``schedule_changes.configure`` for the others.

    Returns:
        False: no such row.

    Raises:
        TxTasksError: ``@periodic`` would refuse the resulting schedule. Nothing is changed.
    """
    from django_txtasks.features.schedules import changes as schedule_changes
    from django_txtasks.models import Schedule

    with transaction.atomic(using=alias):
        row = Schedule.objects.using(alias).select_for_update().filter(pk=name).first()
        if row is None:
            return False
        said = {one: configuration.get(one, getattr(row, one)) for one in CONFIGURATION}
        check(DeclaredSchedule(name=name, using=alias, **said))
        return schedule_changes.configure(alias, name, configuration, keep=keep, by=by)


def run_now(alias: str, name: str, *, by: str = "") -> uuid.UUID:
    """Enqueue a task of a schedule that runs at once, independently of its ticks; return its id.

    Raises:
        TxTasksError: this code cannot make the task.
        Schedule.DoesNotExist: no such schedule.
    """
    from django_txtasks.features.schedules import changes as schedule_changes
    from django_txtasks.models import Schedule

    row = Schedule.objects.using(alias).get(pk=name)
    if not isinstance(row.args, list) or not isinstance(row.kwargs, dict):
        raise InvalidArguments("args is a list, kwargs a dict.")
    task = new_task(row, row.args, row.kwargs)
    with transaction.atomic(using=alias):
        schedule_changes.run_now(alias, name, task, by=by)
        notify_on_commit(alias, [task.hint])
    return task.task_id


def new_task(row: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> NewTask:
    """Return a task of a schedule.

    Args:
        row: has the names of the task and of its queue.

    Raises:
        TxTasksError: this code cannot make it.
    """
    if is_elsewhere(row.task_name, row.queue_name):
        return task_of(row.task_name, row.queue_name, args, kwargs)
    declaration = registry.get(row.task_name)
    function = _function_of(id(declaration), declaration.name, row.queue_name)
    bound = of_call(bind(function), args, kwargs)
    return to_row((bound, args, kwargs))


def _at(defaults: RowDefaults, tick: datetime) -> RowDefaults:
    expires = defaults.expires_at
    if isinstance(expires, timedelta):
        expires = tick + expires
    return defaults._replace(run_after=tick, expires_at=expires)


def _register(schedule: DeclaredSchedule) -> None:
    known = _declared.get(schedule.name)
    is_reload = known is not None and known.function is not schedule.function
    if known is not None and not (is_reload and known.task_name == schedule.task_name):
        raise InvalidDeclaration(
            f"Two schedules are called {schedule.name!r}. Name one of them: @periodic(..., name='...')."
        )
    _declared[schedule.name] = schedule


def _grace(grace: timedelta | float | None, name: str) -> float | None:
    span = span_of(name, "grace", grace)
    return None if span is None else span.total_seconds()


@lru_cache(maxsize=1000)
def _function_of(declaration_id: int, name: str, queue: str) -> TaskFunction[..., Any]:
    declaration = registry.get(name)
    return TaskFunction(declaration.function, declaration, {"queue_name": queue})
