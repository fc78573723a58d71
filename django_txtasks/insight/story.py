"""The story of a task that has ended: its attempts, what people did, its batch, and the tasks that followed.

``explain`` has the reasons why a task does not run. This module has its past, and names the gaps in its rows. It
changes nothing, and reads a bounded number of rows. Its texts are English, because a command prints them.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta, timezone
from itertools import groupby
from typing import Any, NamedTuple

from django.apps import apps
from django.db import DatabaseError, InterfaceError, router, transaction
from django.db.models import TextField
from django.db.models.functions import Cast

from django_txtasks.core.declaring import registry
from django_txtasks.core.ground.wording import time_text
from django_txtasks.core.rows.attempts import MAX_ERRORS, read_entries
from django_txtasks.core.rows.follow_ups import read_hooks
from django_txtasks.core.rows.workers import UNKNOWN
from django_txtasks.exceptions import WorkerLost
from django_txtasks.features.batches.rows import hook_tasks_of
from django_txtasks.features.results.task_states import representatives_of
from django_txtasks.insight.deaths import in_words
from django_txtasks.insight.explain import Reason, shortened
from django_txtasks.insight.finding import manage
from django_txtasks.models import (
    Batch,
    EndedWorker,
    FinishedTask,
    Outcome,
    Status,
    Task,
    Worker,
    label_of,
)

MOST_ACTS = 20
"""Number of entries of the admin's log that are told."""
MOST_READ = 10_000
"""Number of rows among which the tasks of a hook are looked for."""
MOST_ARGUMENTS = 100
"""Number of rows whose arguments are read for it."""
BEFORE, AFTER = timedelta(seconds=5), timedelta(minutes=1)
"""Time before and after an end in which the tasks of its hooks got their ids. A worker's clock may differ."""
UNTOLD = "no reason was recorded"
_BY_PEOPLE = (Outcome.CANCELLED.value, Outcome.DISCARDED.value)
_LEFT = "task_name", "attempt", "started_at", "worker", "batch"


class Ended(NamedTuple):
    """Host and process of a worker, and how its process ended, as in ``workers.End``."""

    where: str
    how: str


class Texts(NamedTuple):
    """Two columns of a task's row."""

    errors: list[dict[str, Any]]
    late: list[dict[str, Any]]


def story(alias: str, task_id: uuid.UUID) -> list[Reason]:
    """Return the past of a task that has finished or is dead; of others only their late finishes.

    A task without a row has no story: see ``explain`` for its reason.
    """
    row = _row(alias, task_id)
    if row is None:
        return []
    texts = texts_of(alias, task_id)
    told = list(late_finishes(alias, row, texts.late))
    if isinstance(row, Task) and row.status != Status.DEAD:
        return told
    parts = (
        _attempts(row, texts.errors),
        told,
        _acts(row),
        _of_batch(row),
        _afterwards(row, texts),
    )
    return [one for part in parts for one in part]


def texts_of(alias: str, task_id: uuid.UUID) -> Texts:
    """Return the errors and late finishes of a live or finished task; empty lists if it has no row."""
    for model in (Task, FinishedTask):
        for found in _columns(alias, model, task_id, "errors", "late_finishes"):
            return Texts(*(read_entries(str(text)) for text in found))
    return Texts([], [])


def late_finishes(alias: str, row: Any, late: Iterable[Mapping[str, Any]]) -> Iterator[Reason]:
    """Yield what each attempt means that has finished although its worker had been declared lost."""
    for one in late:
        number = one.get("attempt")
        fact = (
            f"Attempt {number} was given up at {one.get('abandoned_at') or 'an unknown time'}, because its "
            f"worker was declared lost, yet it finished at {one.get('finished_at')}."
        )
        if not isinstance(number, int) or row.attempt > number:
            twice = "A later attempt has run as well: its effects outside may have happened twice, such as mails."
            yield Reason("late", f"{fact} {twice}")
        elif isinstance(row, Task):
            once = "Its effects outside have happened. If the task runs again, they happen twice."
            command = manage(f"txtasks_task discard {row.pk}", alias)
            lift = f"Look what it has done. If that is all, {command}" if _is_dead(row) else ""
            yield Reason("late", f"{fact} {once}", lift)
        else:
            yield Reason("late", fact)


