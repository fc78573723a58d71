"""One attempt: look up the function, and call it."""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import Callable, Coroutine
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

from asgiref.sync import async_to_sync
from django.db import DatabaseError, InterfaceError, transaction

from django_txtasks import signals
from django_txtasks.core.declaring import registry
from django_txtasks.core.declaring.registry import Declaration
from django_txtasks.core.enqueueing.commit_hints import notify_on_commit
from django_txtasks.core.ground import payload
from django_txtasks.core.ground.cancel_requests import NOBODY, CancelRequests
from django_txtasks.core.ground.config import CoreConfig
from django_txtasks.core.ground.seams import AROUND
from django_txtasks.core.rows import outcomes
from django_txtasks.core.rows.attempts import Arrow, Attempt, Ended
from django_txtasks.core.rows.running import CONTEXT, AttemptRun, CoreContext, running, showing
from django_txtasks.core.working.parts import DatabaseCall, Parts
from django_txtasks.core.working.running.attempt_context import context_of_attempt
from django_txtasks.core.working.running.limits import Interruption, TimeLimit
from django_txtasks.core.working.running.verdicts import (
    buried,
    describe,
    failed,
    shown,
    tell_late_error,
)
from django_txtasks.database.sessions import session_of_thread
from django_txtasks.exceptions import (
    AlreadyRun,
    InvalidArguments,
    TaskCancelled,
    TimedOut,
    meant,
)
from django_txtasks.signals import attempt_starting, tracebacks
from django_txtasks.signals.logs import current

Function: TypeAlias = Callable[..., Any]
NOT_COMMITTED = (
    "The task function had returned, and the transaction could not be committed, so all of it is undone. Look for "
    "what is checked only then, such as a foreign key, a swallowed error, or a connection that was lost or closed."
)


