"""One attempt on the event loop: one asyncio task, in a context of its own."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextvars import Context, copy_context
from dataclasses import dataclass, field
from typing import Any

from asgiref.sync import sync_to_async

from django_txtasks import signals
from django_txtasks.core.declaring import registry
from django_txtasks.core.rows.attempts import Arrow, Attempt, Ended
from django_txtasks.core.rows.running import AttemptRun, running
from django_txtasks.core.working.running.limits import NEVER, TimeLimit
from django_txtasks.core.working.running.runner import Runner, Stop, arguments_of, finished
from django_txtasks.core.working.running.verdicts import buried
from django_txtasks.exceptions import ClaimLost, LoopBlocked, TimedOut, meant
from django_txtasks.features.async_loop.children import Children
from django_txtasks.features.async_loop.ending import Ending
from django_txtasks.features.async_loop.event_loop import EventLoop
from django_txtasks.features.async_loop.executors import AttemptExecutor
from django_txtasks.features.async_loop.shared_threads import SharedThreads
from django_txtasks.guards.forked_task import await_in_this_process, end_child, forks_of_process
from django_txtasks.signals import attempt_starting, tracebacks
from django_txtasks.signals.logs import current

_EMPTY = Context()
"""Each attempt gets a copy. As in an ASGI request, the connections of caches are made anew for each."""
LATE_SECONDS = 0.1
"""Seconds by which a timeout may come late before it is moved: then another task has blocked the loop."""


class CutShort(BaseException):
    """The process ends before the attempt, which is cancelled. The worker then moves its claim."""


class OnLoop:
    """One attempt on the loop. The loop writes it, the turns read it.

    Attributes:
        task: its asyncio task; None = it has not begun.
        since: time at which it began, by ``time.monotonic()``.
        children: the asyncio tasks that it has started.
        why: the error for the row, if the worker has cancelled it.
        expired_at: time of its TimedOut, by ``time.monotonic()``; None = its time is not over.
        where, blocked: the line by which it has blocked the loop for too long, and the seconds; empty = none.
    """

    __slots__ = (
        "_is_open", "attempt", "blocked", "children", "expired_at", "since", "task", "where", "why",
    )  # fmt: skip

    def __init__(self, attempt: Attempt) -> None:
        self.attempt = attempt
        self.children = Children()
        self.task: asyncio.Task[None] | None = None
        self.why: BaseException | None = None
        self.expired_at: float | None = None
        self.since = time.monotonic()
        self.where, self.blocked = "", 0.0  # see ``LagWatch``
        self._is_open = False

    def open(self) -> None:
        """Let ``cancel`` interrupt the task function from now on.

        Raises:
            CancelledError: the attempt was cancelled before.
        """
        if self.why is not None:
            raise asyncio.CancelledError
        self._is_open = True

    def shut(self) -> None:
        """End the effect of ``cancel``, because the task function has ended."""
        self._is_open = False

    def cancel(self, why: BaseException) -> None:
        """Raise CancelledError in the task function, at its next ``await``. Call it in the loop."""
        if self.why_dropped is None:
            self.why = why
        if self._is_open and self.task is not None:
            self.task.cancel()

    def meaning_of(self, raised: BaseException) -> BaseException:
        """Return the error that decides the outcome; for a cancel by the worker, the reason of the cancel.

        A function may answer its cancel with an error of its own. Once its worker ends, or was declared lost, no
        error has an outcome, because the attempt would not have had it otherwise.
        """
        if self.why_dropped is not None:
            return self.why_dropped
        if isinstance(raised, asyncio.CancelledError) and self.why is not None:
            return self.why.with_traceback(raised.__traceback__)
        try:
            return meant(raised)
        except BaseException as problem:  # raised where the error was read
            return problem

    def end_of_patience(self, patience: float) -> float:
        """Return the time until which it may end by its TimedOut, by ``time.monotonic()``."""
        return NEVER if self.expired_at is None else self.expired_at + patience

    def error(self) -> TimedOut:
        """Return the error of an attempt that no exception ends."""
        if self.where:
            return LoopBlocked(f"blocked the event loop for {self.blocked:.0f} s at {self.where}")
        return TimeLimit(self.attempt.timeout).error()

    @property
    def why_dropped(self) -> BaseException | None:
        """The error of a cancel after which the attempt has no outcome: its worker ends, or was declared lost."""
        return self.why if isinstance(self.why, (CutShort, ClaimLost)) else None


@dataclass(frozen=True)
class LoopRunner:
    """Runs attempts on the loop.

    Attributes:
        runner: see ``Runner``; it would run them in threads.
        shared: the threads for sync code.
        over: called with each ended attempt and its outcome; None = see ``OnLoop.why_dropped``.
        expired: the attempts that still run after their TimedOut.
    """

    runner: Runner
    shared: SharedThreads
    loop: EventLoop
    over: Callable[[OnLoop, Ended | None], None]
    expired: set[OnLoop] = field(default_factory=set)

    async def run(self, one: OnLoop) -> None:
        """Run the task function, then end the attempt. Never raises: each error is in the outcome."""
        forks = forks_of_process()
        ended: Ended | None
        with self.shared.for_attempt(one.attempt) as executor:
            try:
                ended = await self._ended(one, executor)
            except BaseException as error:  # a defect: otherwise its place would never be free
                ended = buried(one.attempt, error)
                tracebacks.forget_locals(error)
        if forks_of_process() != forks:
            end_child()
        if ended is not None and (
            ended.arrow is not Arrow.FINISH or signals.task_finished.has_observers
        ):
            ended = ended._replace(context=copy_context())
        self.over(one, ended)

    async def _ended(self, one: OnLoop, executor: AttemptExecutor) -> Ended | None:
        run = self.runner.run_of(one.attempt)
        ended: Ended | None = None
        error: BaseException | None = None
        try:
            self._begin(one, run)
            ended = finished(run.attempt, await self._value(one, run))
        except BaseException as raised:
            one.shut()
            error = one.meaning_of(raised)
            tracebacks.forget_locals(raised)
            tracebacks.forget_locals(error)
        return await Ending(self, one, run, executor).outcome(ended, error)

    def _begin(self, one: OnLoop, run: AttemptRun) -> None:
        current.set(run.attempt.facts)
        running.set(run)
        one.children.own_this_context()
        self.runner.parts.begin_alone(run)

    async def _value(self, one: OnLoop, run: AttemptRun) -> Any:
        """Return what the task function returns. Cancel it when its time is over, or when it is asked to stop."""
        runner, attempt = self.runner, run.attempt
        if attempt_starting.receivers:
            await sync_to_async(attempt_starting.send)(sender=None, **attempt.facts)
        declaration = registry.get(attempt.task_name)
        args, kwargs = arguments_of(declaration, run, runner.requests)
        stop = Stop(attempt, runner.requests)
        timer = _Timer(one, self.loop, self.expired) if attempt.timeout is not None else None
        with stop.calls(lambda: self.loop.spread(one.cancel, stop.error())):
            try:
                one.open()
                return await await_in_this_process(declaration.function(*args, **kwargs))
            finally:
                one.shut()
                if timer is not None:
                    timer.end()


class _Timer:
    """The timeout of one attempt. Only the loop uses it."""

    def __init__(self, one: OnLoop, loop: EventLoop, expired: set[OnLoop]) -> None:
        self._one, self._spread, self._expired = one, loop.spread, expired
        self._loop = loop.loop
        self._has_moved = False
        self._set(self._loop.time() + (one.attempt.timeout or 0.0))

    def end(self) -> None:
        self._handle.cancel()

    def _set(self, deadline: float) -> None:
        self._deadline = deadline
        self._handle = self._loop.call_at(deadline, self._fire)

    def _fire(self) -> None:
        """Cancel the attempt, unless another task has blocked the loop: then its answer may be there already."""
        now = self._loop.time()
        late = now - self._deadline
        if late > LATE_SECONDS and not self._has_moved:
            self._has_moved = True
            self._set(now + late)
            return
        self._spread(self._expire)

    def _expire(self) -> None:
        one = self._one
        one.expired_at = time.monotonic()
        self._expired.add(one)
        one.cancel(TimeLimit(one.attempt.timeout).error())


def start(loop: asyncio.AbstractEventLoop, runner: LoopRunner, one: OnLoop) -> None:
    """Start an attempt, in its own context. Call it in the loop."""
    one.since = time.monotonic()
    one.task = _EMPTY.run(loop.create_task, runner.run(one))