def processes_of(alias: str, ids: Iterable[uuid.UUID | None]) -> dict[uuid.UUID | None, Ended]:
    """Return the processes of these workers, living or ended; workers without a row are left out."""
    wanted = [one for one in ids if one is not None][: 2 * MAX_ERRORS]
    found: dict[uuid.UUID | None, Ended] = {}
    for model in (EndedWorker, Worker):
        for row in model._default_manager.using(alias).filter(pk__in=wanted):
            found[row.pk] = Ended(str(row), row.how)
    return found


def worker_of(entry: Mapping[str, Any]) -> uuid.UUID | None:
    """Return the worker that an entry of a row's errors names; None = no id."""
    try:
        return uuid.UUID(str(entry.get("worker")))
    except ValueError:
        return None


def acts_on(task_id: uuid.UUID) -> Any:
    """Return the entries of the admin's log about one task, the newest first."""
    from django.contrib.admin.models import LogEntry
    from django.contrib.contenttypes.models import ContentType

    kinds = ContentType.objects.get_for_models(Task, FinishedTask).values()
    entries = LogEntry.objects.filter(content_type__in=kinds, object_id=str(task_id))
    return entries.select_related("user").order_by("-pk")[:MOST_ACTS]


def _row(alias: str, task_id: uuid.UUID) -> Any:
    """Return the live or the finished row; None = no row has the id."""
    live = Task.objects.using(alias).only(*_LEFT, "status", "on_crash", "crashes", "max_crashes")
    done = FinishedTask.objects.using(alias).only(*_LEFT, "outcome", "finished_at", "merged_into")
    return live.filter(pk=task_id).first() or done.filter(pk=task_id).first()


def _columns(alias: str, model: type[Any], key: uuid.UUID, *names: str) -> list[Any]:
    """Return JSON columns of a row as text, which may be no JSON that Python reads."""
    rows = model._default_manager.using(alias).filter(pk=key)
    return list(rows.values_list(*(Cast(name, TextField()) for name in names)))


def _is_dead(row: Any) -> bool:
    return isinstance(row, Task) and row.status == Status.DEAD


def _attempts(row: Any, errors: Sequence[dict[str, Any]]) -> Iterator[Reason]:
    """Yield the attempts in the row, then the numbers of the attempts that are not in it."""
    known = processes_of(row._state.db, [*map(worker_of, errors), row.worker])
    for one in errors:
        yield _attempt(one, known.get(worker_of(one)))
    told = [one.get("attempt") for one in errors if not one.get("after_commit")]
    numbers = {one for one in told if isinstance(one, int)}
    is_last_told = row.attempt in numbers or not row.attempt
    if not is_last_told and isinstance(row, FinishedTask):
        where = known.get(row.worker)
        end = f"and the task ended at {time_text(row.finished_at)}: {row.get_outcome_display()}"
        place = f" at {where.where}" if where is not None else ""
        yield Reason(
            "attempt", f"Attempt {row.attempt}{place} began at {time_text(row.started_at)}, {end}."
        )
        numbers.add(row.attempt)
    if gaps := _ranges(set(range(1, min(row.attempt, 100_000) + 1)) - numbers):
        yield Reason(
            "unknown",
            f"The row tells nothing of attempt {gaps}: it left no error, because it was postponed, waited or "
            "was given "
            f"back, or its error was left out. A row keeps the first error and the newest {MAX_ERRORS - 1}.",
        )


def _attempt(entry: Mapping[str, Any], process: Ended | None) -> Reason:
    place = f" at {process.where}" if process is not None else ""
    error = ": ".join(
        shortened(str(text)).rstrip(".") for key in ("type", "message") if (text := entry.get(key))
    )
    verb = "succeeded, but a hook of its commit failed" if entry.get("after_commit") else "ended"
    text = f"Attempt {entry.get('attempt')}{place} {verb} at {entry.get('at')}: {error or UNTOLD}."
    if entry.get("type") == WorkerLost.__name__:
        text += f" {_end_of(process)}"
    return Reason("attempt", text)


