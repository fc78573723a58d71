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

from django_txtasks.core.rows.attempts import Ended
from django_txtasks.core.rows.running import AttemptRun
from django_txtasks.core.working.running.attempt_context import close_caches
from django_txtasks.core.working.running.verdicts import buried, failed, is_asked, tell_late_error
from django_txtasks.features.async_loop.executors import AttemptExecutor
from django_txtasks.signals import tracebacks

if TYPE_CHECKING:
    from django_txtasks.features.async_loop.attempts import LoopRunner, OnLoop


class Ending:
    """Ends one attempt, in its context."""

    def __init__(
        self,
        runner: LoopRunner,
        one: OnLoop,
        run: AttemptRun,
        executor: AttemptExecutor,
    ) -> None:
        self._of, self._one, self._run, self._attempt = runner, one, run, run.attempt
        self._executor = executor

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
        self._of.runner.parts.end(self._run, ended)
        return ended

    async def _failed(self, error: BaseException) -> Ended:
        attempt, runner = self._attempt, self._of.runner
        try:
            ended = await self._of.loop.call_in_turn(partial(failed, attempt, error, runner.config))
        except BaseException as problem:  # raised where the error of the task was read
            ended = buried(attempt, problem)
            tracebacks.forget_locals(problem)
        for call in runner.parts.raised(self._run, error):
            with contextlib.suppress(BaseException):  # its owner logs it
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
