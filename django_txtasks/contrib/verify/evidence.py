"""Evidence of a storm: journals of the processes, rows of the scratch database."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from django_txtasks.contrib.verify import journal
from django_txtasks.contrib.verify.crew import Kill
from django_txtasks.contrib.verify.journal import Promises, Runs
from django_txtasks.contrib.verify.scratch import Scratch


@dataclass(frozen=True)
class Row:
    """A finished or a dead task.

    Attributes:
        reason: why it is dead.
    """

    kind: str
    attempt: int
    failures: int
    crashes: int
    reason: str = ""


@dataclass
class Evidence:
    """Everything that the account looks at.

    Attributes:
        effects: (key, kind) of each row that a task wrote.
        finished, dead: a list of rows per key, since a key twice would be the finding.
        merged: of each key whose task was merged, the key of the one that ran instead.
        left: (key, state) of what is neither.
        counter: the sum of the increments.
        sessions: how many sessions were left in the database after all processes had ended.
        overruns: looks at a lane that found more tasks in it than may.
        surprises: what processes did that nobody had asked for.
        audit: what ``txtasks_audit`` finds in the end.
    """

    promises: Promises = field(default_factory=Promises)
    runs: Runs = field(default_factory=Runs)
    effects: list[tuple[str, str]] = field(default_factory=list)
    finished: dict[str, list[Row]] = field(default_factory=dict)
    dead: dict[str, list[Row]] = field(default_factory=dict)
    merged: dict[str, str] = field(default_factory=dict)
    left: list[tuple[str, str]] = field(default_factory=list)
    counter: int = 0
    kills: list[Kill] = field(default_factory=list)
    sessions: int = 0
    overruns: list[str] = field(default_factory=list)
    surprises: list[str] = field(default_factory=list)
    audit: list[str] = field(default_factory=list)


def collect(scratch: Scratch, journals: Path) -> Evidence:
    """Read the journals and the scratch database."""
    found = Evidence(promises=journal.promises(journals), runs=journal.runs(journals))
    found.effects = [
        (key, kind)
        for key, kind in scratch.query("SELECT task_key, kind FROM txtasks_verify_effect")
    ]
    ((counter,),) = scratch.query("SELECT n FROM txtasks_verify_counter")
    found.counter = int(counter)
    for key, row, outcome in _tasks(scratch, "txtasks_finishedtask", "outcome"):
        if outcome != "merged":
            found.finished.setdefault(key, []).append(row)
    found.merged = _merged(scratch)
    for key, row, status in _tasks(scratch, "txtasks_task", "status"):
        if status == "dead":
            found.dead.setdefault(key, []).append(row)
        else:
            found.left.append((key, status))
    return found


def _merged(scratch: Scratch) -> dict[str, str]:
    keys = {
        task_id: _read(args)[0]
        for table in ("txtasks_task", "txtasks_finishedtask")
        for task_id, args in scratch.query(f"SELECT id, args FROM {table}")  # noqa: S608 -- our own tables
    }
    sql = "SELECT id, merged_into FROM txtasks_finishedtask WHERE outcome = 'merged'"
    return {keys[task_id]: keys.get(winner, "?") for task_id, winner in scratch.query(sql)}


def _tasks(scratch: Scratch, table: str, state: str) -> Iterator[tuple[str, Row, str]]:
    """Yield (key, row, state) of each task in a table."""
    sql = f"SELECT args, task_name, attempt, failures, crashes, errors, {state} FROM {table}"  # noqa: S608 -- our own tables
    for args, name, attempt, failures, crashes, errors, is_in in scratch.query(sql):
        row = Row(name.rpartition(".")[2], attempt, failures, crashes, _last(_read(errors)))
        yield _read(args)[0], row, is_in


def _read(value: Any) -> Any:
    """Return what a JSON column holds, whatever the driver makes of it."""
    return json.loads(value) if isinstance(value, (str, bytes)) else value


def _last(errors: list[dict[str, Any]]) -> str:
    """Return the last error in a form that many tasks share."""
    if not errors:
        return ""
    last = errors[-1]
    text = str(last.get("message", "")).split(":")[0].splitlines()
    return f"{last.get('type')}: {text[0] if text else ''}"
