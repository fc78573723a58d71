"""@task: turns a function of a module into one that can be enqueued."""

from __future__ import annotations

import functools
import inspect
import uuid
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, fields, replace
from datetime import datetime, timedelta
from importlib import import_module
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Generic,
    Literal,
    NoReturn,
    ParamSpec,
    TypeVar,
    overload,
)

from asgiref.sync import sync_to_async

from django_txtasks import enqueueing
from django_txtasks.cancel_requests import NOBODY, CancelRequests
from django_txtasks.declarations import foreign, registry
from django_txtasks.declarations.declaring import (
    OF_USING,
    WithResult,
    declaration_of,
    refuse_unknown,
)
from django_txtasks.declarations.registry import Declaration, Options, TextOfCall
from django_txtasks.enqueueing import batches, handles
from django_txtasks.enqueueing.batches import BatchHandle
from django_txtasks.enqueueing.per_call import BoundFunction
from django_txtasks.exceptions import ClaimLost, InvalidDeclaration, TaskCancelled
from django_txtasks.lifecycle import attempts
from django_txtasks.lifecycle.attempts import Attempt
from django_txtasks.progress import ProgressNotes, checked

if TYPE_CHECKING:
    from django_txtasks.steps.context import Steps

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True)
class TaskContext:
    """The first argument of a task function that was declared with ``takes_context=True``.

    Attributes:
        task_id: the row's id.
        attempt: number of this attempt; the first is 1, and it never goes down.
        failures: how many attempts have raised before this one.
        max_attempts: number of attempts that may raise; then the task is dead.
        snoozes: how often it has put itself off before.

    One that was pickled for another process asks the database by ``check`` as ever. It hears of no cancel at
    ``cancelled``, which is False there, and ``progress`` has no effect.
    """

    task_id: uuid.UUID
    attempt: int
    task_name: str
    queue_name: str
    failures: int
    max_attempts: int
    snoozes: int
    _claim: Attempt = field(repr=False, compare=False)
    _alias: str = field(repr=False, compare=False)
    _requests: CancelRequests = field(repr=False, compare=False)
    _notes: ProgressNotes = field(default_factory=ProgressNotes, repr=False, compare=False)

    def __reduce__(self) -> tuple[Any, ...]:
        """Return all but what a worker's loop shares with its slots: another process does not share it."""
        facts = [getattr(self, one.name) for one in fields(self)[:-2]]
        return _context_elsewhere, (type(self), facts)

    def __copy__(self) -> TaskContext:
        return self  # it is frozen

    def __deepcopy__(self, memo: dict[int, Any]) -> TaskContext:
        return self

    @property
    def scheduled_for(self) -> datetime | None:
        """The instant of its tick, in UTC, if a schedule has enqueued it, at every attempt; else None."""
        from django_txtasks.rules.schedules import tick_of_id

        return tick_of_id(self.task_id)

    @property
    def attempt_id(self) -> str:
        """Names this attempt, and no other one of any task, to the other side."""
        return f"{self.task_id}-{self.attempt}"

    @property
    def cancelled(self) -> bool:
        """Whether this attempt was asked to stop, as far as its worker has heard, which looks once a second.

        It costs nothing. ``check`` asks the database.
        """
        return self._requests.include(self._claim.task_id, self._claim.number)

    def progress(self, done: float, total: float | None = None, note: str = "") -> None:
        """Say how far this attempt has come: on the handle and in the admin, up to a second later.

        It costs nothing here: the worker writes it into its own row. The last word counts.

        Args:
            done: of ``total``, in any unit.
            total: None = nobody knows.
            note: what it does now; 200 characters are kept.

        Raises:
            InvalidArguments: these are no numbers, or the note is no text.
        """
        self._notes.note(self.task_id, checked(done, total, note))

    def check(self) -> None:
        """Ask the database whether this attempt may go on: before a step that cannot be undone.

        Raises:
            ClaimLost: the worker was declared lost, and the task may be running elsewhere. Let it pass.
            TaskCancelled: somebody has cancelled the task. Let it pass, too.
        """
        standing = attempts.standing_of(self._alias, self._claim)
        if standing is attempts.Standing.LOST:
            raise ClaimLost(
                f"attempt {self.attempt} no longer holds task {self.task_id}: its worker was declared lost"
            )
        if standing is attempts.Standing.ASKED_TO_STOP:
            raise TaskCancelled(f"attempt {self.attempt} of task {self.task_id} was asked to stop")

    def batch(self) -> AbstractContextManager[BatchHandle]:
        """Add members to the batch that this task is in: what is enqueued in ``with ctx.batch():``.

        It is a transaction, or part of the open one, and keeps this task's row locked until that ends: the batch
        cannot end before. An async task does it in a function that it calls by ``sync_to_async``.

        Raises:
            ClaimLost: as ``check``. Let it pass.
            NotInBatch: this task is in none.
            BatchEnded: this task was revived after its batch had ended.
            InvalidOption: another batch is open.
        """
        return batches.of_member(self._alias, self._claim)

    async def acheck(self) -> None:
        """Like ``check``, from an async task."""
        await sync_to_async(self.check)()

    def step(self, name: str, function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function in a transaction that also keeps what it returns, unless an attempt has done so.

        What it does in the task's database happens once, whatever dies: effects and value are committed
        together. After a crash or a failure the next attempt gets the value, and goes on behind it.

        Args:
            name: text of at most 100 characters; each step of a task has its own.

        Returns:
            What the function returned, as read back from JSON, the first time, too: a tuple is a list.

        Raises:
            StepRefused: the task is ``atomic=True``, a transaction is open, or the name was used in this attempt.
            InvalidArguments: the value cannot be stored as JSON; what the step did is rolled back.
            ClaimLost: the worker was declared lost; what the step did is rolled back. Let it pass.
        """
        return self._steps.run(name, function, args, kwargs)  # type: ignore[no-any-return]

    async def astep(
        self, name: str, function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs
    ) -> R:
        """Like ``step``, from an async task; the function is a sync one."""
        return await sync_to_async(self.step)(name, function, *args, **kwargs)

    def key(self, name: str) -> str:
        """Return a key for what this task asks another system for: the same in each attempt, and no other task's.

        Args:
            name: as of a step; each request of a task has its own.

        Returns:
            A UUID as text, of 36 characters.

        Raises:
            StepRefused: that is no name.
        """
        from django_txtasks.steps.context import key_of

        return key_of(self.task_id, name)

    def sleep_until(self, name: str, when: datetime | timedelta | float) -> None:
        """Go on after that time: until then the task has no slot, and the next attempt goes on behind this.

        It counts as no failure, crash or snooze. The task's ``expires`` is over with it.

        Args:
            name: as of a step; each step and wait of a task has its own.
            when: an aware datetime, a timedelta or seconds. What the first attempt has said counts.

        Raises:
            Suspended: it is not that late. Let it pass.
            StepRefused: as of ``step``.
            InvalidOption: that is no such time.
            ClaimLost: the worker was declared lost. Let it pass.
        """
        self._steps.sleep_until(name, when)

    async def asleep_until(self, name: str, when: datetime | timedelta | float) -> None:
        """Like ``sleep_until``, from an async task."""
        await sync_to_async(self.sleep_until)(name, when)

    def wait_for(self, name: str, *, timeout: timedelta | float | None = None) -> Any:
        """Return the value that somebody brings by ``resume(token, value)``; until then the task has no slot.

        It counts as no failure, crash or snooze. The task's ``expires`` is over with it. The value may be there
        before.

        Args:
            name: of ``ctx.token(name)``, as of a step; each step and wait of a task has its own.
            timeout: a timedelta or seconds from the first attempt on that asks; None = for ever.

        Returns:
            The value, as read back from JSON: the same in each attempt.

        Raises:
            WaitTimedOut: none has come in time; the same in each attempt.
            Suspended: none has come so far. Let it pass.
            StepRefused: as of ``step``.
            InvalidOption: that is no timeout.
            ClaimLost: the worker was declared lost. Let it pass.
        """
        return self._steps.wait_for(name, timeout)

    async def await_for(self, name: str, *, timeout: timedelta | float | None = None) -> Any:
        """Like ``wait_for``, from an async task."""
        return await sync_to_async(self.wait_for)(name, timeout=timeout)

    def token(self, name: str) -> str:
        """Return what whoever is to bring the value for ``wait_for(name)`` has to show: the same in each attempt.

        It costs nothing. Nobody can guess it: it is signed with the ``SECRET_KEY``. Who has it may bring a value.

        Raises:
            StepRefused: that is no name.
        """
        from django_txtasks.steps.resuming import token_of

        return token_of(self._alias, self.task_id, name)

    @functools.cached_property
    def _steps(self) -> Steps:
        from django_txtasks.steps.context import Steps  # by tasks with steps alone

        return Steps(self._alias, self._claim)


def _context_elsewhere(kind: Callable[..., TaskContext], facts: list[Any]) -> TaskContext:
    return kind(*facts, NOBODY)


class TaskFunction(Generic[P, R]):
    """A function declared with ``@task``. Calling it runs it here and now, like any function."""

    def __init__(
        self, function: Callable[P, R], declaration: Declaration, options: Options | None = None
    ) -> None:
        self.function, self.declaration, self.options = function, declaration, options or Options()
        self._bound: BoundFunction | None = None  # of the first call; kept by ``calls.bind``
        functools.update_wrapper(self, function)

    def __repr__(self) -> str:
        return f"<task function {self.declaration.name}>"

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the name and the options, as Python pickles functions: the other process imports the module."""
        return _found_again, (self.declaration.name, self.options)

    if not TYPE_CHECKING:  # to type checkers, it would have any attribute

        def __getattr__(self, name: str) -> Any:
            raise foreign.no_attribute(self, name)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.function(*args, **kwargs)

    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> handles.TaskHandle:
        """Write a task in the current transaction; see ``enqueue_task``."""
        return enqueueing.enqueue_task(self, *args, **kwargs)

    async def aenqueue(self, *args: P.args, **kwargs: P.kwargs) -> handles.TaskHandle:
        """Like ``enqueue``, from async code."""
        return await enqueueing.aenqueue_task(self, *args, **kwargs)

    def with_result(self) -> WithResult:
        """Return this function as an ``on_success`` that gets the result of the task before it.

        The result is its only argument, as JSON gives it back: a tuple comes as a list. It is enqueued in the
        transaction that finishes the task before it, whether or not finished tasks are kept.
        """
        return WithResult(self)

    def using(
        self,
        *,
        queue_name: str | None = None,
        priority: int | None = None,
        run_after: datetime | timedelta | float | None = None,
        expires: datetime | timedelta | float | None = None,
        using: str | None = None,
        max_attempts: int | None = None,
        max_crashes: int | None = None,
        timeout: timedelta | float | None = None,
        on_success: TaskFunction[..., Any] | WithResult | None = None,
        on_retry: TaskFunction[..., Any] | None = None,
        on_failure: TaskFunction[..., Any] | None = None,
        unique_key: TextOfCall | None = None,
        settle: timedelta | float | None = None,
        lane: TextOfCall | None = None,
        once: TextOfCall | None = None,
        once_for: timedelta | float | None = None,
        **unknown: NoReturn,
    ) -> TaskFunction[P, R]:
        """Return this function with other options for what is enqueued through it.

        Args:
            queue_name: one of ``TXTASKS["queues"]``.
            priority: -100 to 100, higher first.
            run_after: earliest start: an aware datetime, or from now on: a timedelta, or seconds.
            expires: no attempt starts after it, said in the same ways; the task is then cancelled.
            using: the database alias whose transaction the task belongs to.
            max_attempts, max_crashes, timeout, on_success, on_retry, on_failure: as of ``@task``, for what is
                enqueued through it alone.
            unique_key, settle, lane, once, once_for: the same.

        Raises:
            UnknownOption: not one of these. It names what was meant.
        """
        refuse_unknown(f"{self.declaration.name}.using()", unknown, OF_USING)
        given = {
            "queue_name": queue_name,
            "priority": priority,
            "run_after": run_after,
            "expires": expires,
            "using": using,
            "max_attempts": max_attempts,
            "max_crashes": max_crashes,
            "timeout": timeout,
            "on_success": on_success,
            "on_retry": on_retry,
            "on_failure": on_failure,
            "unique_key": unique_key,
            "settle": settle,
            "lane": lane,
            "once": once,
            "once_for": once_for,
        }
        changes = {name: value for name, value in given.items() if value is not None}
        return TaskFunction(self.function, self.declaration, replace(self.options, **changes))  # type: ignore[arg-type]


def _found_again(name: str, options: Options) -> TaskFunction[..., Any]:
    module, _, own_name = name.rpartition(".")
    found = getattr(import_module(module), own_name, None)
    if not isinstance(found, TaskFunction):  # its module calls it otherwise: other = task(function)
        declaration = registry.get(name)
        found = TaskFunction(declaration.function, declaration)
    if found.options == options:
        return found
    return TaskFunction(found.function, found.declaration, options)


@overload
def task(function: Callable[P, R], /) -> TaskFunction[P, R]: ...
@overload
def task(
    *,
    queue_name: str = ...,
    priority: int = ...,
    max_attempts: int = ...,
    max_crashes: int = ...,
    atomic: bool = ...,
    idempotent: bool = ...,
    takes_context: Literal[False] = ...,
    timeout: timedelta | float | None = ...,
    expires: timedelta | float | None = ...,
    backoff: Callable[[int, BaseException], timedelta | float] | None = ...,
    max_snoozes: int = ...,
    interruptible: bool = ...,
    unique_key: TextOfCall | None = ...,
    keep: Literal["newest", "oldest"] = ...,
    settle: timedelta | float | None = ...,
    lane: TextOfCall | None = ...,
    once: TextOfCall | None = ...,
    once_for: timedelta | float | None = ...,
    compensate: TaskFunction[..., Any] | None = ...,
    on_success: TaskFunction[..., Any] | WithResult | None = ...,
    on_retry: TaskFunction[..., Any] | None = ...,
    on_failure: TaskFunction[..., Any] | None = ...,
) -> Callable[[Callable[P, R]], TaskFunction[P, R]]: ...
@overload
def task(
    *,
    queue_name: str = ...,
    priority: int = ...,
    max_attempts: int = ...,
    max_crashes: int = ...,
    atomic: bool = ...,
    idempotent: bool = ...,
    takes_context: Literal[True],
    timeout: timedelta | float | None = ...,
    expires: timedelta | float | None = ...,
    backoff: Callable[[int, BaseException], timedelta | float] | None = ...,
    max_snoozes: int = ...,
    interruptible: bool = ...,
    unique_key: TextOfCall | None = ...,
    keep: Literal["newest", "oldest"] = ...,
    settle: timedelta | float | None = ...,
    lane: TextOfCall | None = ...,
    once: TextOfCall | None = ...,
    once_for: timedelta | float | None = ...,
    compensate: TaskFunction[..., Any] | None = ...,
    on_success: TaskFunction[..., Any] | WithResult | None = ...,
    on_retry: TaskFunction[..., Any] | None = ...,
    on_failure: TaskFunction[..., Any] | None = ...,
) -> Callable[[Callable[Concatenate[TaskContext, P], R]], TaskFunction[P, R]]: ...
def task(
    function: Callable[..., Any] | None = None,
    /,
    *,
    queue_name: str = "default",
    priority: int = 0,
    max_attempts: int = 5,
    max_crashes: int = 3,
    atomic: bool = False,
    idempotent: bool = False,
    takes_context: bool = False,
    timeout: timedelta | float | None = None,
    expires: timedelta | float | None = None,
    backoff: Callable[[int, BaseException], timedelta | float] | None = None,
    max_snoozes: int = 1000,
    interruptible: bool = False,
    unique_key: TextOfCall | None = None,
    keep: Literal["newest", "oldest"] = "newest",
    settle: timedelta | float | None = None,
    lane: TextOfCall | None = None,
    once: TextOfCall | None = None,
    once_for: timedelta | float | None = None,
    compensate: TaskFunction[..., Any] | None = None,
    on_success: TaskFunction[..., Any] | WithResult | None = None,
    on_retry: TaskFunction[..., Any] | None = None,
    on_failure: TaskFunction[..., Any] | None = None,
    **unknown: Any,
) -> Any:
    """Declare a function of a module, sync or async, as a task function.

    Args:
        queue_name: one of ``TXTASKS["queues"]``.
        priority: -100 to 100, higher first.
        max_attempts: how many attempts may raise; the last one leaves the task dead.
        max_crashes: how many workers it may take down, if it may run again after a crash at all.
        atomic: run it in a transaction that also finishes it, so that its effects in that
            database happen exactly once. It runs again after a crash.
        idempotent: running it twice does no harm. It runs again after a crash.
        takes_context: pass a ``TaskContext`` as the first argument.
        timeout: how long an attempt may take, as timedelta or seconds: then ``TimedOut`` is raised
            in it, and if that does not end it within ``TXTASKS["grace"]``, its process is replaced.
            It counts as a failure.
        expires: a timedelta or seconds from enqueueing on: no attempt starts after it; the task is then cancelled.
        backoff: a function of the number of failures, from 1 on, and the error: how long to wait before the next
            attempt, as timedelta or seconds, instead of the usual, growing wait. ``Retry(after=…)`` comes first.
        max_snoozes: how often it may put itself off by ``Snooze``; once more counts as a failure.
        interruptible: when it is cancelled while it runs, ``TaskCancelled`` is raised in it, wherever it is.
            Otherwise it sees that at ``ctx.check()`` and ``ctx.cancelled``; async functions get
            ``CancelledError`` in any case.
        unique_key: text of at most 200 characters, or a function of the task's arguments that returns it, or
            None: of the tasks of one key in one queue that are due and have not begun, one runs, and the
            others are merged into it. One that runs already stands for none of them.
        keep: whose arguments that run has: the newest or the oldest.
        settle: a timedelta or seconds: tasks of a key that are enqueued within such a span run together at its
            end.
        lane: text of at most 200 characters, or a function of the task's arguments that returns it, or None: the
            tasks of a lane share the limits that ``TXTASKS["lanes"]`` has for it.
        once: text of at most 200 characters, or a function of the task's arguments that returns it, or None: one
            task is enqueued under it, and whoever enqueues again gets the handle of the first one.
        once_for: for how long, as timedelta or seconds; 7 days if nothing is said.
        compensate: a task function, enqueued with the same arguments when a crash leaves this one
            dead, in one transaction: at the first crash, or with ``idempotent`` after ``max_crashes``. Such a task
            cannot be revived.
        on_success, on_retry, on_failure: a task function, enqueued when an attempt has finished, will be
            repeated, or has left the task dead, in the transaction of that change. It gets one
            dict: event, task_id, task_name, queue_name, args, kwargs, attempt, failures, crashes,
            result, error. As ``on_success=other.with_result()`` it gets the result instead.

    Raises:
        InvalidDeclaration: not a function of a module, or options that contradict each other.
        UnknownOption: not one of these. It names what was meant.
    """
    refuse_unknown("@task", unknown)
    hooks = {
        "compensate": compensate,
        "on_success": on_success,
        "on_retry": on_retry,
        "on_failure": on_failure,
    }

    def declare(function: Callable[..., Any]) -> TaskFunction[..., Any]:
        declaration = declaration_of(
            function,
            name=_name(function),
            queue_name=queue_name,
            priority=priority,
            max_attempts=max_attempts,
            max_crashes=max_crashes,
            atomic=atomic,
            idempotent=idempotent,
            takes_context=takes_context,
            expires=expires,
            timeout=timeout,
            backoff=backoff,
            max_snoozes=max_snoozes,
            interruptible=interruptible,
            unique_key=unique_key,
            keep=keep,
            settle=settle,
            lane=lane,
            once=once,
            once_for=once_for,
            hooks=hooks,
        )
        registry.register(declaration)
        return TaskFunction(function, declaration)

    return declare if function is None else declare(function)


def _name(function: Callable[..., Any]) -> str:
    if not inspect.isfunction(function):
        raise InvalidDeclaration(
            f"@task was used on {function!r}, a {type(function).__name__}. Use it on a function of a "
            "module, as the outermost decorator."
        )
    if function.__qualname__ != function.__name__ or not function.__name__.isidentifier():
        raise InvalidDeclaration(
            f"@task was used on {function.__module__}.{function.__qualname__}. A worker finds a task "
            "function by module and name: move it to the top level of a module."
        )
    return f"{function.__module__}.{function.__name__}"
