"""Rows of steps that are done, with their values, committed together with their effects."""

from __future__ import annotations

import uuid
from typing import Any

from django_txtasks.core.rows.attempts import Attempt
from django_txtasks.core.rows.statements import KNOWN_IDS
from django_txtasks.database.execute import as_uuid, execute, fetch, fetch_column, fetch_value
from django_txtasks.database.side_tables import forget as forget_rows
from django_txtasks.database.side_tables import tasks_with_rows
from django_txtasks.database.transactions import own_transaction, repeated
from django_txtasks.exceptions import ClaimLost
from django_txtasks.features.steps import statements

TASKS_PER_LOOK = 500
FIRST_TASK = uuid.UUID(int=0)


def done_before(alias: str, attempt: Attempt) -> dict[str, str]:
    """Return the values of the steps that earlier attempts have committed, as JSON text, by name."""
    if attempt.number == 1:
        return {}
    return dict(fetch(alias, statements.STEPS_DONE, id=attempt.task_id))


def keep(alias: str, attempt: Attempt, name: str, value: str) -> None:
    """Write the row of a step in the transaction of its effects, so that both are committed or rolled back.

    Args:
        value: JSON text.

    Raises:
        ClaimLost: this attempt no longer holds the task. The caller's transaction must roll back.
    """
    if not execute(alias, statements.KEEP_STEP, **fence_of(attempt), name=name, value=value):
        raise ClaimLost(
            f"attempt {attempt.number} no longer holds task {attempt.task_id}: its step {name!r} is rolled back"
        )


def fence_of(attempt: Attempt) -> dict[str, Any]:
    """Return the values of the attempt's fence, by the names that statements have for them."""
    return {"id": attempt.task_id, "attempt": attempt.number, "worker": attempt.worker}


def take_place(alias: str, attempt: Attempt, name: str, first: str) -> str:
    """Return the place that earlier attempts have reached in a long walk. From now on only this attempt moves it.

    Args:
        first: JSON text, for the first attempt.

    Raises:
        ClaimLost: this attempt no longer holds the task.
    """
    place = {"id": attempt.task_id, "attempt": attempt.number, "name": name}

    def work() -> str:
        with own_transaction(alias):
            if not execute(alias, statements.TAKE_PLACE, **place):
                keep(alias, attempt, name, first)
            return str(fetch_value(alias, statements.PLACE, id=attempt.task_id, name=name))

    return repeated(alias, work)


def move_place(alias: str, attempt: Attempt, name: str, value: str) -> None:
    """Move the place in the transaction of the work up to it, so that both are committed or rolled back.

    Raises:
        ClaimLost: a later attempt has taken the place. The caller's transaction must roll back.
    """
    place = {"id": attempt.task_id, "attempt": attempt.number, "name": name}
    if not execute(alias, statements.MOVE_PLACE, value=value, **place):
        raise ClaimLost(
            f"attempt {attempt.number} no longer holds task {attempt.task_id}: a later one goes on at its place"
        )


def forget(alias: str, last: uuid.UUID | None) -> tuple[int, uuid.UUID | None]:
    """Delete the rows of side tables whose task has no live or finished row, among the next tasks after ``last``.

    It is a ``side_tables.Sweep``, for the rows of tasks that do not exist.

    Returns:
        The number of these tasks, and the last task that was checked; None after the last of all.
    """
    ids = tasks_with_rows(alias, last or FIRST_TASK, TASKS_PER_LOOK)
    if not ids:
        return 0, None
    # No race: a task has its row before its first step, and an id is never used again.
    known = {as_uuid(one) for one in fetch_column(alias, KNOWN_IDS, ids=ids)}
    gone = [one for one in ids if one not in known]
    if gone:
        forget_rows(alias, gone)
    return len(gone), ids[-1] if len(ids) == TASKS_PER_LOOK else None
