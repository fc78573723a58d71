"""Enqueues the calls of ended tasks again, as new tasks, with all checks of an enqueue. The old rows stay."""

from __future__ import annotations

import json
import uuid
from collections.abc import Sequence
from typing import Any

from django.db import connections

from django_txtasks import signals
from django_txtasks.core.declaring import registry
from django_txtasks.core.enqueueing.commit_hints import notify_on_commit
from django_txtasks.core.ground import payload
from django_txtasks.core.rows.enqueueing import NewTask, RowDefaults, insert, new_id
from django_txtasks.database.execute import as_uuid, fetch
from django_txtasks.exceptions import InvalidChoice, TxTasksError, UnknownTask
from django_txtasks.features.reports.whose import Living, Whose, living
from django_txtasks.functions import TaskFunction
from django_txtasks.handles import TaskHandle, enqueue_task
from django_txtasks.models import Outcome, Status
from django_txtasks.operations.moved import Taken
from django_txtasks.operations.operators import Spread
from django_txtasks.operations.pages import rows_of_ids
from django_txtasks.operations.rows import Row

GONE = "its row is gone"
KNOWN_KEY = "an earlier task has its idempotency key (once)"
_CALLS = "SELECT id, priority, CAST(args AS {text}), CAST(kwargs AS {text}) FROM <table> WHERE id {in_ids}"
CALLS = (
    _CALLS.replace("<table>", "txtasks_task"),
    _CALLS.replace("<table>", "txtasks_finishedtask"),
)


def take(alias: str, rows: Sequence[Row], spread: Spread | None) -> Taken:
    """Enqueue the calls of these rows. A call that can no longer be enqueued is refused, and the others go on."""
    taken, ids, crew = Taken(), sorted(row.id for row in rows), living(alias)
    calls = {as_uuid(one): call for sql in CALLS for one, *call in fetch(alias, sql, ids=ids)}
    for row in rows:
        try:
            if row.id not in calls:
                taken.refused[row.id] = GONE
            elif (handle := _enqueue(alias, crew, row, calls[row.id])).is_new:
                taken.changed[row.id] = handle.id
            else:
                taken.refused[row.id] = KNOWN_KEY
        except TxTasksError as error:  # raised before any SQL
            taken.refused[row.id] = f"{type(error).__name__}: {error}"
    return taken


def with_arguments(
    alias: str, task_id: uuid.UUID, args: list[Any], kwargs: dict[str, Any]
) -> TaskHandle:
    """Enqueue the call of a dead or finished task once more, with these arguments.

    Raises:
        InvalidChoice: there is no such task, or it has not ended.
        TxTasksError: the call cannot be enqueued; see ``enqueue_task``.
    """
    row = next(iter(rows_of_ids(alias, [task_id])), None)
    calls = [call for sql in CALLS for _, *call in fetch(alias, sql, ids=[task_id])]
    if row is None or not calls or row.status not in (Status.DEAD, *Outcome.values):
        raise InvalidChoice(f"Task {task_id} is not dead or finished, or its row is gone.")
    call = [calls[0][0], json.dumps(args), json.dumps(kwargs)]
    return _enqueue(alias, living(alias), row, call)


def _enqueue(alias: str, crew: Living, row: Row, call: Sequence[Any]) -> TaskHandle:
    """Enqueue with the options of the declaration, and with queue, priority and lane of the old task."""
    declaration, (priority, args, kwargs) = registry.find(row.task), call
    arguments, keywords = payload.decode_arguments(args, kwargs)
    if declaration is None:
        _refuse_unknown(crew, row)
        defaults = RowDefaults(task_name=row.task, queue_name=row.queue, priority=priority)
        return _enqueue_elsewhere(alias, defaults, arguments, keywords)
    lane = row.lane if row.lane and declaration.lane is None else None
    function = TaskFunction(declaration.function, declaration).using(
        queue_name=row.queue, priority=priority, using=alias, lane=lane
    )
    return enqueue_task(function, *arguments, **keywords)


def _refuse_unknown(crew: Living, row: Row) -> None:
    if crew.whose(row.queue, row.task) is Whose.UNKNOWN:
        raise UnknownTask(
            f"No installed app declares a task function {row.task!r}, and no living worker in another language "
            f"runs it in queue {row.queue!r}. Deploy code that has it, or start that worker. Then do this again."
        )


def _enqueue_elsewhere(
    alias: str, defaults: RowDefaults, args: list[Any], kwargs: dict[str, Any]
) -> TaskHandle:
    """Enqueue a call whose function another system has. That system alone can check the arguments."""
    texts = payload.encode(args, name="args"), payload.encode(kwargs, name="kwargs")
    task = NewTask(new_id(), defaults, *texts)
    insert(connections[alias], [task])
    notify_on_commit(alias, [task.hint])
    name, queue = defaults.task_name, defaults.queue_name
    signals.task_enqueued.emit(task_id=task.task_id, task=name, queue=queue)
    return TaskHandle(task.task_id, name, queue, alias)
