"""The run of a task that was declared with Django's ``@task``: its context, its signals, its function."""

from __future__ import annotations

import inspect
import json
import time
import uuid
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar
from weakref import ReferenceType

from asgiref.sync import sync_to_async
from django.db import DatabaseError, InterfaceError, transaction
from django.dispatch import Signal
from django.utils import timezone

from django_txtasks.backends import compat
from django_txtasks.core.declaring import registry
from django_txtasks.core.declaring.arguments import misfit_of
from django_txtasks.core.ground import payload
from django_txtasks.core.ground.retry import is_last
from django_txtasks.exceptions import (
    ClaimLost,
    NotInBatch,
    Snooze,
    StepRefused,
    Suspended,
    TaskCancelled,
    TimedOut,
    class_path,
    meant,
)
from django_txtasks.signals import tracebacks

if TYPE_CHECKING:
    from django_txtasks.backends.tasks import Task
    from django_txtasks.context import TaskContext as OurContext
    from django_txtasks.features.batches.api import BatchHandle

_LOGS = ("django.tasks.signals", "django_tasks.signals")
MAX_ANNOUNCED = 10_000
"""Number of announced failures that are remembered. A worker forgets each after it has recorded the attempt."""
MAY_BE_LOST_AFTER_SECONDS = 1.0
"""Run time in seconds after which an attempt checks that it still holds its row before it announces its end."""

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True, kw_only=True)
class TaskContext(compat.TaskContext):  # type: ignore[misc]  # the stubs say it is not frozen
    """The context of a task that was declared with ``takes_context=True``: Django's context, with ours in it.

    Attributes:
        ours: None if the task runs at once, without a row.
    """

    ours: OurContext | None = None

    @property
    def attempt(self) -> int:
        """Number of this attempt, from 1 on. It never goes down."""
        return self.task_result.attempts if self.ours is None else self.ours.attempt

    @property
    def attempt_id(self) -> str:
        """Text that identifies this attempt among the attempts of all tasks."""
        return f"{self.task_result.id}-{self.attempt}"

    @property
    def failures(self) -> int:
        """Number of earlier attempts that raised."""
        return 0 if self.ours is None else self.ours.failures

    @property
    def snoozes(self) -> int:
        """Number of times that the task has postponed itself."""
        return 0 if self.ours is None else self.ours.snoozes

    @property
    def cancelled(self) -> bool:
        """True once this attempt is asked to stop; see ``django_txtasks.TaskContext``."""
        return self.ours is not None and self.ours.cancelled

    def check(self) -> None:
        """Raise ClaimLost or TaskCancelled if this attempt must stop; see ``django_txtasks.TaskContext``."""
        if self.ours is not None:
            self.ours.check()

    def batch(self) -> AbstractContextManager[BatchHandle]:
        """Add members to this task's batch; see ``django_txtasks.TaskContext``."""
        if self.ours is None:
            raise NotInBatch("A task that runs at once, without a row, is in no batch.")
        return self.ours.batch()

    async def acheck(self) -> None:
        """Like ``check``, from an async task."""
        if self.ours is not None:
            await self.ours.acheck()

    def step(self, name: str, function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call a function once for all attempts; see ``django_txtasks.TaskContext``."""
        from django_txtasks.features.steps.context import text_of_value

        if self.ours is not None:
            return self.ours.step(name, function, *args, **kwargs)
        with transaction.atomic():
            return json.loads(text_of_value(name, function(*args, **kwargs)))  # type: ignore[no-any-return]

    async def astep(
        self, name: str, function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs
    ) -> R:
        """Like ``step``, from an async task. The function is sync."""
        return await sync_to_async(self.step)(name, function, *args, **kwargs)

    def key(self, name: str) -> str:
        """Return an idempotency key for a request to another system; see ``django_txtasks.TaskContext``."""
        from django_txtasks.features.steps.context import key_of

        return key_of(self.task_result.id, name)

    def sleep_until(self, name: str, when: datetime | timedelta | float) -> None:
        """Suspend the task until a time; see ``django_txtasks.TaskContext``."""
        self._with_row("sleep_until").sleep_until(name, when)

    async def asleep_until(self, name: str, when: datetime | timedelta | float) -> None:
        """Like ``sleep_until``, from an async task."""
        await self._with_row("asleep_until").asleep_until(name, when)

    def wait_for(self, name: str, *, timeout: timedelta | float | None = None) -> Any:
        """Suspend the task until ``resume()`` delivers a value; see ``django_txtasks.TaskContext``."""
        return self._with_row("wait_for").wait_for(name, timeout=timeout)

    async def await_for(self, name: str, *, timeout: timedelta | float | None = None) -> Any:
        """Like ``wait_for``, from an async task."""
        return await self._with_row("await_for").await_for(name, timeout=timeout)

    def token(self, name: str) -> str:
        """Return the token with which ``resume()`` delivers a value; see ``django_txtasks.TaskContext``."""
        return self._with_row("token").token(name)

    def _with_row(self, what: str) -> OurContext:
        if self.ours is None:
            raise StepRefused(
                f"{what}() was called in a task that runs at once: it has no row that could wait. Enqueue it "
                "through a backend with workers."
            )
        return self.ours


class RunningResult(compat.TaskResult):
    """The result of a running attempt. Times that only its row has are read at the first access."""

    _ROW_KNOWS = ("enqueued_at", "started_at", "last_attempted_at")

    def __init__(self, **facts: Any) -> None:
        self.learn(_return_value=None, finished_at=None, **facts)

    def learn(self, **facts: Any) -> None:
        """Set attributes, although the object is frozen for Django's code."""
        for name, value in facts.items():
            object.__setattr__(self, name, value)

    def __getattr__(self, name: str) -> Any:
        if name not in self._ROW_KNOWS:
            raise AttributeError(name)
        try:
            row = self.task.get_backend().get_result(self.id)
        except compat.TaskResultDoesNotExist:  # finished, and not kept
            row = None
        self.learn(**{one: getattr(row, one, None) for one in self._ROW_KNOWS})
        return object.__getattribute__(self, name)


@dataclass(frozen=True)
class EntryPoint:
    """The function of such a task in the registry. Its first argument is our context."""

    task: Task

    @property
    def function(self) -> Callable[..., Any]:
        """The declared function."""
        function: Callable[..., Any] = self.task.func
        return function

    @property
    def __signature__(self) -> inspect.Signature:
        """The function's signature after our context, from which the admin hides arguments by name."""
        own = list(inspect.signature(self.function).parameters.values())
        ours = inspect.Parameter("_ours", inspect.Parameter.POSITIONAL_ONLY)
        return inspect.Signature([ours, *own[int(self.task.takes_context) :]])

    def __call__(self, context: OurContext, *args: Any, **kwargs: Any) -> Any:
        run = _arun if self.task.declaration.is_async else _run
        return run(_Attempt(self.task, context, list(args), kwargs))


class _Attempt:
    def __init__(
        self, task: Task, context: OurContext, args: list[Any], kwargs: dict[str, Any]
    ) -> None:
        self.task, self.context, self.alias = task, context, context._alias
        claim = context._claim
        backend = _backend_of(task, self.alias, claim.queue_name)
        own = task.as_enqueued(queue_name=claim.queue_name, backend=backend.alias)
        self.sender = type(backend)
        errors = list(claim.errors)
        self.result = RunningResult(
            task=own,
            id=str(context.task_id),
            status=compat.TaskResultStatus.RUNNING,
            args=args,
            kwargs=kwargs,
            backend=backend.alias,
            errors=[task_error(entry) for entry in errors],
            worker_ids=[*workers_of(errors), str(claim.worker)],
        )
        first = [TaskContext(task_result=self.result, ours=context)] if task.takes_context else []
        self.call: Callable[[], Any] = lambda: task.func(*first, *args, **kwargs)
        self.began = time.monotonic()

    @property
    def facts(self) -> dict[str, Any]:
        return {"sender": self.sender, "task_result": self.result}

    @property
    def may_announce(self) -> bool:
        """True if the end of this attempt is the end of its task.

        If its worker was declared lost, a cleaner has announced the end, or the task runs again. A short attempt
        does not check this, because its worker cannot have been declared lost yet.
        """
        if time.monotonic() - self.began < MAY_BE_LOST_AFTER_SECONDS:
            return True
        try:
            self.context.check()
        except ClaimLost:
            return False
        except (TaskCancelled, DatabaseError, InterfaceError):
            return True
        return True

    def succeed(self, value: Any) -> None:
        self.result.learn(
            _return_value=value,
            finished_at=timezone.now(),
            status=compat.TaskResultStatus.SUCCESSFUL,
        )

    def fail(self, error: BaseException) -> bool:
        """Record the error; return True if this was the last attempt, so that its end is to be announced."""
        error = meant(error)
        if isinstance(error, (Suspended, Snooze)) or not is_last(
            error, failures=self.context.failures, max_attempts=self.context.max_attempts
        ):
            return False
        declaration = registry.get(self.context.task_name)
        if misfit_of(error, declaration, self.result.args, self.result.kwargs):
            return False  # the task waits for code that takes its arguments
        if not self.may_announce:
            return False
        text = tracebacks.text_of(error)
        entry = compat.TaskError(exception_class_path=class_path(type(error)), traceback=text)
        self.result.learn(
            errors=[*self.result.errors, entry],
            finished_at=timezone.now(),
            status=compat.TaskResultStatus.FAILED,
        )
        _note_announced(self.context.task_id, self.context.attempt)
        return True


_announced: dict[tuple[uuid.UUID, int], None] = {}


def _note_announced(task_id: uuid.UUID, attempt: int) -> None:
    if len(_announced) >= MAX_ANNOUNCED:  # no code forgets attempts that lost their claims
        _announced.clear()
    _announced[task_id, attempt] = None


def was_announced(task_id: uuid.UUID, attempt: int) -> bool:
    """Return whether this attempt has sent ``task_finished`` with FAILED in this process; then forget it."""
    return _announced.pop((task_id, attempt), False) is None


def _backend_of(task: Task, database: str, queue: str) -> Any:
    """Return the backend that enqueued a row, judged by database and queue, because the row does not name it."""
    declared = task.get_backend()
    if getattr(declared, "database", None) == database and queue in declared.queues:
        return declared
    ours = [one for one in compat.task_backends.all() if getattr(one, "database", None) == database]
    return next((one for one in ours if queue in one.queues), declared)


def _send(signal: Signal, attempt: _Attempt) -> None:
    """Send a signal. Errors of receivers do not fail the task, but a TimedOut in a receiver is raised."""
    for _, answer in signal.send_robust(**attempt.facts):
        if isinstance(answer, TimedOut):
            raise answer


def _stored(value: Any) -> Any:
    """Return a result in the form in which the row stores it.

    Raises:
        TypeError, InvalidArguments: the row cannot store it.
    """
    value = compat.normalize_json(value)
    payload.encode(value, name="result")
    return value


def _run(attempt: _Attempt) -> Any:
    _send(compat.task_started, attempt)
    try:
        value = _stored(attempt.call())
    except BaseException as error:
        if attempt.fail(error):
            compat.task_finished.send_robust(**attempt.facts)
        raise
    attempt.succeed(value)
    if attempt.task.atomic:  # the task finishes with that commit
        transaction.on_commit(
            lambda: compat.task_finished.send_robust(**attempt.facts), using=attempt.alias
        )
    elif attempt.may_announce:
        _send(compat.task_finished, attempt)
    return value


async def _arun(attempt: _Attempt) -> Any:
    if attempt.result.task.takes_context:  # async code cannot read the row at the first access
        await sync_to_async(getattr)(attempt.result, "enqueued_at")
    await _asend(compat.task_started, attempt)
    try:
        value = _stored(await attempt.call())
    except BaseException as error:
        if await sync_to_async(attempt.fail)(error):
            await _asend(compat.task_finished, attempt)
        raise
    attempt.succeed(value)
    if _only_logs(compat.task_finished) or await sync_to_async(lambda: attempt.may_announce)():
        await _asend(compat.task_finished, attempt)
    return value


async def _asend(signal: Signal, attempt: _Attempt) -> None:
    """Send a signal from a thread, where the exception is still current. Django's ``asend`` loses it."""
    if _only_logs(signal):  # to call a thread takes longer than the log line, and than many a task
        signal.send_robust(**attempt.facts)
    else:
        await sync_to_async(signal.send_robust)(**attempt.facts)


def _only_logs(signal: Signal) -> bool:
    """Return True if a signal has no receiver except Django's own, which writes a log line."""
    found = [receiver[1] for receiver in signal.receivers]
    functions = [one() if isinstance(one, ReferenceType) else one for one in found]
    return all(getattr(one, "__module__", "") in _LOGS for one in functions if one is not None)


def task_error(entry: dict[str, Any]) -> compat.TaskError:
    """Return an error of a row as Django's TaskError."""
    path = entry.get("class") or f"builtins.{entry.get('type', 'Exception')}"
    text = entry.get("traceback") or entry.get("message") or ""
    return compat.TaskError(exception_class_path=str(path), traceback=str(text))


def workers_of(errors: list[dict[str, Any]]) -> list[str]:
    """Return the workers of the ended attempts in a row's errors."""
    return [str(entry["worker"]) for entry in errors if entry.get("worker")]
