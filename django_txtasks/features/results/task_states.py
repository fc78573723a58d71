"""States and ends of tasks, by id."""

from __future__ import annotations

import json
import uuid
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from django_txtasks.core.rows.attempts import read_entries
from django_txtasks.database.execute import as_uuid, fetch
from django_txtasks.models import GONE, FinishedTask, Outcome, Status, Task

DONE = (Outcome.SUCCEEDED.value, GONE)
"""The states of a task that has succeeded: without ``keep_finished`` it has no row."""

# Live rows are read first, because a row moves to the finished rows, and never back.
STATES_OF = "SELECT id, TRIM(status) FROM txtasks_task WHERE id {in_ids}"
OUTCOMES_OF = "SELECT id, outcome, merged_into FROM txtasks_finishedtask WHERE id {in_ids}"


class Representative(NamedTuple):
    """The task that runs for a task, and its state: the task itself, or the task into which it was merged."""

    state: str
    task_id: uuid.UUID


@dataclass(frozen=True)
class End:
    """The end of a task. A dead task counts as ended, although a person may revive it.

    Attributes:
        state: an outcome, ``dead``, or ``gone``: the task has no row.
        result: the result of a task that has succeeded.
        errors: the errors of its attempts, as the row has them.
    """

    state: str
    result: Any = None
    errors: list[dict[str, Any]] = field(default_factory=list)


def state_of(alias: str, task_id: uuid.UUID) -> str:
    """Return state or outcome of a task, or of the task into which it was merged; ``gone``: it has no row."""
    return representatives_of(alias, [task_id])[task_id].state


def representatives_of(alias: str, ids: Collection[uuid.UUID]) -> dict[uuid.UUID, Representative]:
    """Return ``state_of`` of each task, with the id of the task that has this state."""
    found, winners = _own_states(alias, ids)
    # A winner was never merged itself, because it has begun.
    of_winners, _ = _own_states(alias, set(winners.values()))
    return {**found, **{loser: of_winners[winner] for loser, winner in winners.items()}}


def _own_states(
    alias: str, ids: Collection[uuid.UUID]
) -> tuple[dict[uuid.UUID, Representative], dict[uuid.UUID, uuid.UUID]]:
    """Return the tasks' own states, and for each merged task the task into which it was merged."""
    if not ids:
        return {}, {}
    found = {task_id: Representative(GONE, task_id) for task_id in ids}
    live = {task_id: Representative(state, task_id) for task_id, state in _live(alias, ids).items()}
    rest = [task_id for task_id in found if task_id not in live]
    winners = {}
    for row in fetch(alias, OUTCOMES_OF, ids=rest) if rest else ():
        task_id, outcome, merged_into = as_uuid(row[0]), str(row[1]), row[2]
        if outcome == Outcome.MERGED and merged_into is not None:
            winners[task_id] = as_uuid(merged_into)
        found[task_id] = Representative(outcome, task_id)
    return {**found, **live}, winners


def ends_of(
    alias: str, ids: Collection[uuid.UUID], *, follows: bool = True
) -> dict[uuid.UUID, End]:
    """Return the ends of the tasks that have ended. A merged task has the end of the task that it was merged into.

    Args:
        follows: False: a merged task has its own end. This stops the search after one row, because rows that were
            written by hand may refer to each other.
    """
    states = _live(alias, ids) if ids else {}
    ends = {}
    dead = [task_id for task_id, state in states.items() if state == Status.DEAD]
    if dead:
        rows = Task.objects.using(alias).filter(pk__in=dead)
        ends = {row.pk: End(Status.DEAD.value, errors=_errors(row)) for row in rows}
    ended = [task_id for task_id in ids if task_id not in states]
    if ended:
        ends |= _finished(alias, ended, follows=follows)
    return ends


def _live(alias: str, ids: Collection[uuid.UUID]) -> dict[uuid.UUID, str]:
    """Return the states of live rows. Call it first, because a row moves to the finished rows, and never back."""
    rows = fetch(alias, STATES_OF, ids=sorted(ids))
    return {as_uuid(task_id): str(status) for task_id, status in rows}


def _finished(alias: str, ids: Collection[uuid.UUID], *, follows: bool) -> dict[uuid.UUID, End]:
    rows = {row.pk: row for row in FinishedTask.objects.using(alias).filter(pk__in=ids)}
    merged = {
        row.pk: row.merged_into for row in rows.values() if follows and row.merged_into is not None
    }
    winners = ends_of(alias, set(merged.values()), follows=False) if merged else {}
    ends = {}
    for task_id in ids:
        row = rows.get(task_id)
        if row is None:
            ends[task_id] = End(GONE)
        elif task_id in merged:
            if row.merged_into in winners:
                ends[task_id] = winners[row.merged_into]
        else:
            ends[task_id] = End(row.outcome, row.result, _errors(row))
    return ends


def _errors(row: Any) -> list[dict[str, Any]]:
    return read_entries(json.dumps(row.errors))
