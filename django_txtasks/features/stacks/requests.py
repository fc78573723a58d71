"""The questions of people, and the answers of workers, as people read them."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db import connections
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from django_txtasks.core.ground import payload
from django_txtasks.core.ground.wording import whole
from django_txtasks.exceptions import NotRunning
from django_txtasks.models import DatabaseNow, StackRequest, Status, Task, Worker

ANSWER_SECONDS = 5.0
"""Seconds without an answer after which the reader learns how to look at the process by hand."""
MAX_OTHERS = 5
"""Number of other tasks of the same process that are named."""


@dataclass(frozen=True)
class StackAnswer:
    """The last request for the stack of a task, and its answer.

    Attributes:
        attempt: the attempt that was asked for.
        text: the stack; empty = there is no answer yet.
        seconds: seconds since the question, by the database's clock.
        trouble: why there is no answer, or why the stack is an old one; empty = nothing is wrong.
    """

    task_id: uuid.UUID
    attempt: int
    asked_by: str
    asked_at: datetime
    answered_at: datetime | None
    text: str
    seconds: float
    trouble: str

    @property
    def is_awaited(self) -> bool:
        """True if an answer is still expected."""
        return self.answered_at is None and not self.trouble


def request_stack(task_id: uuid.UUID, *, using: str = "default", by: str = "") -> None:
    """Ask the worker of a running task where the task is now. The question replaces an earlier one.

    The worker sees the question when the transaction of the caller has committed.

    Args:
        by: the person who asks; cut to the width of the column.

    Raises:
        NotRunning: the task does not run, or its worker is gone.
    """
    task = _running(using, task_id)
    if why := _why_not_running(using, task_id, task):
        raise NotRunning(why)
    width: Any = StackRequest._meta.get_field("asked_by").max_length
    question = StackRequest(
        task_id=task_id, attempt=task.attempt, worker=task.worker, asked_at=DatabaseNow(),
        asked_by=payload.storable(by)[:width], answered_at=None, text="",
    )  # fmt: skip
    # MariaDB and MySQL are not told which key may be there already
    names_key = connections[using].features.supports_update_conflicts_with_target
    StackRequest.objects.using(using).bulk_create(
        [question],
        update_conflicts=True,
        update_fields=["attempt", "worker", "asked_at", "asked_by", "answered_at", "text"],
        unique_fields=["task_id"] if names_key else None,
    )


def stack_of(task_id: uuid.UUID, *, using: str = "default") -> StackAnswer | None:
    """Return the last request for the stack of a task, with its answer; None if there is no request.

    Requests are removed after an hour.
    """
    rows: Any = StackRequest.objects.using(using).annotate(now=DatabaseNow())
    asked = rows.filter(pk=task_id).first()
    if asked is None:
        return None
    seconds = (asked.now - asked.asked_at).total_seconds()
    return StackAnswer(
        task_id, asked.attempt, asked.asked_by, asked.asked_at, asked.answered_at, asked.text, seconds,
        _trouble(using, asked, seconds),
    )  # fmt: skip


def _trouble(alias: str, asked: Any, seconds: float) -> str:
    task = _running(alias, asked.task_id)
    if task is not None and (task.attempt, task.worker) != (asked.attempt, asked.worker):
        text = _(
            "The question was about attempt %(asked)s, and attempt %(now)s runs now. Ask again."
        )
        return text % {"asked": asked.attempt, "now": task.attempt}
    if why := _why_not_running(alias, asked.task_id, task):
        return why
    if asked.answered_at is not None or seconds < ANSWER_SECONDS:
        return ""
    return _by_hand(alias, task)


def _running(alias: str, task_id: uuid.UUID) -> Any:
    """Return the row of a task if a worker has claimed it."""
    rows = Task.objects.using(alias).filter(pk=task_id, status=Status.CLAIMED)
    return rows.only("status", "attempt", "worker", "task_name").first()


def _why_not_running(alias: str, task_id: uuid.UUID, task: Any) -> str:
    """Return why no worker can answer, as a sentence; empty if one can."""
    if task is None:
        return _("Task %(id)s does not run now, so it has no stack.") % {"id": task_id}
    workers: Any = Worker.objects.using(alias).annotate(now=DatabaseNow())
    worker = workers.filter(pk=task.worker).first()
    if worker is None:
        text = _("Worker %(worker)s of task %(id)s is gone, so no process can answer.")
        return text % {"worker": task.worker, "id": task_id}
    if worker.lost or worker.is_silent(worker.now):
        text = _("The worker of task %(id)s is lost or silent (%(worker)s), so it cannot answer.")
        return text % {"worker": worker, "id": task_id}
    return ""


def _by_hand(alias: str, task: Any) -> str:
    """Return how to look at the process of a task that does not answer, and what ends together with it."""
    worker: Any = Worker.objects.using(alias).filter(pk=task.worker).first()
    others = Task.objects.using(alias).filter(status=Status.CLAIMED, worker=task.worker)
    rows = others.exclude(pk=task.pk).values_list("pk", "task_name")
    found = [f"{pk} ({name})" for pk, name in rows[: MAX_OTHERS + 1]]
    count = rows.count() if len(found) > MAX_OTHERS else len(found)
    named = (
        f": {', '.join(found[:MAX_OTHERS])}{', …' if count > MAX_OTHERS else ''}" if found else ""
    )
    why = _(
        "Process %(pid)s on host %(host)s has not answered within %(n)s s. Perhaps it runs code in C that keeps "
        "Python's lock, cannot reach the database, or is of an older release. On that host, run: %(command)s."
    )
    facts = {"pid": worker.pid, "host": worker.host, "n": f"{ANSWER_SECONDS:.0f}"}
    ends = ngettext(
        "If you end the process, %(n)s other running task ends with it%(names)s.",
        "If you end the process, %(n)s other running tasks end with it%(names)s.",
        count,
    )
    return " ".join(
        (
            why % {**facts, "command": f"py-spy dump --pid {worker.pid}"},
            ends % {"n": whole(count), "names": named},
        )
    )
