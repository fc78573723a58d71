"""Evidence of a storm: journals of the processes, and rows of the scratch database."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, NamedTuple

from django_txtasks.contrib.verify import journal
from django_txtasks.contrib.verify.crew import Kill
from django_txtasks.contrib.verify.journal import Promises, Runs
from django_txtasks.contrib.verify.project import key_of
from django_txtasks.contrib.verify.scratch import Scratch
from django_txtasks.database.execute import as_uuid
from django_txtasks.features.schedules.rules import tick_of_id


@dataclass(frozen=True)
class Row:
    """A finished or dead task.

    Attributes:
        reason: the last error, if it is dead.
    """

    kind: str
    attempt: int
    failures: int
    crashes: int
    reason: str = ""


@dataclass(frozen=True)
class End:
    """A task that the end of a batch has enqueued.

    Attributes:
        failed: the outcome of the batch that the task was given.
        told_at: time of its enqueue.
        last_at: time when the last finished member finished; None = no member did.
    """

    key: str
    failed: bool
    told_at: datetime
    last_at: datetime | None


@dataclass
class Evidence:
    """All observations for the account.

    Attributes:
        effects: (key, kind) of each row that a task or a step wrote.
        answers: (key, value) of each value that a waiting task has received.
        naps: (key, seconds) of each task that has slept.
        finished, dead: a list of rows per key, because a second row is a finding.
        asyncs: number of finished tasks of async functions.
        merged: for each key of a merged task, the key of the task that ran instead.
        left: (key, state) of tasks that are neither finished nor dead.
        next_tick: the first tick without a task, after the schedule was stopped; seconds since 1970.
        tick_begun: start of the task of each tick, both in seconds since 1970.
        counter: the sum of the increments.
        sessions: sessions left in the database after all processes had ended.
        overruns: looks at the lane that found more tasks than its limit.
        surprises: unexpected ends of processes.
        audit: findings of ``txtasks_audit`` at the end.
    """

    promises: Promises = field(default_factory=Promises)
    runs: Runs = field(default_factory=Runs)
    effects: list[tuple[str, str]] = field(default_factory=list)
    answers: list[tuple[str, str]] = field(default_factory=list)
    naps: list[tuple[str, float]] = field(default_factory=list)
    finished: dict[str, list[Row]] = field(default_factory=dict)
    dead: dict[str, list[Row]] = field(default_factory=dict)
    asyncs: int = 0
    merged: dict[str, str] = field(default_factory=dict)
    left: list[tuple[str, str]] = field(default_factory=list)
    ends: list[End] = field(default_factory=list)
    next_tick: int = 0
    tick_begun: dict[int, float] = field(default_factory=dict)
    counter: int = 0
    kills: list[Kill] = field(default_factory=list)
    sessions: int = 0
    overruns: list[str] = field(default_factory=list)
    surprises: list[str] = field(default_factory=list)
    audit: list[str] = field(default_factory=list)


class _Task(NamedTuple):
    """A row of one of the two tables; the fields are named like the columns."""

    id: Any
    args: Any
    task_name: str
    attempt: int
    failures: int
    crashes: int
    errors: Any
    enqueued_at: Any
    started_at: Any
    batch: Any
    state: str
    finished_at: Any = None
    merged_into: Any = None

    @property
    def key(self) -> str:
        """Key of the task."""
        return key_of(as_uuid(self.id), _read(self.args))

    @property
    def row(self) -> Row:
        """The columns that the account needs."""
        kind = self.task_name.rpartition(".")[2]
        return Row(kind, self.attempt, self.failures, self.crashes, _last(_read(self.errors)))


_COLUMNS = "id, args, task_name, attempt, failures, crashes, errors, enqueued_at, started_at, batch"
LIVE = f"SELECT {_COLUMNS}, status FROM txtasks_task"  # noqa: S608 -- our own tables
FINISHED = f"SELECT {_COLUMNS}, outcome, finished_at, merged_into FROM txtasks_finishedtask"  # noqa: S608


def collect(scratch: Scratch, journals: Path) -> Evidence:
    """Read the journals and the scratch database."""
    found = Evidence(promises=journal.promises(journals), runs=journal.runs(journals))
    _see_effects(found, scratch)
    live = [_Task(*row) for row in scratch.query(LIVE)]
    finished = [_Task(*row) for row in scratch.query(FINISHED)]
    for task in live:
        if task.state == "dead":
            found.dead.setdefault(task.key, []).append(task.row)
        else:
            found.left.append((task.key, task.state))
    for task in finished:
        if task.state != "merged":
            found.finished.setdefault(task.key, []).append(task.row)
    found.asyncs = sum(".async_tasks." in task.task_name for task in finished)
    keys = {task.id: task.key for task in [*live, *finished]}
    found.merged = {
        task.key: keys.get(task.merged_into, "?") for task in finished if task.state == "merged"
    }
    found.ends = list(_ends(live, finished))
    _see_ticks(found, scratch, [*live, *finished])
    return found


def _see_effects(found: Evidence, scratch: Scratch) -> None:
    for key, kind, value in scratch.query(
        "SELECT task_key, kind, value FROM txtasks_verify_effect"
    ):
        found.effects.append((key, kind))
        if kind == "waiting":
            found.answers.append((key, value))
        elif kind == "sleeping":
            found.naps.append((key, float(value)))
    ((counter,),) = scratch.query("SELECT n FROM txtasks_verify_counter")
    found.counter = int(counter)


def _see_ticks(found: Evidence, scratch: Scratch, tasks: Iterable[_Task]) -> None:
    for (next_at,) in scratch.query("SELECT next_at FROM txtasks_schedule"):
        found.next_tick = int(_moment(next_at).timestamp())
    for task in tasks:
        tick = tick_of_id(as_uuid(task.id))
        if tick is not None and task.started_at is not None:
            found.tick_begun[int(tick.timestamp())] = _moment(task.started_at).timestamp()


def _ends(live: Sequence[_Task], finished: Sequence[_Task]) -> Iterator[End]:
    """Yield the tasks that ends of batches have enqueued, with the finish times of the members."""
    last: dict[uuid.UUID, datetime] = {}
    for task in finished:
        if task.batch is not None:
            batch, at = as_uuid(task.batch), _moment(task.finished_at)
            last[batch] = max(at, last.get(batch, at))
    for task in [*live, *finished]:
        if task.row.kind == "ended":
            data = _read(task.args)[0]
            last_at = last.get(uuid.UUID(data["batch_id"]))
            yield End(task.key, bool(data["failed"]), _moment(task.enqueued_at), last_at)


def _moment(value: Any) -> datetime:
    """Return a time in UTC, for any driver."""
    found = value if isinstance(value, datetime) else datetime.fromisoformat(value)
    return found if found.tzinfo else found.replace(tzinfo=timezone.utc)


def _read(value: Any) -> Any:
    """Return the value of a JSON column, for any driver."""
    return json.loads(value) if isinstance(value, (str, bytes)) else value


def _last(errors: list[dict[str, Any]]) -> str:
    """Return the last error, shortened to the part that many tasks share."""
    if not errors:
        return ""
    last = errors[-1]
    text = str(last.get("message", "")).split(":")[0].splitlines()
    return f"{last.get('type')}: {text[0] if text else ''}"
