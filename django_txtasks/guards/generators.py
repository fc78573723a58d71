"""The async generators that an attempt has begun: their clean-up runs before the attempt ends.

A function may leave an ``async for`` early, by ``return``, ``break`` or an error. Then the generator stays at its
``yield``. asyncio runs its ``finally`` later, in an asyncio task that the end of the attempt would cancel.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time
import weakref
from collections.abc import Callable
from contextvars import Context, ContextVar, copy_context
from functools import partial
from types import AsyncGeneratorType
from typing import Any, NamedTuple, TypeAlias

CLOSE_SECONDS = 10.0
"""Seconds that the generators of an ended attempt may take to close. Then their clean-up is cancelled."""
CANCEL_SECONDS = 1.0
"""Seconds that a cancelled clean-up, or a cancelled asyncio task, may take to end."""
Generator: TypeAlias = AsyncGeneratorType[Any, Any]
Hook: TypeAlias = Callable[[Generator], None]


class _Begun(NamedTuple):
    """A generator whose first value was asked for, with the asyncio task and the context that did so."""

    owner: Generators
    generator: weakref.ref[Generator]
    task: asyncio.Task[Any] | None
    context: Context


_owner: ContextVar[Generators] = ContextVar("txtasks_generators")
_begun: dict[int, _Begun] = {}
"""By ``id``, because a generator that Python is about to drop has lost its weak references."""


def watch() -> None:
    """Note the generators of the running event loop from now on, until the loop stops."""
    before = sys.get_asyncgen_hooks()
    sys.set_asyncgen_hooks(
        firstiter=partial(_begins, before.firstiter), finalizer=partial(_is_left, before.finalizer)
    )


class Generators:
    """The async generators that one attempt has begun and not ended."""

    def __init__(self) -> None:
        self._own: dict[int, _Begun] = {}
        self._left: list[tuple[Generator, Context]] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_over = False
        self.closing: set[asyncio.Task[Any]] = set()

    def own_this_context(self) -> None:
        """Note each generator that begins in this context from now on. Contexts copied from it do the same."""
        _owner.set(self)

    def begin(self, generator: Generator) -> None:
        """Note a generator that begins now."""
        self._loop = asyncio.get_running_loop()
        one = _Begun(self, weakref.ref(generator), asyncio.current_task(), copy_context())
        _begun[id(generator)] = self._own[id(generator)] = one

    def leave(self, generator: Generator, context: Context) -> bool:
        """Close a generator to which nothing refers any more. Works from any thread. Return False if it cannot."""
        if self._is_over or self._loop is None:
            return False
        self._left.append((generator, context))
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._close_left)
        return True

    @property
    def have_begun(self) -> bool:
        """True if a generator has begun since the last ``close``, or was not free then."""
        return bool(self._own)

    async def close(self, others: Callable[[], set[asyncio.Task[Any]]]) -> None:
        """Close the generators that no other asyncio task uses. A cancel does not end the wait.

        Args:
            others: returns the tasks that the attempt has started and that still run.
        """
        if not self._own:
            return
        until = time.monotonic() + CLOSE_SECONDS
        while self._close_some(others() | self.closing) and time.monotonic() < until:
            await _wait(self.closing, until - time.monotonic())
        if self.closing:
            for task in self.closing:
                task.cancel()
            await _wait(self.closing, CANCEL_SECONDS)

    def end(self) -> None:
        """Forget the generators. asyncio closes those left later."""
        self._is_over = True
        for number, one in self._own.items():
            if _begun.get(number) is one:
                del _begun[number]
        self._own.clear()

    def _close_some(self, running: set[asyncio.Task[Any]]) -> bool:
        """Start to close what may be closed. Return True if something closes now."""
        for number, one in list(self._own.items()):
            generator = one.generator()
            if generator is not None and not generator.ag_running and one.task not in running:
                del self._own[number]
                if generator.ag_frame is not None:
                    self._start(generator, one.context)
        self._close_left()
        return bool(self.closing)

    def _close_left(self) -> None:
        while self._left:
            self._start(*self._left.pop())

    def _start(self, generator: Generator, context: Context) -> None:
        # Not by create_task(): the attempt would take it for a task that its function has left.
        loop = asyncio.get_running_loop()
        task = context.run(partial(asyncio.Task, _close(generator), loop=loop))
        self.closing.add(task)
        task.add_done_callback(self.closing.discard)


async def close_in_own_loop(generators: Generators) -> None:
    """Close the generators of an attempt that has an event loop of its own, and cut the tasks that it has left."""
    if not generators.have_begun:
        return  # the end of the loop cuts the tasks
    me = asyncio.current_task()
    await generators.close(lambda: asyncio.all_tasks() - {me})
    left = asyncio.all_tasks() - {me}
    for task in left:
        task.cancel()
    if left:
        await _wait(left, CANCEL_SECONDS)
    await generators.close(set)
    generators.end()


async def _close(generator: Generator) -> None:
    """Run the clean-up of a generator. Tell the loop of an error in it, as asyncio does."""
    try:
        await generator.aclose()
    except BaseException as error:
        if isinstance(error, asyncio.CancelledError):
            raise
        asyncio.get_running_loop().call_exception_handler(
            {
                "message": f"an error occurred during closing of asynchronous generator {generator!r}",
                "exception": error,
                "asyncgen": generator,
            }
        )


async def _wait(tasks: set[asyncio.Task[Any]], seconds: float) -> None:
    with contextlib.suppress(asyncio.CancelledError):  # the clean-up goes on
        await asyncio.wait(list(tasks), timeout=seconds)


def _begins(before: Hook | None, generator: Generator) -> None:
    owner = _owner.get(None)
    if owner is not None:
        owner.begin(generator)
    else:
        _begun.pop(id(generator), None)  # an earlier generator had this number
    if before is not None:
        before(generator)


def _is_left(before: Hook | None, generator: Generator) -> None:
    one = _begun.pop(id(generator), None)
    is_closed = one is not None and one.owner.leave(generator, one.context)
    if not is_closed and before is not None:
        before(generator)
