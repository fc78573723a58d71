"""History: the columns that it keeps of a task, and the statements that copy them from the live row."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from django_txtasks.models import Outcome

if TYPE_CHECKING:  # ``attempts`` imports the statements, which have a part of these
    from django_txtasks.core.rows.attempts import Ended

KEPT = (
    "id", "task_name", "queue_name", "priority", "args", "kwargs", "enqueued_at", "run_after", "worker", "batch",
    "started_at", "attempt", "failures", "crashes", "errors", "late_finishes",
)  # fmt: skip
"""The columns of a live row that history keeps, which are the columns of ``models.TaskColumns``."""
_KEPT = f"{', '.join(KEPT[:10])},\n           {', '.join(KEPT[10:])}"
COPY = f"""
    INSERT INTO txtasks_finishedtask (
           {_KEPT}, outcome, result)
    SELECT {_KEPT}, %(outcome)s, {{json}}{{result}}{{end_json}}
      FROM """
COPY_MERGED = (
    COPY.replace("outcome, result)", "outcome, merged_into, result)")
    .replace("%(outcome)s,", "'merged', (SELECT w.id FROM txtasks_task w WHERE w.id = %(winner)s),")
    .replace("{json}{result}{end_json}", "NULL")
    + "txtasks_task WHERE id {in_ids} AND TRIM(status) = 'pending'"
)
COPY_TO_FINISHED = COPY + "txtasks_task WHERE id {in_ids} AND TRIM(status) = %(status)s"
# A dead row whose id is in history already changes nothing there.
BUT_NOT_AGAIN = (
    " AND NOT EXISTS (SELECT 1 FROM txtasks_finishedtask f WHERE f.id = txtasks_task.id)"
)
# If no history is kept: failed members of an open batch are kept, because the end of the batch depends on them.
COPY_MEMBERS = COPY_TO_FINISHED + " AND batch IS NOT NULL"


def copying(
    outcome: Outcome, results: dict[uuid.UUID, str], *, of: str = COPY_TO_FINISHED
) -> tuple[str, dict[str, Any]]:
    """Return the statement that writes finished rows, and its parameters except ids and status.

    Args:
        results: JSON text by id, for the tasks that have one. CASE works on all databases.
    """
    case = "NULL"
    params: dict[str, Any] = {"outcome": outcome.value}
    if results:
        cases = " ".join(f"WHEN %(key{n})s THEN %(result{n})s" for n in range(len(results)))
        case = f"CASE id {cases} END"
        for n, (task_id, result) in enumerate(results.items()):
            params.update({f"key{n}": task_id, f"result{n}": result})
    return of.replace("{result}", case), params


def finishing(ended: Sequence[Ended]) -> dict[str, Any]:
    """Return the parameters of a statement that finishes these attempts, except their worker."""
    return {
        "ids": [one.attempt.task_id for one in ended],
        "attempts": [one.attempt.number for one in ended],
        "results": [one.result or "" for one in ended],
        "outcome": Outcome.SUCCEEDED.value,
    }
