"""Questions of a worker about the claims that it holds."""

from __future__ import annotations

import enum
import uuid
from collections.abc import Collection

from django_txtasks.database.execute import as_uuid, fetch
from django_txtasks.lifecycle import statements
from django_txtasks.lifecycle.attempts import Attempt


class Standing(enum.Enum):
    """The standing of an attempt."""

    HELD = "held"
    ASKED_TO_STOP = "asked to stop"
    LOST = "lost"


def standing_of(alias: str, attempt: Attempt) -> Standing:
    """Say whether the row is still this attempt's and its worker is believed, and what was asked of it."""
    task_id, number, worker = attempt.fence
    rows = fetch(alias, statements.STILL_HELD, id=task_id, attempt=number, worker=worker)
    if not rows:
        return Standing.LOST
    ((is_asked,),) = rows
    return Standing.ASKED_TO_STOP if is_asked else Standing.HELD


def locked(alias: str, ids: Collection[uuid.UUID]) -> set[tuple[uuid.UUID, int, uuid.UUID]]:
    """Lock the claimed rows of these tasks in the open transaction; return the fence of each.

    A row that another transaction has locked is left out.
    """
    rows = fetch(alias, statements.LOCK_CLAIMED, ids=sorted(ids)) if ids else []
    return {(as_uuid(task_id), number, as_uuid(worker)) for task_id, number, worker in rows}


def claims_of(alias: str, worker: uuid.UUID) -> set[tuple[uuid.UUID, int]]:
    """Return (id, attempt) of every row that says this worker holds it."""
    rows = fetch(alias, statements.CLAIMS_OF_WORKER, worker=worker)
    return {(as_uuid(task_id), number) for task_id, number in rows}
