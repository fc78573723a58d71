"""The asyncio tasks that an attempt starts: none of them outlives it.

They would run on while their row is finished, or claimed by another attempt.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine
from contextvars import Context, ContextVar
from typing import Any

from django_txtasks import signals

END_SECONDS = 1.0
"""Seconds that cancelled children of an ended attempt may take to end."""
MOST_NAMES = 5
_owner: ContextVar[Children] = ContextVar("txtasks_children")
_told: set[str] = set()


class Children:
    """The asyncio tasks that one attempt has started, directly or through others, and that have not ended."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()
        self._is_over = False

    def own_this_context(self) -> None:
        """Note each asyncio task that this context starts from now on. Contexts copied from it do the same."""
        _owner.set(self)

    def add(self, task: asyncio.Task[Any]) -> None:
        """Note a started task. If the attempt is over, cancel the task."""
        if self._is_over:
            task.cancel()
        elif not task.done():  # an eager task may have ended
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def all(self) -> list[asyncio.Task[Any]]:
        """Return the present tasks. Works from any thread."""
        return list(self._tasks)

    def include(self, task: asyncio.Task[Any]) -> bool:
        """Return True if this is one of the tasks."""
        return task in self._tasks

    async def end(self, facts: dict[str, Any]) -> None:
        """Cancel the tasks that still run, wait for them, and name them in the log once for each function."""
        self._is_over = True
        left = list(self._tasks)
        if not left:
            return
        for task in left:
            task.cancel()
        with contextlib.suppress(
            asyncio.CancelledError
        ):  # a child may cancel the task that it belongs to
            await asyncio.wait(left, timeout=END_SECONDS)
        if facts["task"] not in _told:
            _told.add(facts["task"])
            names = ", ".join(sorted({_name_of(one) for one in left})[:MOST_NAMES])
            signals.async_tasks_left.emit(**facts, count=len(left), names=names)


def factory(
    loop: asyncio.AbstractEventLoop,
    coro: Coroutine[Any, Any, Any],
    **options: Any,
) -> asyncio.Task[Any]:
    """Create an asyncio task, and note it for the attempt that starts it: see ``loop.set_task_factory``."""
    context: Context | None = options.get("context")
    task: asyncio.Task[Any] = asyncio.Task(coro, loop=loop, **options)
    owner = _owner.get(None) if context is None else context.get(_owner)
    if owner is not None:
        owner.add(task)
    return task


def _name_of(task: asyncio.Task[Any]) -> str:
    coro = task.get_coro()
    return str(getattr(coro, "__qualname__", coro))
