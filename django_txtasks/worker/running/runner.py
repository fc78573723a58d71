"""One attempt: look up the function, call it, and choose the arrow of its row."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import functools
from collections.abc import Callable, Coroutine
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, NamedTuple, TypeAlias

from asgiref.sync import async_to_sync
from django.db import DatabaseError, InterfaceError, transaction

from django_txtasks import signals, tracing
from django_txtasks.cancel_requests import NOBODY, CancelRequests
from django_txtasks.conf import Config
from django_txtasks.context import TaskContext
from django_txtasks.database.errors import str_of
from django_txtasks.database.prepared import NotKept
from django_txtasks.database.sessions import session_of_thread
from django_txtasks.declarations import registry
from django_txtasks.declarations.registry import Declaration
from django_txtasks.enqueueing.commit_hints import notify_on_commit
from django_txtasks.exceptions import (
    AlreadyRun,
    InvalidArguments,
    Retry,
    Snooze,
    Suspended,
    TaskCancelled,
    TimedOut,
    class_path,
    meant,
)
from django_txtasks.items import call_of_one
from django_txtasks.lifecycle import outcomes
from django_txtasks.lifecycle.attempts import Arrow, Attempt, Ended
from django_txtasks.lifecycle.open_batches import Opener, running
from django_txtasks.progress import ProgressNotes
from django_txtasks.rules import payload
from django_txtasks.rules.causes import cause_of
from django_txtasks.rules.retry import backoff, is_last, seconds_from
from django_txtasks.signals import attempt_starting, last_lines, tracebacks
from django_txtasks.signals.logs import current
from django_txtasks.wording import counted
from django_txtasks.worker.running import attempt_stack, generators, task_threads
from django_txtasks.worker.running.attempt_context import context_of_attempt
from django_txtasks.worker.running.connections import (
    NoSession,
    after_attempt,
    before_attempt,
    have_session,
    note_states,
)
from django_txtasks.worker.running.forked_task import (
    await_in_this_process,
    call_in_this_process,
    end_child,
    forks_of_process,
)
from django_txtasks.worker.running.limits import Interruption, TimeLimit
from django_txtasks.worker.running.misfits import release_of_misfit

Function: TypeAlias = Callable[..., Any]
NOT_COMMITTED = (
    "The task function had returned, and the transaction could not be committed, so all of it is undone. Look for "
    "what is checked only then, such as a foreign key, a swallowed error, or a connection that was lost or closed."
)


def _nothing(attempt: Attempt, error: BaseException) -> Callable[[], None] | None:
    return None


@dataclass(frozen=True)
class Runner:
    """Runs attempts in the calling thread.

    Attributes:
        note_session: called with the database session of the thread, so that a cleaner can end the session.
        requests: the attempts that were asked to stop.
        notes: the progress of tasks.
        raised: called with each error of an attempt. Returns a call that uses the database, or None.
    """

    alias: str
    config: Config
    note_session: Callable[[str], None]
    requests: CancelRequests = NOBODY
    notes: ProgressNotes = field(default_factory=ProgressNotes)
    raised: Callable[[Attempt, BaseException], Callable[[], None] | None] = _nothing

    def run(self, attempt: Attempt, limit: TimeLimit) -> Ended:
        """Run the task function. Never raises: each error is in the answer.

        Each attempt has a context of its own, so its language, time zone and context variables end with it.
        """
        context = context_of_attempt()
        forks = forks_of_process()
        ended = context.run(self._run_alone, attempt, limit)
        # If this is a child, such as a commit hook may have forked: otherwise it would continue as this thread.
        if forks_of_process() != forks:
            end_child()
        if ended.arrow is Arrow.FINISH and not signals.task_finished.has_observers:
            return ended
        return ended._replace(context=context)

    def _run_alone(self, attempt: Attempt, limit: TimeLimit) -> Ended:
        current.set(attempt.facts)
        last_lines.begin(attempt.task_id, attempt.number)
        running.set(Opener(self.alias, attempt.task_id, attempt.batch))
        traced = tracing.begin(attempt)
        if traced is not None:
            attempt = attempt._replace(headers=traced.headers)
        try:
            ended = self._outcome(attempt, limit)
        except BaseException as error:  # raised where the error of the task was read
            ended = buried(attempt, error)
            tracebacks.forget_locals(error)
        self._end(attempt, ended, traced)
        return ended

    def _end(self, attempt: Attempt, ended: Ended, traced: tracing.TracedRun | None) -> None:
        """End an attempt whose outcome is known: no error from here on changes it."""
        try:
            if traced is not None:
                end_trace(traced, ended)
            self.notes.forget(attempt.task_id)
            last_lines.end(attempt.task_id, attempt.number)
        except BaseException as error:
            tell_late_error(attempt, error)
        # Always clean up, because the next task must not find an open transaction.
        try:
            # A Retry or Snooze is no failure.
            is_asked = ended.arrow is not Arrow.FINISH and ended.exception is None
            after_attempt(failed=bool(ended.error) and not is_asked, errors=[ended.exception])
            task_threads.end_of(attempt.task_id, attempt.number)
            if ended.recorded and ended.error:
                self._keep_error(ended)
        except BaseException as error:
            tell_late_error(attempt, error)

    def _outcome(self, attempt: Attempt, limit: TimeLimit) -> Ended:
        """Run the task function, and choose the arrow."""
        try:
            before_attempt(self.note_session_of)
            if attempt_starting.receivers:
                attempt_starting.send(sender=None, **attempt.facts)
                note_states()
            return self._attempted(attempt, limit)
        except BaseException as error:
            if type(error) is TimedOut:  # it was raised from outside, so it has no text
                error = limit.error().with_traceback(error.__traceback__)
            said = meant(error)
            ended = failed(attempt, said, self.config)
            if (call := self.raised(attempt, said)) is not None:
                _make(call)
            tracebacks.forget_locals(error)
            return ended

    def _attempted(self, attempt: Attempt, limit: TimeLimit) -> Ended:
        declaration = registry.get(attempt.task_name)
        call = call_of(
            declaration, attempt, self.alias, limit, requests=self.requests, notes=self.notes
        )
        have_session(self.alias, wanted=declaration.atomic)
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
            signals.task_hook_failed.emit(exception=error, error=_shown(error), **attempt.facts)
            tracebacks.forget_locals(error)
            return ended._replace(error=entry)
        return ended

    def _keep_error(self, ended: Ended) -> None:
        """Keep the error of a commit hook in the finished row. The log has it in any case."""
        if self.config.keeps("succeeded"):
            try:
                outcomes.note_hook_error(self.alias, ended)
            except (DatabaseError, InterfaceError):
                after_attempt(failed=True)

    def note_session_of(self, alias: str) -> None:
        """Note the session that the calling thread has opened, if it is in the database of the tasks."""
        if alias == self.alias:
            self.note_session(session_of_thread(alias))


def call_of(
    declaration: Declaration,
    attempt: Attempt,
    alias: str,
    limit: TimeLimit,
    *,
    requests: CancelRequests = NOBODY,
    notes: ProgressNotes | None = None,
) -> Callable[[], Any]:
    """Return the call of an attempt, with its arguments.

    Raises:
        InvalidArguments: the arguments in the row cannot be read.
        AlreadyRun: the task has ended before.
    """
    args, kwargs = arguments_of(declaration, attempt, alias, requests, notes)
    function = declaration.function
    if declaration.is_async or declaration.interruptible:
        call = _call_async if declaration.is_async else _call_interruptible
        stop = Stop(attempt, requests)
        return functools.partial(call, function, args, kwargs, limit, stop)
    if declaration.many is not None:
        function = call_of_one(function, attempt, alias=alias, requests=requests)
    return functools.partial(_call, function, args, kwargs, limit)


def arguments_of(
    declaration: Declaration,
    attempt: Attempt,
    alias: str,
    requests: CancelRequests,
    notes: ProgressNotes | None,
) -> tuple[list[Any], dict[str, Any]]:
    """Return the arguments of an attempt, with its context if the function takes one. It raises as ``call_of``."""
    if attempt.has_ended:
        raise AlreadyRun
    args, kwargs = payload.decode_arguments(attempt.args, attempt.kwargs)
    if declaration.takes_context:
        args.insert(0, _context(attempt, alias, requests, notes))
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


def tell_late_error(attempt: Attempt, error: BaseException) -> None:
    """Log an error from the end of an attempt, which has its outcome already. Never raises."""
    with contextlib.suppress(BaseException):
        signals.attempt_end_failed.emit(exception=error, error=_shown(error), **attempt.facts)
    tracebacks.forget_locals(error)


def end_trace(traced: tracing.TracedRun, ended: Ended | None) -> None:
    """Tell the tracers how an attempt has ended; None = its worker ends first, or was declared lost."""
    if ended is None:
        traced.end("", {})
    else:
        traced.end(ended.arrow.value, {} if ended.arrow is Arrow.FINISH else ended.error)


def _finished_by(attempt: Attempt, call: Callable[[], Any]) -> Ended:
    return finished(attempt, call_in_this_process(call))


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
    loop, begun = asyncio.get_running_loop(), generators.Generators()
    generators.watch()
    begun.own_this_context()
    task = asyncio.create_task(await_in_this_process(coroutine))
    try:
        return await _awaited(loop, task, limit, stop)
    finally:
        await generators.close_in_own_loop(begun)


async def _awaited(
    loop: asyncio.AbstractEventLoop, task: asyncio.Task[Any], limit: TimeLimit, stop: Stop
) -> Any:
    key = stop.attempt.task_id, stop.attempt.number
    with stop.calls(lambda: _cancel_in(loop, task)), attempt_stack.shows(key, task):
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


def _make(call: Callable[[], None]) -> None:
    """Make a call that uses the database, after the task function. Its owner logs its error."""
    try:
        # Otherwise the call would be undone with a transaction that the function has left open.
        after_attempt(failed=False)
        call()
    except BaseException:  # also errors of a backend that gets no session
        after_attempt(failed=True)


def _note(error: BaseException, text: str) -> None:
    """Add a line to the traceback of an error that may have no line of the task. Works from Python 3.11 on."""
    if hasattr(error, "add_note"):
        error.add_note(text)


def _context(
    attempt: Attempt,
    alias: str,
    requests: CancelRequests = NOBODY,
    notes: ProgressNotes | None = None,
) -> TaskContext:
    return TaskContext(
        task_id=attempt.task_id,
        attempt=attempt.number,
        task_name=attempt.task_name,
        queue_name=attempt.queue_name,
        failures=attempt.failures,
        max_attempts=attempt.max_attempts,
        snoozes=attempt.snoozes,
        _claim=attempt,
        _alias=alias,
        _requests=requests,
        _notes=notes or ProgressNotes(),
    )


def failed(attempt: Attempt, error: BaseException, config: Config) -> Ended:
    """Choose the arrow of an attempt that raised: RETRY or BURY count as a failure, the others do not."""
    declaration = registry.find(attempt.task_name)
    if (ended := _not_begun_or_suspended(attempt, error, declaration)) is not None:
        return ended
    if isinstance(error, Snooze):
        most = declaration.max_snoozes if declaration is not None else 0
        if attempt.snoozes < most:
            return Ended(attempt=attempt, arrow=Arrow.SNOOZE, delay=error.after)
        error = _with_text(
            error, f"{error}, though it has done so {counted(attempt.snoozes, 'time')} before"
        )
    if isinstance(error, TaskCancelled):
        return Ended(attempt, Arrow.CANCEL, error=describe(error), exception=error)
    ended = buried(attempt, error)
    if _is_asked_retry(error):
        ended = ended._replace(exception=None)
    if is_last(error, failures=attempt.failures, max_attempts=attempt.max_attempts):
        return ended
    if isinstance(error, Retry) and error.after is not None:
        delay = max(error.after, timedelta(0))
    else:
        delay = _delay(attempt, error, declaration, config)
    return ended._replace(arrow=Arrow.RETRY, delay=delay)


def buried(attempt: Attempt, error: BaseException) -> Ended:
    """Return the outcome of an attempt that another attempt would not improve: the task is dead."""
    cause = cause_of(attempt.task_name, error, registry.own_packages())
    entry = {**describe(error), **last_lines.entry(attempt.task_id, attempt.number)}
    return Ended(attempt, Arrow.BURY, error=entry, exception=error, cause=cause)


def _not_begun_or_suspended(
    attempt: Attempt, error: BaseException, declaration: Declaration | None
) -> Ended | None:
    if isinstance(error, (NotKept, NoSession)):  # the task has done nothing, and is not at fault
        return Ended(attempt=attempt, arrow=Arrow.RELEASE, exception=error)
    if isinstance(error, Suspended):
        return Ended(attempt=attempt, arrow=Arrow.SUSPEND, awaited=error.name)
    return release_of_misfit(attempt, error, declaration)


def is_asked(error: BaseException) -> bool:
    """Return True if a task has raised this to continue later. Then its sessions are as after a success."""
    return isinstance(error, (Snooze, Suspended)) or _is_asked_retry(error)


def _is_asked_retry(error: BaseException) -> bool:
    return type(error) is Retry and error.__context__ is None  # otherwise an error has led to it


def _delay(
    attempt: Attempt, error: BaseException, declaration: Declaration | None, config: Config
) -> timedelta:
    """Return the time until the retry: from the function's own ``backoff``, if it works."""
    failures = attempt.failures + 1
    own = None if declaration is None else declaration.backoff
    if own is not None:
        try:
            return seconds_from(own(failures, error))
        except BaseException as problem:  # such as SystemExit: the task fails as usual
            signals.backoff_failed.emit(**attempt.facts, error=_shown(problem), exception=problem)
    return backoff(failures, base=config.retry_base, ceiling=config.retry_ceiling)


def _with_text(error: BaseException, text: str) -> BaseException:
    """Return a copy of an error with another text, because the attempts of a call may share the error."""
    other = copy.copy(error).with_traceback(error.__traceback__)
    other.args = (text,)
    other.__cause__, other.__context__ = error.__cause__, error.__context__
    other.__suppress_context__ = error.__suppress_context__
    return other


def describe(error: BaseException) -> dict[str, Any]:
    """Return an error in the form that the row keeps: no local variables, only text that every database takes."""
    return {
        "type": type(error).__name__,
        "class": class_path(type(error)),
        "message": payload.clean_text(str_of(error), 1000),
        "traceback": payload.clean_text(tracebacks.text_of(error)),
    }


def _shown(error: BaseException) -> str:
    """Return type and message of an error for a line of the log."""
    return f"{type(error).__name__}: {payload.clean_text(str_of(error), 1000)}"
