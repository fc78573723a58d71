"""The thread of the event loop. It runs until the worker closes it, whatever a task raises."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable
from contextvars import copy_context
from functools import partial
from typing import TypeVar

from django_txtasks.features.async_loop import children
from django_txtasks.features.async_loop.default_executor import DefaultExecutor
from django_txtasks.guards import generators, task_threads
from django_txtasks.guards.forked_task import watch_forks

Result = TypeVar("Result")

TICK_SECONDS = 0.1
ROUND_SECONDS = 0.01
"""Seconds of spread calls in one round of the loop."""
CLOSE_SECONDS = 2.0
"""Seconds that the thread may take to end when the worker closes it."""


class EventLoop:
    """An event loop in a thread of its own.

    The project's event loop policy chooses the loop.

    Attributes:
        executor: its default executor.
        ticked_at: time of the last tick, by ``time.monotonic()``; None = it does not tick. Written by the loop.
    """

    def __init__(self) -> None:
        task_threads.watch()
        watch_forks()
        self.loop = asyncio.new_event_loop()
        self.loop.set_task_factory(children.factory)
        self.executor = DefaultExecutor()
        self.loop.set_default_executor(self.executor)
        self.ticked_at: float | None = None
        self._calls: deque[Callable[[], object]] = deque()
        self._later_calls: deque[Callable[[], object]] = deque()
        self._is_spreading = False
        self._lag, self._is_closing = 0.0, False
        self.thread = threading.Thread(target=self._run, name="txtasks-loop", daemon=True)
        self.thread.start()

    def call(self, function: Callable[..., object], *args: object) -> None:
        """Call a function in the loop, soon. From any thread; no effect after the end of the loop."""
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self.loop.call_soon_threadsafe(function, *args)

    def spread(self, function: Callable[..., object], *args: object) -> None:
        """Like ``call``, but such calls take only ``ROUND_SECONDS`` of a round of the loop, or one call."""
        self._calls.append(partial(function, *args))
        self._announce()

    async def call_in_turn(self, function: Callable[[], Result]) -> Result:
        """Return what the function returns, in the caller's context: in this round or later, behind ``spread``.

        When a database goes away, hundreds of attempts fail at once, and each formats its error, which takes about
        3 ms, and much longer on a busy machine. If all did so in one round, the loop would be late by seconds.
        A cancel of the caller ends the wait: then the function is called at once.
        """
        turn: asyncio.Future[Result] = self.loop.create_future()
        self._later_calls.append(partial(copy_context().run, _answer, turn, function))
        self._announce()
        with contextlib.suppress(asyncio.CancelledError):
            await turn
        return function() if turn.cancelled() else turn.result()

    def tick(self, is_wanted: Callable[[], bool]) -> None:
        """Tick from now on while ``is_wanted`` returns True. Call it in the loop."""
        if self.ticked_at is None:
            self._is_wanted_by = is_wanted
            self.ticked_at = time.monotonic()
            self.loop.call_later(TICK_SECONDS, self._tick)

    def take_lag(self) -> float:
        """Return the most seconds that a tick came late since the last call."""
        lag, self._lag = self._lag, 0.0
        return lag

    def close(self) -> None:
        """End the loop and its thread. Tasks that still run are dropped."""
        self._is_closing = True
        self.call(self.loop.stop)
        self.thread.join(CLOSE_SECONDS)

    def _announce(self) -> None:
        if not self._is_spreading:
            self._is_spreading = True
            self.call(self._call_some)

    def _call_some(self) -> None:
        """Make the next calls. A call that raises ends the round, and the others go on in the next one."""
        until = time.monotonic() + ROUND_SECONDS
        try:
            while calls := self._calls or self._later_calls:
                calls.popleft()()
                if time.monotonic() >= until:
                    break
        finally:
            self._is_spreading = False
            if self._calls or self._later_calls:  # also of a thread that has not announced its call
                self._is_spreading = True
                self.loop.call_soon(self._call_some)

    def _tick(self) -> None:
        now = time.monotonic()
        late = now - (self.ticked_at or now) - TICK_SECONDS
        self._lag = max(self._lag, late)
        self.ticked_at = now if self._is_wanted_by() else None
        if self.ticked_at is not None:
            self.loop.call_later(TICK_SECONDS, self._tick)

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        while not self._is_closing:
            self.loop.call_soon(generators.watch)
            # sys.exit() in a task that an attempt has started leaves run_forever: the others must go on
            with contextlib.suppress(SystemExit, KeyboardInterrupt):
                self.loop.run_forever()
        self.loop.close()


def _answer(turn: asyncio.Future[Result], function: Callable[[], Result]) -> None:
    if turn.done():  # its caller was cancelled
        return
    try:
        turn.set_result(function())
    except Exception as error:
        turn.set_exception(error)
