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
from django_txtasks.guards.generators import Generators

END_SECONDS = 1.0
"""Seconds that cancelled children of an ended attempt may take to end."""
MOST_NAMES = 5
_owner: ContextVar[Children] = ContextVar("txtasks_children")
_told: set[str] = set()


class Children:
    """The asyncio tasks that one attempt has started, directly or through others, and that have not ended.

    Attributes:
        generators: the async generators that it has begun.
    """

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()
        self.generators = Generators()
        self._is_over = False

    def own_this_context(self) -> None:
        """Note each asyncio task that this context starts from now on. Contexts copied from it do the same."""
        _owner.set(self)
        self.generators.own_this_context()

    def add(self, task: asyncio.Task[Any]) -> None:
        """Note a started task. If the attempt is over, cancel the task."""
        if self._is_over:
            task.cancel()
        elif not task.done():  # an eager task may have ended
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def all(self) -> list[asyncio.Task[Any]]:
        """Return the present tasks. Works from any thread."""
        return [*self._tasks, *self.generators.closing]

    def include(self, task: asyncio.Task[Any]) -> bool:
        """Return True if this is one of the tasks."""
        return task in self._tasks or task in self.generators.closing

    async def end(self, facts: dict[str, Any]) -> None:
        """Close the generators, cancel the tasks that still run, and name them in the log once for each function.

        A generator may need its own tasks to close, so it closes before they are cancelled. Generators in use by
        these tasks close after that.
        """
        generators = self.generators
        await generators.close(self._tasks.copy)
        left = await self._cut()
        if generators.have_begun:
            await generators.close(set)
            left += await self._cut()
        generators.end()
        self._is_over = True
        for task in self._tasks.copy():  # cancelled tasks may have started others
            task.cancel()
        if not left:
            return
        if facts["task"] not in _told:
            _told.add(facts["task"])
            names = ", ".join(sorted({_name_of(one) for one in left})[:MOST_NAMES])
            signals.async_tasks_left.emit(**facts, count=len(left), names=names)

    async def _cut(self) -> list[asyncio.Task[Any]]:
        left = list(self._tasks)
        for task in left:
            task.cancel()
        # A child may cancel the task that it belongs to.
        with contextlib.suppress(asyncio.CancelledError):
            if left:
                await asyncio.wait(left, timeout=END_SECONDS)
        return left


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