@dataclass(frozen=True)
class Runner:
    """Runs attempts in the calling thread.

    Attributes:
        note_session: called with the database session of the thread, so that a cleaner can end the session.
        requests: the attempts that were asked to stop.
        parts: the parts of the worker.
        around: the guards around the code of tasks; see ``unguarded``.
    """

    alias: str
    config: CoreConfig
    note_session: Callable[[str], None]
    requests: CancelRequests = NOBODY
    parts: Parts = field(default_factory=Parts)
    around: Any = field(default_factory=lambda: AROUND.whole)

    def run(self, attempt: Attempt, limit: TimeLimit) -> Ended:
        """Run the task function. Never raises: each error is in the answer.

        Each attempt has a context of its own, so its language, time zone and context variables end with it.
        """
        context = context_of_attempt()
        forks = self.around.forks_of_process()
        ended = context.run(self._run_alone, attempt, limit)
        # If this is a child, such as a commit hook may have forked: otherwise it would continue as this thread.
        if self.around.forks_of_process() != forks:
            self.around.end_child()
        if ended.arrow is Arrow.FINISH and not signals.task_finished.has_observers:
            return ended
        return ended._replace(context=context)

    def _run_alone(self, attempt: Attempt, limit: TimeLimit) -> Ended:
        run = AttemptRun(attempt, self.alias, self.parts.offered)
        current.set(attempt.facts)
        running.set(run)
        try:
            ended = self._outcome(run, limit)
        except BaseException as error:  # raised where the error of the task was read
            ended = buried(run.attempt, error)
            tracebacks.forget_locals(error)
        self.parts.end(run, ended)
        self._clean_up(run.attempt, ended)
        return ended

    def _clean_up(self, attempt: Attempt, ended: Ended) -> None:
        """Leave nothing of an attempt in this thread. No error from here on changes its outcome."""
        # Always clean up, because the next task must not find an open transaction.
        try:
            # A Retry or Snooze is no failure.
            was_asked = ended.arrow is not Arrow.FINISH and ended.exception is None
            self.around.after_attempt(
                failed=bool(ended.error) and not was_asked, errors=[ended.exception]
            )
            if ended.recorded and ended.error:
                self._keep_error(ended)
        except BaseException as error:
            tell_late_error(attempt, error)

    def _outcome(self, run: AttemptRun, limit: TimeLimit) -> Ended:
        """Run the task function, and choose the arrow."""
        try:
            self.parts.begin_alone(run)
            attempt = run.attempt
            self.around.before_attempt(self.note_session_of)
            if attempt_starting.receivers:
                attempt_starting.send(sender=None, **attempt.facts)
                self.around.note_states()
            return self._attempted(run, limit)
        except BaseException as error:
            if type(error) is TimedOut:  # it was raised from outside, so it has no text
                error = limit.error().with_traceback(error.__traceback__)
            said = meant(error)
            ended = failed(run.attempt, said, self.config)
            for call in self.parts.raised(run, said):
                make_call(call)
            tracebacks.forget_locals(error)
            return ended

    def _attempted(self, run: AttemptRun, limit: TimeLimit) -> Ended:
        attempt = run.attempt
        declaration = registry.get(attempt.task_name)
        call = call_of(declaration, run, limit, requests=self.requests)
        self.around.have_session(self.alias, wanted=declaration.atomic)
        return (self._run_atomic if declaration.atomic else _finished_by)(attempt, call)

    def _run_atomic(self, attempt: Attempt, call: Callable[[], Any]) -> Ended:
        """Commit the effects, the finish and its follow-ups together, or none of them.

        Commit hooks of the task run after that, so their errors come from a finished task.
        """
        committed: list[bool] = []
        ended: Ended | None = None
        try:
            with transaction.atomic(using=self.alias, durable=True):
                # The first hook, to tell a failed COMMIT from a failed hook.
                transaction.on_commit(lambda: committed.append(True), using=self.alias)
                ended = _finished_by(attempt, call)._replace(recorded=True)
                follow_ups = outcomes.finish(self.alias, ended, config=self.config)
                if follow_ups:
                    notify_on_commit(self.alias, follow_ups)
        except BaseException as error:
            if ended is None or not committed:
                if ended is not None:
                    _note(error, NOT_COMMITTED)
                raise
            entry = describe(error)
            signals.task_hook_failed.emit(exception=error, error=shown(error), **attempt.facts)
            tracebacks.forget_locals(error)
            return ended._replace(error=entry)
        return ended

    def _keep_error(self, ended: Ended) -> None:
        """Keep the error of a commit hook in the finished row. The log has it in any case."""
        if self.config.keeps("succeeded"):
            try:
                outcomes.note_hook_error(self.alias, ended)
            except (DatabaseError, InterfaceError):
                self.around.after_attempt(failed=True)

    def run_of(self, attempt: Attempt) -> AttemptRun:
        """Return a run of an attempt, for the parts of the worker."""
        return AttemptRun(attempt, self.alias, self.parts.offered)

    def note_session_of(self, alias: str) -> None:
        """Note the session that the calling thread has opened, if it is in the database of the tasks."""
        if alias == self.alias:
            self.note_session(session_of_thread(alias))


def call_of(
    declaration: Declaration,
    run: AttemptRun,
    limit: TimeLimit,
    *,
    requests: CancelRequests = NOBODY,
) -> Callable[[], Any]:
    """Return the call of an attempt, with its arguments.

    Raises:
        InvalidArguments: the arguments in the row cannot be read.
        AlreadyRun: the task has ended before.
    """
    args, kwargs = arguments_of(declaration, run, requests)
    function, attempt = declaration.function, run.attempt
    if declaration.is_async or declaration.interruptible:
        call = _call_async if declaration.is_async else _call_interruptible
        stop = Stop(attempt, requests)
        return functools.partial(call, function, args, kwargs, limit, stop)
    if (of_row := declaration.form.of_row) is not None:
        function = of_row(function, run, requests)
    return functools.partial(_call, function, args, kwargs, limit)


def arguments_of(
    declaration: Declaration, run: AttemptRun, requests: CancelRequests
) -> tuple[list[Any], dict[str, Any]]:
    """Return the arguments of an attempt, with its context if the function takes one. It raises as ``call_of``."""
    attempt = run.attempt
    if attempt.has_ended:
        raise AlreadyRun
    args, kwargs = payload.decode_arguments(attempt.args, attempt.kwargs)
    if declaration.takes_context:
        args.insert(0, _context(run, requests))
    return args, kwargs


class Stop(NamedTuple):
    """Stop requests for one attempt."""

    attempt: Attempt
    requests: CancelRequests

    def calls(self, call: Callable[[], None]) -> AbstractContextManager[None]:
        """Arrange that ``call`` is called at a request inside the ``with`` block, usually from another thread."""
        return self.requests.watched(self.attempt.task_id, self.attempt.number, call)

    @property
    def is_asked(self) -> bool:
        """True if the attempt was asked to stop."""
        return self.requests.include(self.attempt.task_id, self.attempt.number)

    def error(self) -> TaskCancelled:
        """Return the exception with its text for the task's errors."""
        return TaskCancelled(f"attempt {self.attempt.number} was asked to stop")


