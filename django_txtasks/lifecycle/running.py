"""The attempt that runs in a context, for code that the task's function calls, such as ``batch()``."""

from __future__ import annotations

import asyncio
import threading
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from types import MappingProxyType
from typing import Any

from django_txtasks.lifecycle.attempts import Attempt

NOTHING: Mapping[type, Any] = MappingProxyType({})


class AttemptRun:
    """One run of an attempt.

    Attributes:
        attempt: a part of the worker may replace it before the function is called.
        alias: alias of the database with the task's row.
        offered: what the parts of its worker offer to the code of tasks, by class.
    """

    __slots__ = ("_kept", "alias", "attempt", "offered")

    def __init__(self, attempt: Attempt, alias: str, offered: Mapping[type, Any] = NOTHING) -> None:
        self.attempt, self.alias, self.offered = attempt, alias, offered
        self._kept: dict[object, Any] | None = None

    def keep(self, key: object, value: Any) -> None:
        """Keep a value for the end of the run. A part of the worker uses itself as the key."""
        if self._kept is None:
            self._kept = {}
        self._kept[key] = value

    def take(self, key: object) -> Any:
        """Return the value that was kept, and forget it; None = nothing was kept."""
        return self._kept.pop(key, None) if self._kept else None


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
def awaiting(task: asyncio.Task[Any]) -> Iterator[None]:
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
