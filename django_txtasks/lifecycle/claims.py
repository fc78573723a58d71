"""Questions of a worker about the claims that it holds."""

from __future__ import annotations

import uuid

from django_txtasks.lifecycle import statements
from django_txtasks.lifecycle.attempts import Attempt
from django_txtasks.lifecycle.execute import as_uuid, fetch


def still_holds(alias: str, attempt: Attempt) -> bool:
    """Say whether the row is still this attempt's and its worker is believed."""
    task_id, number, worker = attempt.fence
    return bool(fetch(alias, statements.STILL_HELD, id=task_id, attempt=number, worker=worker))


def claims_of(alias: str, worker: uuid.UUID) -> set[tuple[uuid.UUID, int]]:
    """Return (id, attempt) of every row that says this worker holds it."""
    rows = fetch(alias, statements.CLAIMS_OF_WORKER, worker=worker)
    return {(as_uuid(task_id), number) for task_id, number in rows}
