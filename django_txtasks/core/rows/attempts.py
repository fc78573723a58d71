"""Attempts: the fence of everything done to a row, how an attempt ended, and which rows a worker still holds."""

from __future__ import annotations

import enum
import json
import uuid
from collections.abc import Collection, Mapping, Sequence
from contextvars import Context
from dataclasses import dataclass, field
from datetime import timedelta
from types import MappingProxyType
from typing import Any, NamedTuple

from django_txtasks.core.declaring.registry import hint_queue
from django_txtasks.core.ground import payload
from django_txtasks.core.rows import statements
from django_txtasks.database.execute import as_uuid, fetch

MAX_ERRORS = 10
FollowUps = list[tuple[uuid.UUID, str]]
"""(id, queue name) of each task that an arrow has enqueued."""


class Attempt(NamedTuple):
    """One claim of one task by one worker; ``(task_id, number, worker)`` is never used twice.

    Attributes:
        args, kwargs, hooks: JSON text.
        timeout: seconds that it may take; None = no limit.
        batch: id of the batch that its task is a member of, in the database's form; None = no batch.
        may_share: whether it may be handed to a slot together with other attempts. If their worker is lost, each
            task runs again; after one crash, a task gets a slot of its own.
        has_ended: whether history has a task of this id. Then it is buried, and its function is not called.
        wait: seconds from its claim until its task was due, as the database gives them; usually negative.
        headers: JSON text of the row's headers, if a tracer reads them; once the attempt runs, the headers of the
            tasks that its end enqueues.
    """

    task_id: uuid.UUID
    number: int
    worker: uuid.UUID
    task_name: str = ""
    queue_name: str = ""
    args: str = "[]"
    kwargs: str = "{}"
    failures: int = 0
    crashes: int = 0
    max_attempts: int = 0
    errors: Sequence[dict[str, Any]] = ()
    timeout: float | None = None
    hooks: str = "{}"
    may_share: bool = False
    snoozes: int = 0
    lane: str = ""
    batch: Any = None
    has_ended: bool = False
    wait: Any = 0.0
    headers: str | None = None

    @property
    def fence(self) -> tuple[uuid.UUID, int, uuid.UUID]:
        """The values that the row must still have, so that this attempt may change it."""
        return self.task_id, self.number, self.worker

    @property
    def hint(self) -> tuple[uuid.UUID, str]:
        """The id of its task, and the queue for a hint of it."""
        return self.task_id, hint_queue(self.task_name, self.queue_name)

    @property
    def facts(self) -> dict[str, Any]:
        """The fields of every signal about this attempt."""
        return {
            "task_id": self.task_id,
            "task": self.task_name,
            "queue": self.queue_name,
            "attempt": self.number,
            "worker": self.worker,
        }

    def errors_with(self, entry: dict[str, Any]) -> str:
        """Return the text of the row's errors with an entry of this attempt; see ``errors_text``."""
        own = {"attempt": self.number, "worker": str(self.worker), **entry}
        return errors_text([*self.errors, own])


def errors_text(errors: list[dict[str, Any]]) -> str:
    """Return errors as the JSON text of a row's column: the first and the newest entries.

    Their texts come from exceptions and from other systems. Characters that a database refuses become escapes.
    """
    return json.dumps(
        [{key: _storable(one) for key, one in error.items()} for error in capped(errors)]
    )


def _storable(value: Any) -> Any:
    return payload.storable(value) if isinstance(value, str) else value


def capped(errors: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Keep the first error and the newest, ``MAX_ERRORS`` in all."""
    return errors if len(errors) <= MAX_ERRORS else [errors[0], *errors[1 - MAX_ERRORS :]]


class Arrow(enum.Enum):
    """The ways out of claimed."""

    FINISH = "finish"
    RETRY = "retry"
    BURY = "bury"
    RELEASE = "release"
    SNOOZE = "snooze"
    SUSPEND = "suspend"
    CANCEL = "cancel"


class Counted(enum.Enum):
    """The counter that the end of an attempt increases. An orderly stop of its worker increases none."""

    FAILURE = "failure"
    CRASH = "crash"
    NOTHING = "nothing"


class Ended(NamedTuple):
    """An attempt and the arrow that its row takes.

    Attributes:
        result: JSON text, for FINISH.
        delay: time until the next attempt, for RETRY, SNOOZE and the RELEASE of a call that does not fit.
        awaited: name of the wait, for SUSPEND.
        error: type, message, traceback and time, for RETRY, BURY, CANCEL and that RELEASE; for FINISH, the
            exception of a commit hook of an atomic task.
        counted: the counter that RETRY and BURY increase.
        cause: the fingerprint of the failure, for RETRY, BURY and that RELEASE; see ``core/ground/causes.py``.
        recorded: whether the arrow was already taken in the task's own transaction.
        exception: the exception for the log's traceback, without local variables.
        context: the attempt's context, for receivers of signals about its end; None = unknown.
    """

    attempt: Attempt
    arrow: Arrow
    result: str | None = None
    delay: timedelta = timedelta(0)
    error: Mapping[str, Any] = MappingProxyType({})
    counted: Counted = Counted.FAILURE
    recorded: bool = False
    exception: BaseException | None = None
    awaited: str = ""
    context: Context | None = None
    cause: int | None = None


@dataclass
class Recorded:
    """The result of recording ended attempts.

    Attributes:
        lost: attempts that no longer hold their rows.
        busy: attempts whose rows another transaction has locked: try again.
        to_notify: tasks to notify workers about: enqueued together with the arrows, or released.
    """

    done: list[Ended] = field(default_factory=list)
    lost: list[Ended] = field(default_factory=list)
    busy: list[Ended] = field(default_factory=list)
    to_notify: FollowUps = field(default_factory=list)

    def __iadd__(self, other: Recorded) -> Recorded:
        self.done += other.done
        self.lost += other.lost
        self.busy += other.busy
        self.to_notify += other.to_notify
        return self


def read_entries(text: str) -> list[dict[str, Any]]:
    """Return a row's list of objects, such as its errors; empty if the text is no such list."""
    if text == "[]":
        return []
    try:
        entries = json.loads(text)
        json.dumps(entries, allow_nan=False)  # 1e999 can be read, but not written again
    except (ValueError, RecursionError):
        return []
    return (
        [entry for entry in entries if isinstance(entry, dict)] if isinstance(entries, list) else []
    )


class Standing(enum.Enum):
    """The standing of an attempt: it holds its row, was asked to stop, or has lost its row."""

    HELD = "held"
    ASKED_TO_STOP = "asked to stop"
    LOST = "lost"


def standing_of(alias: str, attempt: Attempt) -> Standing:
    """Return the standing of an attempt. It is lost if the row has changed or its worker is declared lost."""
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
