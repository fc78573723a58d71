"""The attempt that runs, for its task's function, and for code that the function calls, such as ``batch()``."""

from __future__ import annotations

import asyncio
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, fields
from types import MappingProxyType
from typing import Any

from asgiref.sync import sync_to_async

from django_txtasks.core.ground.cancel_requests import NOBODY, CancelRequests
from django_txtasks.core.ground.seams import Composed
from django_txtasks.core.rows import attempts
from django_txtasks.core.rows.attempts import Attempt
from django_txtasks.exceptions import ClaimLost, TaskCancelled

NOTHING: Mapping[type, Any] = MappingProxyType({})


class AttemptRun:
    """One run of an attempt.

    Attributes:
        attempt: a part of the worker may replace it before the function is called.
        alias: alias of the database with the task's row.
        offered: what the parts of its worker offer to the code of tasks, by class.
        kept: values that parts keep for the end of the run, by part; None = no value.
    """

    __slots__ = ("alias", "attempt", "kept", "offered")

    def __init__(self, attempt: Attempt, alias: str, offered: Mapping[type, Any] = NOTHING) -> None:
        self.attempt, self.alias, self.offered = attempt, alias, offered
        self.kept: dict[object, Any] | None = None

    def keep(self, key: object, value: Any) -> None:
        """Keep a value for the end of the run. A part of the worker uses itself as the key."""
        if self.kept is None:
            self.kept = {}
        self.kept[key] = value


running: ContextVar[AttemptRun | None] = ContextVar("txtasks_running", default=None)
"""The run that this context belongs to. The code that runs attempts sets it."""
awaited: dict[tuple[uuid.UUID, int], tuple[asyncio.Task[Any], int]] = {}
"""The asyncio tasks of async task functions that threads run, each with the thread of its own event loop."""


@contextmanager
def run_of(attempt: Attempt, alias: str) -> Iterator[AttemptRun]:
    """Set the running attempt for the block."""
    run = AttemptRun(attempt, alias)
    token = running.set(run)
    try:
        yield run
    finally:
        running.reset(token)


@contextmanager
def showing(task: asyncio.Task[Any]) -> Iterator[None]:
    """Show the asyncio task of the running attempt in ``awaited``. Enter it in the thread of the event loop."""
    run = running.get()
    if run is None:
        yield
        return
    key = run.attempt.task_id, run.attempt.number
    awaited[key] = task, threading.get_ident()
    try:
        yield
    finally:
        awaited.pop(key, None)


@dataclass(frozen=True)
class CoreContext:
    """The first argument of a task function that was declared with ``takes_context=True``.

    A context can be pickled for another process. There ``check`` works as usual, and ``cancelled`` is always
    False.

    Attributes:
        task_id: id of the task's row.
        attempt: number of this attempt, from 1 on. It never goes down.
        failures: number of earlier attempts that raised.
        max_attempts: number of attempts that may raise. After the last of them the task is dead.
        snoozes: number of times that the task has postponed itself.
    """

    task_id: uuid.UUID
    attempt: int
    task_name: str
    queue_name: str
    failures: int
    max_attempts: int
    snoozes: int
    _claim: Attempt = field(repr=False, compare=False)
    _alias: str = field(repr=False, compare=False)
    _requests: CancelRequests = field(repr=False, compare=False)
    _offered: Mapping[type, Any] = field(default=NOTHING, repr=False, compare=False)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle all fields except the last two, which the worker's loop shares with its slots in one process."""
        facts = [getattr(self, one.name) for one in fields(self)[:-2]]
        return _context_elsewhere, (type(self), facts)

    def __copy__(self) -> CoreContext:
        return self  # frozen

    def __deepcopy__(self, memo: dict[int, Any]) -> CoreContext:
        return self

    @property
    def attempt_id(self) -> str:
        """Text that identifies this attempt among the attempts of all tasks, such as for another system."""
        return f"{self.task_id}-{self.attempt}"

    @property
    def cancelled(self) -> bool:
        """True once the worker has learned that this attempt is to stop. It looks once a second.

        Reading it needs no query. ``check`` asks the database.
        """
        return self._requests.include(self._claim.task_id, self._claim.number)

    def check(self) -> None:
        """Raise if the database says that this attempt must stop. Call it before an effect that cannot be undone.

        Raises:
            ClaimLost: the worker was declared lost, and the task may run elsewhere. Do not catch it.
            TaskCancelled: the task was cancelled. Do not catch it.
        """
        standing = attempts.standing_of(self._alias, self._claim)
        if standing is attempts.Standing.LOST:
            raise ClaimLost(
                f"attempt {self.attempt} no longer holds task {self.task_id}: its worker was declared lost"
            )
        if standing is attempts.Standing.ASKED_TO_STOP:
            raise TaskCancelled(f"attempt {self.attempt} of task {self.task_id} was asked to stop")

    async def acheck(self) -> None:
        """Like ``check``, from an async task."""
        await sync_to_async(self.check)()


CONTEXT: Composed[type[CoreContext]] = Composed(f"{__name__}.CoreContext")
"""The class of the contexts that task functions get."""


def _context_elsewhere(kind: Callable[..., CoreContext], facts: list[Any]) -> CoreContext:
    return kind(*facts, NOBODY)
