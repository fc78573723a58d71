"""The end of an attempt on the event loop: all that comes after its task function.

The function's value or error is known. Each part of the end runs, whatever happens in the others, and no error of
a part changes the outcome.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING

from django_txtasks import tracing
from django_txtasks.lifecycle.attempts import Attempt, Ended
from django_txtasks.signals import last_lines, tracebacks
from django_txtasks.worker.loop.executors import AttemptExecutor
from django_txtasks.worker.running import task_threads
from django_txtasks.worker.running.attempt_context import close_caches
from django_txtasks.worker.running.runner import (
    buried,
    end_trace,
    failed,
    is_asked,
    tell_late_error,
)

if TYPE_CHECKING:
    from django_txtasks.worker.loop.attempts import LoopRunner, OnLoop


class Ending:
    """Ends one attempt, in its context.

    Args:
        attempt: as the tracers have changed it.
        traced: None = no tracer follows it.
    """

    def __init__(
        self,
        runner: LoopRunner,
        one: OnLoop,
        attempt: Attempt,
        executor: AttemptExecutor,
        traced: tracing.TracedRun | None,
    ) -> None:
        self._of, self._one, self._attempt = runner, one, attempt
        self._executor, self._traced = executor, traced

    async def outcome(self, ended: Ended | None, error: BaseException | None) -> Ended | None:
        """Return the outcome; None = see ``OnLoop.why_dropped``. Never raises.

        Args:
            ended: the outcome of a function that has returned.
            error: the error of a function that has raised.
        """
        attempt = self._attempt
        await self._finish(self._one.children.end(attempt.facts))
        self._do(close_caches)
        if self._executor.used:
            is_failure = error is not None and not is_asked(error)
            await self._finish(self._executor.ended(failed=is_failure, error=error))
        self._of.expired.discard(self._one)
        if error is not None and error is not self._one.why_dropped:
            ended = await self._failed(error)
        if self._traced is not None:
            self._do(partial(end_trace, self._traced, ended))
        self._do(partial(self._of.runner.notes.forget, attempt.task_id))
        self._do(partial(last_lines.end, attempt.task_id, attempt.number))
        self._do(partial(task_threads.end_of, attempt.task_id, attempt.number))
        return ended

    async def _failed(self, error: BaseException) -> Ended:
        attempt, runner = self._attempt, self._of.runner
        try:
            ended = await self._of.loop.call_in_turn(partial(failed, attempt, error, runner.config))
        except BaseException as problem:  # raised where the error of the task was read
            ended = buried(attempt, problem)
            tracebacks.forget_locals(problem)
        with contextlib.suppress(BaseException):  # its owner logs it
            if (call := runner.raised(attempt, error)) is not None:
                await self._in_thread(call)
        return ended

    async def _in_thread(self, call: Callable[[], None]) -> None:
        """Make a call that uses the database. The attempt's own executor refuses it by now."""
        executor = self._of.shared.for_attempt(self._attempt)
        future = asyncio.wrap_future(executor.submit(call))
        while not future.done():
            with contextlib.suppress(asyncio.CancelledError):  # the outcome is known
                await asyncio.wait([future])
        await executor.ended(failed=future.exception() is not None, error=None)

    async def _finish(self, part: Awaitable[None]) -> None:
        try:
            await part
        except BaseException as error:
            tell_late_error(self._attempt, error)

    def _do(self, part: Callable[[], None]) -> None:
        try:
            part()
        except BaseException as error:
            tell_late_error(self._attempt, error)