def _end_of(process: Ended | None) -> str:
    """Return how the process of a lost worker ended."""
    if process is None or process.how in ("", UNKNOWN):
        return "How its process ended is not known: no runworkers of its machine has told, as after a power cut."
    text = f"Its process ended by {in_words(process.how)}."
    if process.how == "signal 9":
        text += (
            " No row tells who sent it: a person or a container's runtime (kill -9), or the kernel when memory "
            "ran out, which the kernel's log says."
        )
    return text


def _ranges(numbers: set[int]) -> str:
    """Return numbers as text, such as ``2 to 4, 6``."""
    runs = groupby(enumerate(sorted(numbers)), key=lambda pair: pair[1] - pair[0])
    found = [[number for _, number in run] for _, run in runs]
    return ", ".join(str(one[0]) if len(one) == 1 else f"{one[0]} to {one[-1]}" for one in found)


def _acts(row: Any) -> Iterator[Reason]:
    """Yield what people did to the task, as the admin's log has it."""
    entries = _entries_of(row.pk)
    for one in reversed(entries or []):
        said = f"{time_text(one.action_time)}, {one.user}: {one.get_change_message()}"
        yield Reason("person", said if said.endswith(".") else f"{said}.")
    if entries is None:
        yield Reason("unknown", "The admin's log cannot be read here, which has what people did.")
    elif not entries and isinstance(row, FinishedTask) and row.outcome in _BY_PEOPLE:
        yield Reason(
            "unknown",
            f"Nothing tells by whom the task was {row.get_outcome_display()}: the admin's log has no entry of "
            "this task alone. A call for several tasks leaves one entry for all of them, and code such as "
            "handle.cancel(), or TXTASKS['discard_dead_after'], leaves none; the log of that process does.",
        )


def _entries_of(task_id: uuid.UUID) -> list[Any] | None:
    """Return entries of the admin's log; None = this process cannot read them."""
    if not apps.is_installed("django.contrib.admin"):
        return None
    from django.contrib.admin.models import LogEntry

    try:
        with transaction.atomic(using=router.db_for_read(LogEntry)):
            return list(acts_on(task_id))
    except (DatabaseError, InterfaceError):
        return None


def _of_batch(row: Any) -> Iterator[Reason]:
    """Yield the batch of the task, and the tasks that its end has enqueued."""
    if row.batch is None:
        return
    batch = Batch.objects.using(row._state.db).filter(pk=row.batch).first()
    if batch is None:
        yield Reason("batch", f"It was a member of batch {row.batch}, whose row is gone.")
        return
    named = f"{batch.pk} ({batch.name})" if batch.name else str(batch.pk)
    if batch.finished_at is None:
        yield Reason("batch", f"It is a member of batch {named}, which has not ended.")
        return
    how = "a member has failed" if batch.failed else "all members have succeeded"
    (text, *_) = [*_columns(row._state.db, Batch, batch.pk, "hook_tasks"), (None,)]
    tasks = hook_tasks_of(text[0])
    states = representatives_of(row._state.db, set(tasks.values()))
    after = "".join(
        f" Its {hook} is task {one}: {label_of(states[one].state)}." for hook, one in tasks.items()
    )
    yield Reason(
        "batch",
        f"It is a member of batch {named}, which ended at {time_text(batch.finished_at)}: {how}.{after}",
    )


def _afterwards(row: Any, texts: Texts) -> Iterator[Reason]:
    """Yield the tasks that the end of the task has enqueued, and where it went on."""
    alias = row._state.db
    if isinstance(row, FinishedTask) and row.merged_into is not None:
        command = manage(f"txtasks_explain {row.merged_into}", alias)
        yield Reason("merged", f"Task {row.merged_into} ran instead of it.", command)
    if isinstance(row, FinishedTask) and row.outcome == Outcome.HANDED:
        yield Reason(
            "handed", "Another system has taken it, and this database does not know its end."
        )
    wanted, moment = _hooks_of_end(row, texts)
    for option, spec in wanted.items():
        yield _follower(row, option, spec, moment)


