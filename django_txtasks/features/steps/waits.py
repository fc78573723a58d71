"""Rows of waits, with the time at which a wait ends and the value that ``resume()`` delivers."""

from __future__ import annotations

import uuid
from datetime import datetime, timedelta
from typing import NamedTuple

from django.db import connections, transaction

from django_txtasks.core.declaring.registry import hint_queue
from django_txtasks.core.rows.attempts import Attempt
from django_txtasks.database.execute import execute, fetch
from django_txtasks.exceptions import ClaimLost
from django_txtasks.features.results.cancelling import LOCK_TO_CANCEL
from django_txtasks.features.steps import statements
from django_txtasks.features.steps.rows import fence_of
from django_txtasks.models import Status


class WaitRow(NamedTuple):
    """State of a wait.

    Attributes:
        value: JSON text; None: no value has arrived.
        ended: True: final, because a value has arrived, or it is too late for a value.
        is_over: True: the time has passed.
    """

    value: str | None
    ended: bool
    is_over: bool


def begin(
    alias: str, attempt: Attempt, name: str, until: datetime | timedelta | None, *, is_sleep: bool
) -> WaitRow:
    """Write the row of a wait in the open transaction, unless it exists; return its state.

    Args:
        until: None: no limit. An existing row keeps its time.

    Raises:
        ClaimLost: this attempt no longer holds the task.
    """
    place, params = _place(alias, until)
    sql = statements.BEGIN_WAIT.replace("<until>", place)
    execute(alias, sql, **fence_of(attempt), name=name, is_sleep=is_sleep, **params)
    return _seen(alias, attempt, name)


def give_up(alias: str, attempt: Attempt, name: str) -> WaitRow:
    """End a wait without a value if its time has passed, in the open transaction; return its state.

    Raises:
        ClaimLost: this attempt no longer holds the task.
    """
    execute(alias, statements.GIVE_UP_WAIT, id=attempt.task_id, name=name)
    return _seen(alias, attempt, name)


def _seen(alias: str, attempt: Attempt, name: str) -> WaitRow:
    for value, ended, is_over in fetch(alias, statements.SEE_WAIT, **fence_of(attempt), name=name):
        return WaitRow(value, bool(ended), bool(is_over))
    raise ClaimLost(
        f"attempt {attempt.number} no longer holds task {attempt.task_id}: it does not wait for {name!r}"
    )


def _place(alias: str, until: datetime | timedelta | None) -> tuple[str, dict[str, object]]:
    if isinstance(until, timedelta):
        return "{later}", {"delay": until.total_seconds()}
    if until is None:
        return "NULL", {}
    return "%(until)s", {"until": connections[alias].ops.adapt_datetimefield_value(until)}


def end(
    alias: str, task_id: uuid.UUID, name: str, value: str
) -> tuple[bool, list[tuple[uuid.UUID, str]]]:
    """Store the value of a wait, which may not have begun, in the caller's transaction, and make the task due.

    A task with a unique key that has not begun is not merged any more from then on. The call briefly waits for a
    session that has locked the task's row, such as a worker that claims it.

    Args:
        value: JSON text.

    Returns:
        True if the value counts: the task has a live row, no value arrived before, and the wait has not timed out.
        Then its id and the queue for its hint, if workers should be notified.
    """
    with transaction.atomic(using=alias):
        for _, status, queue, task, *_ in fetch(alias, LOCK_TO_CANCEL, ids=[task_id]):
            if execute(alias, statements.END_WAIT, id=task_id, name=name, value=value):
                execute(alias, statements.WAKE, id=task_id)
                is_waiting = status == Status.PENDING
                return True, [(task_id, hint_queue(task, queue))] if is_waiting else []
            counts = execute(
                alias, statements.END_WAIT_AHEAD, id=task_id, name=name, value=value, is_sleep=False
            )
            if counts:
                execute(alias, statements.RUN_ALONE, id=task_id)
            return bool(counts), []
    return False, []
