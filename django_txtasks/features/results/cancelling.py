"""Cancelling in the caller's transaction: waiting tasks never run, running tasks are asked to stop."""

from __future__ import annotations

import enum
import uuid
from collections.abc import Iterable, Sequence
from functools import partial

from django.db import transaction

from django_txtasks import signals
from django_txtasks.core.rows import statements
from django_txtasks.core.rows.attempts import FollowUps
from django_txtasks.core.rows.outcomes import finish_rows
from django_txtasks.database.execute import as_uuid, execute, fetch, fetch_column
from django_txtasks.models import Outcome, Status

# C cancels in its caller's transaction, and W ends the attempt meanwhile: W finds the row locked, and tries again.
LOCK_TO_CANCEL = """
    SELECT id, TRIM(status), queue_name, task_name, cancel_asked_at IS NOT NULL FROM txtasks_task
     WHERE id {in_ids} ORDER BY id {lock}
"""
OF_UNIQUE_KEY = """
    SELECT id FROM txtasks_task
     WHERE unique_key = %(key)s AND task_name = %(task_name)s AND queue_name = %(queue_name)s
       AND TRIM(status) <> 'dead' {sound_id}
"""
ASKED_TO_STOP = """
    SELECT id, attempt, 0 FROM txtasks_task
     WHERE id {in_ids} AND TRIM(status) = 'claimed' AND worker = %(worker)s AND cancel_asked_at IS NOT NULL
"""
ALL_ASKED_TO_STOP = """
    SELECT id, attempt, 0 FROM txtasks_task
     WHERE status = 'claimed' AND worker = %(worker)s AND cancel_asked_at IS NOT NULL
"""
Key = tuple[uuid.UUID, int]
"""The id of a task and the number of an attempt."""


class CancelResult(str, enum.Enum):
    """The result of a cancel, once its transaction has committed."""

    CANCELLED = "cancelled"
    """The task was waiting, and never starts."""
    ASKED = "asked"
    """A worker has claimed the task, and is asked to stop it. No other attempt starts."""
    TOO_LATE = "too late"
    """The task has finished, is dead, or was never committed. Nothing has changed."""


def cancel(
    alias: str, ids: Iterable[uuid.UUID], *, keep: bool
) -> tuple[dict[uuid.UUID, CancelResult], FollowUps]:
    """PENDING or HELD -> finished as cancelled. CLAIMED tasks are asked to stop.

    The call briefly waits for a session that has locked one of the rows, such as a worker that claims it.

    Args:
        keep: True: the finished rows are kept.

    Returns:
        The result for each task, and the tasks that were enqueued in the same transaction.
    """
    wanted = sorted(set(ids))
    follow_ups: FollowUps = []
    if not wanted:
        return {}, follow_ups
    results = dict.fromkeys(wanted, CancelResult.TOO_LATE)
    with transaction.atomic(using=alias):
        rows = fetch(alias, LOCK_TO_CANCEL, ids=wanted)
        found = [
            (as_uuid(task_id), status, queue, name) for task_id, status, queue, name, _ in rows
        ]
        was_asked = {as_uuid(task_id) for task_id, *_, asked in rows if asked}
        for state in (Status.PENDING, Status.HELD):
            waiting = [task_id for task_id, status, *_ in found if status == state]
            if waiting:
                follow_ups += finish_rows(alias, waiting, state, Outcome.CANCELLED, keep=keep)
                results.update(dict.fromkeys(waiting, CancelResult.CANCELLED))
        running = [task_id for task_id, status, *_ in found if status == Status.CLAIMED]
        if running:
            execute(alias, statements.ASK_TO_STOP, ids=running)
            results.update(dict.fromkeys(running, CancelResult.ASKED))
        told = [
            (task_id, queue, name, results[task_id])
            for task_id, _, queue, name in found
            if task_id not in was_asked
        ]
        transaction.on_commit(partial(_tell, told), using=alias, robust=True)
    return results, follow_ups


def of_key(alias: str, key: str, task_name: str, queue_name: str) -> list[uuid.UUID]:
    """Return the ids of the tasks of a unique key that may be cancelled."""
    sql = OF_UNIQUE_KEY
    return [
        as_uuid(one)
        for one in fetch_column(alias, sql, key=key, task_name=task_name, queue_name=queue_name)
    ]


def _tell(told: Sequence[tuple[uuid.UUID, str, str, CancelResult]]) -> None:
    signal_of = {
        CancelResult.CANCELLED: signals.task_cancelled,
        CancelResult.ASKED: signals.task_asked_to_stop,
    }
    for task_id, queue, name, result in told:
        if result in signal_of:
            signal_of[result].emit(task_id=task_id, queue=queue, task=name)