def _finished_by(attempt: Attempt, call: Callable[[], Any]) -> Ended:
    return finished(attempt, AROUND.whole.call_in_this_process(call))


def finished(attempt: Attempt, value: Any) -> Ended:
    """Return the outcome of an attempt that returned this value.

    Raises:
        InvalidArguments: the value cannot be stored as JSON.
    """
    return Ended(attempt=attempt, arrow=Arrow.FINISH, result=_encode(value))


def _call(function: Function, args: list[Any], kwargs: dict[str, Any], limit: TimeLimit) -> Any:
    if limit.seconds is None:
        return function(*args, **kwargs)
    with limit:
        return function(*args, **kwargs)


def _call_interruptible(
    function: Function, args: list[Any], kwargs: dict[str, Any], limit: TimeLimit, stop: Stop
) -> Any:
    interruption = Interruption(TaskCancelled)
    try:
        with interruption, stop.calls(interruption.interrupt):
            return _call(function, args, kwargs, limit)
    except TaskCancelled as error:
        if stop.is_asked:  # it was raised from outside, so it has no text
            raise stop.error().with_traceback(error.__traceback__) from None
        raise


def _call_async(
    function: Function, args: list[Any], kwargs: dict[str, Any], limit: TimeLimit, stop: Stop
) -> Any:
    if limit.seconds is not None:
        limit.interrupts = False
    with limit:
        return async_to_sync(_limited)(function(*args, **kwargs), limit, stop)


async def _limited(coroutine: Coroutine[Any, Any, Any], limit: TimeLimit, stop: Stop) -> Any:
    """Await a coroutine. Cancel it when its time is over, or when it is asked to stop.

    An exception raised in the thread would wait for the event loop.
    """
    loop, close_generators = asyncio.get_running_loop(), AROUND.whole.watch_generators()
    task = asyncio.create_task(AROUND.whole.await_in_this_process(coroutine))
    try:
        return await _awaited(loop, task, limit, stop)
    finally:
        await close_generators()


async def _awaited(
    loop: asyncio.AbstractEventLoop, task: asyncio.Task[Any], limit: TimeLimit, stop: Stop
) -> Any:
    with stop.calls(lambda: _cancel_in(loop, task)), showing(task):
        done, _ = await asyncio.wait({task}, timeout=limit.left)
        if not done:
            task.cancel()
        try:
            return await task  # the task may have finished in spite of the cancel
        except asyncio.CancelledError:
            if stop.is_asked:
                raise stop.error() from None
            if not done:
                raise limit.error() from None
            raise


def _cancel_in(loop: asyncio.AbstractEventLoop, task: asyncio.Future[Any]) -> None:
    # The loop was closed a moment ago, so the task has ended.
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(task.cancel)


def _encode(result: Any) -> str | None:
    try:
        return None if result is None else payload.encode(result, name="result")
    except InvalidArguments as error:
        _note(error, "The task function had run to its end; what it returned cannot be kept.")
        raise


def make_call(call: DatabaseCall) -> None:
    """Make a call of a part that uses the database, after the task function. The part logs its error."""
    try:
        # Otherwise the call would be undone with a transaction that the function has left open.
        AROUND.whole.after_attempt(failed=False)
        call()
    except BaseException:  # also errors of a backend that gets no session
        AROUND.whole.after_attempt(failed=True)


def _note(error: BaseException, text: str) -> None:
    """Add a line to the traceback of an error that may have no line of the task. Works from Python 3.11 on."""
    if hasattr(error, "add_note"):
        error.add_note(text)


def _context(run: AttemptRun, requests: CancelRequests) -> CoreContext:
    attempt = run.attempt
    return CONTEXT.whole(
        task_id=attempt.task_id,
        attempt=attempt.number,
        task_name=attempt.task_name,
        queue_name=attempt.queue_name,
        failures=attempt.failures,
        max_attempts=attempt.max_attempts,
        snoozes=attempt.snoozes,
        _claim=attempt,
        _alias=run.alias,
        _requests=requests,
        _offered=run.offered,
    )