def _hooks_of_end(row: Any, texts: Texts) -> tuple[dict[str, dict[str, Any]], datetime | None]:
    """Return the hooks that the end of the task has enqueued, and the time of the end.

    A finished row does not keep its hooks, so the hooks of a finished task are the ones in this code.
    """
    if isinstance(row, Task):
        alias = str(row._state.db)
        (text, *_) = [*_columns(alias, Task, row.pk, "hooks"), ("{}",)]
        hooks, moment = read_hooks(str(text[0])), _time_in(texts.errors)
        names = ["on_failure", *(["compensate"] if row.is_compensated else [])]
    else:
        declaration = registry.find(row.task_name)
        hooks = declaration.hooks if declaration is not None else {}
        moment = row.finished_at
        names = {
            Outcome.SUCCEEDED.value: ["on_success"],
            Outcome.DISCARDED.value: ["on_failure"],
        }.get(row.outcome, [])
        if row.outcome == Outcome.DISCARDED:
            moment = _time_in(texts.errors)
    return {name: hooks[name] for name in names if name in hooks}, moment


def _time_in(errors: Sequence[Mapping[str, Any]]) -> datetime | None:
    """Return the time of the last error; None = Python cannot read it."""
    for one in errors[-1:]:
        try:
            return datetime.fromisoformat(str(one.get("at")).removesuffix("Z")).replace(
                tzinfo=timezone.utc
            )
        except ValueError:
            return None
    return None


def _follower(row: Any, option: str, spec: Mapping[str, Any], moment: datetime | None) -> Reason:
    """Return the tasks of a hook, which have the id of this task in their arguments."""
    hook = f"Its {option} is {spec['task_name']}"
    if option == "compensate" or spec.get("with_result"):
        why = "its arguments do not name this task"
        return Reason(
            "hook",
            f"{hook}, which was enqueued with its end. No row tells which task that was: {why}.",
        )
    name, event = str(spec["task_name"]), option.removeprefix("on_")
    found = [] if moment is None else _tasks_of(row, event, name, moment)
    if found:
        states = representatives_of(row._state.db, found)
        tasks = ", ".join(f"task {one}: {label_of(states[one].state)}" for one in found)
        return Reason("hook", f"{hook}, {tasks}.")
    return Reason(
        "hook",
        f"{hook}. Of the first {MOST_READ:,} tasks that were enqueued with or after its end, none is this "
        "hook's: it "
        "has finished and is no longer kept (TXTASKS['keep_finished']), or the function had another hook then.",
    )


def _tasks_of(row: Any, event: str, name: str, moment: datetime) -> list[uuid.UUID]:
    """Return the tasks of a function, enqueued around this time, that got the hook data of a task."""
    moment = moment if moment.tzinfo else moment.replace(tzinfo=timezone.utc)
    ends = {"pk__gte": _first_id(moment - BEFORE), "pk__lte": _first_id(moment + AFTER)}
    found: list[uuid.UUID] = []
    for model in (Task, FinishedTask):
        rows = model._default_manager.using(row._state.db)
        near = rows.filter(**ends).order_by("pk").values_list("pk", "task_name")[:MOST_READ]
        ids = [pk for pk, one in near if one == name][:MOST_ARGUMENTS]
        texts = rows.filter(pk__in=ids).values_list("pk", Cast("args", TextField()))
        for pk, text in texts:
            data = read_entries(str(text))[:1]
            if [(one.get("event"), one.get("task_id")) for one in data] == [(event, str(row.pk))]:
                found.append(pk)
    return found


def _first_id(moment: datetime) -> uuid.UUID:
    """Return the lowest id that a task gets at this time: ids begin with the milliseconds."""
    return uuid.UUID(int=int(moment.timestamp() * 1000) << 80)
