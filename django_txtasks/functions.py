"""@task: turns a function of a module into one that can be enqueued."""

from __future__ import annotations

import functools
import inspect
import uuid
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Generic, ParamSpec, TypeVar, overload

from django_txtasks import enqueueing, registry
from django_txtasks.exceptions import InvalidDeclaration
from django_txtasks.registry import Declaration, Options

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True)
class TaskContext:
    """What a task function declared with ``takes_context=True`` gets as its first argument.

    Attributes:
        task_id: the row's id.
        attempt: number of this attempt; the first is 1, and it never goes down.
        failures: how many attempts have raised before this one.
        max_attempts: the task is dead when so many have raised.
    """

    task_id: uuid.UUID
    attempt: int
    task_name: str
    queue_name: str
    failures: int
    max_attempts: int


class TaskFunction(Generic[P, R]):
    """A function declared with ``@task``. Calling it runs it here and now, like any function."""

    def __init__(
        self, function: Callable[P, R], declaration: Declaration, options: Options | None = None
    ) -> None:
        self.function, self.declaration, self.options = function, declaration, options or Options()
        functools.update_wrapper(self, function)

    def __repr__(self) -> str:
        return f"<task function {self.declaration.name}>"

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.function(*args, **kwargs)

    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> enqueueing.TaskHandle:
        """Write a task in the current transaction; see ``enqueue_task``."""
        return enqueueing.enqueue_task(self, *args, **kwargs)

    async def aenqueue(self, *args: P.args, **kwargs: P.kwargs) -> enqueueing.TaskHandle:
        """Like ``enqueue``, from async code."""
        return await enqueueing.aenqueue_task(self, *args, **kwargs)

    def using(
        self,
        *,
        queue_name: str | None = None,
        priority: int | None = None,
        run_after: datetime | timedelta | None = None,
        using: str | None = None,
    ) -> TaskFunction[P, R]:
        """Return this function with other options for what is enqueued through it.

        Args:
            queue_name: one of ``TXTASKS["queues"]``.
            priority: -100 to 100, higher first.
            run_after: earliest start: an aware datetime, or a timedelta from now on.
            using: the database alias whose transaction the task belongs to.
        """
        given = {
            "queue_name": queue_name,
            "priority": priority,
            "run_after": run_after,
            "using": using,
        }
        changes = {name: value for name, value in given.items() if value is not None}
        return TaskFunction(self.function, self.declaration, replace(self.options, **changes))  # type: ignore[arg-type]


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
    takes_context: bool = ...,
) -> Callable[[Callable[..., R]], TaskFunction[..., R]]: ...
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

    Raises:
        InvalidDeclaration: not a function of a module, or options that contradict each other.
    """
    if function is None:
        return functools.partial(
            task,
            queue_name=queue_name,
            priority=priority,
            max_attempts=max_attempts,
            max_crashes=max_crashes,
            atomic=atomic,
            idempotent=idempotent,
            takes_context=takes_context,
        )
    declaration = Declaration(
        function=function,
        name=_name(function),
        queue_name=queue_name,
        priority=priority,
        max_attempts=max_attempts,
        max_crashes=max_crashes,
        atomic=atomic,
        idempotent=idempotent,
        takes_context=takes_context,
        is_async=inspect.iscoroutinefunction(function),
    )
    _refuse_contradictions(declaration)
    registry.register(declaration)
    return TaskFunction(function, declaration)


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
    name = f"{function.__module__}.{function.__name__}"
    if len(name) > 200:
        raise InvalidDeclaration(
            f"The task name {name!r} has more than 200 characters. Shorten it."
        )
    return name


def _refuse_contradictions(declaration: Declaration) -> None:
    name = declaration.name
    if declaration.atomic and declaration.is_async:
        raise InvalidDeclaration(
            f"{name} is async and atomic=True: Django has no transactions in async code. Make the "
            "function sync, or drop atomic=True and declare it idempotent if it may run again."
        )
    for option in ("max_attempts", "max_crashes"):
        value = getattr(declaration, option)
        if not isinstance(value, int) or not 1 <= value <= 32767:
            raise InvalidDeclaration(f"{name} has {option}={value!r}; it must be from 1 to 32767.")
    enqueueing.check_priority(declaration.priority, name)
    if declaration.takes_context and not inspect.signature(declaration.function).parameters:
        raise InvalidDeclaration(f"{name} has takes_context=True but no parameter to take it.")
