"""@task: turns a function of a module into one that can be enqueued."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import replace
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

from django_txtasks import enqueueing
from django_txtasks.context import TaskContext
from django_txtasks.declarations import foreign, registry
from django_txtasks.declarations.declaring import (
    OF_USING,
    WithResult,
    declaration_of,
    refuse_unknown,
)
from django_txtasks.declarations.registry import Declaration, Options, TextOfCall
from django_txtasks.enqueueing import handles
from django_txtasks.enqueueing.per_call import BoundFunction
from django_txtasks.exceptions import InvalidDeclaration

P = ParamSpec("P")
R = TypeVar("R")


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
