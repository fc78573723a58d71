"""``@task``, and the task function that it returns."""

from __future__ import annotations

import functools
import inspect
import uuid
from collections.abc import Callable
from importlib import import_module
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Generic,
    Literal,
    ParamSpec,
    TypeVar,
    cast,
    overload,
)

from django_txtasks import handles
from django_txtasks.context import TaskContext
from django_txtasks.core.declaring import foreign, registry
from django_txtasks.core.declaring.declaring import declaration_of
from django_txtasks.core.declaring.hooks import WithResult
from django_txtasks.core.declaring.registry import Declaration
from django_txtasks.core.enqueueing.calls import BoundFunction
from django_txtasks.core.rows.attempts import Attempt
from django_txtasks.exceptions import InvalidDeclaration
from django_txtasks.features.many.items import Item, call_of_one
from django_txtasks.options import (
    OF_TASK,
    OF_USING,
    TaskOptions,
    UsingOptions,
    describe,
    refuse_unknown,
)

if TYPE_CHECKING:
    from typing_extensions import Unpack

P = ParamSpec("P")
R = TypeVar("R")
V = TypeVar("V")


class TaskFunction(Generic[P, R]):
    """A function declared with ``@task``. A call runs it at once, like any function; ``enqueue`` writes a task."""

    is_external = False

    def __init__(
        self,
        function: Callable[P, R],
        declaration: Declaration,
        options: UsingOptions | None = None,
    ) -> None:
        self.function, self.declaration = function, declaration
        self.options: UsingOptions = options or {}
        self._bound: BoundFunction | None = None  # kept by ``calls.bind`` at the first call
        self.base: TaskFunction[P, R] | None = None
        self.own_options: UsingOptions = {}
        functools.update_wrapper(self, function)

    def __repr__(self) -> str:
        return f"<task function {self.declaration.name}>"

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle name and options, as Python pickles functions: the other process imports the module."""
        return _found_again, (self.declaration.name, self.options)

    if not TYPE_CHECKING:  # type checkers would accept any attribute

        def __getattr__(self, name: str) -> Any:
            raise foreign.no_attribute(self, name)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        if self.declaration.many is None:
            return self.function(*args, **kwargs)
        nobodys = Attempt(uuid.uuid4(), 1, uuid.uuid4(), self.declaration.name)
        function: Any = self.function
        return call_of_one(function, nobodys)(*args, **kwargs)  # type: ignore[no-any-return]

    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> handles.TaskHandle:
        """Write a task in the current transaction; see ``enqueue_task``."""
        return handles.enqueue_task(self, *args, **kwargs)

    async def aenqueue(self, *args: P.args, **kwargs: P.kwargs) -> handles.TaskHandle:
        """Like ``enqueue``, from async code."""
        return await handles.aenqueue_task(self, *args, **kwargs)

    def with_result(self) -> WithResult:
        """Return this function as an ``on_success`` hook whose argument is the result of the task before it.

        The result is the only argument, as read back from JSON: a tuple becomes a list. The hook does not need
        ``TXTASKS["keep_finished"]``.
        """
        return WithResult(self)

    def using(self, **options: Unpack[UsingOptions]) -> TaskFunction[P, R]:
        """Return this function with other options for the tasks that are enqueued through it.

        An option that is left out, or None, stays as declared.

        Args:
            **options: see ``UsingOptions``.

        Raises:
            UnknownOption: an option that ``using()`` does not have; the error names the likely one.
        """
        refuse_unknown(f"{self.declaration.name}.using()", options, OF_USING)
        said = {name: value for name, value in options.items() if value is not None}
        changed = cast("UsingOptions", {**self.options, **said})
        function = TaskFunction(self.function, self.declaration, changed)
        if said.keys() == {
            "subject"
        }:  # so that the other options are checked once for many objects
            function.base, function.own_options = self, cast("UsingOptions", said)
        return function


describe(TaskFunction.using, UsingOptions)


def _found_again(name: str, options: UsingOptions) -> TaskFunction[..., Any]:
    if known := registry.find(name):
        name = known.name  # it may have been renamed since
    module, _, own_name = name.rpartition(".")
    found = getattr(import_module(module), own_name, None)
    if not isinstance(found, TaskFunction):  # another name in its module: other = task(function)
        declaration = registry.get(name)
        found = TaskFunction(declaration.function, declaration)
    if found.options == options:
        return found
    return TaskFunction(found.function, found.declaration, options)


@overload
def task(function: Callable[P, R], /) -> TaskFunction[P, R]: ...
@overload
def task(
    *, takes_context: Literal[False] = ..., **options: Unpack[TaskOptions]
) -> Callable[[Callable[P, R]], TaskFunction[P, R]]: ...
@overload
def task(
    *, takes_context: Literal[True], **options: Unpack[TaskOptions]
) -> Callable[[Callable[Concatenate[TaskContext, P], R]], TaskFunction[P, R]]: ...
@overload
def task(
    *, many: int, **options: Unpack[TaskOptions]
) -> Callable[[Callable[[list[Item[V]]], None]], TaskFunction[[V], Any]]: ...
def task(
    function: Callable[..., Any] | None = None,
    /,
    *,
    takes_context: bool = False,
    many: int | None = None,
    **options: Any,
) -> Any:
    """Declare a function of a module, sync or async, as a task function.

    Args:
        takes_context: Pass a ``TaskContext`` as the first argument.
        many: Call the function with a list of up to this number of tasks, each an ``Item`` with an outcome of its
            own. Each task has one argument, ``item.value``. It needs ``idempotent``.
        **options: see ``TaskOptions``.

    Raises:
        InvalidDeclaration: not a function of a module, or options that contradict each other.
        UnknownOption: an option that ``@task`` does not have; the error names the likely one.
    """
    refuse_unknown("@task", options, OF_TASK)

    def declare(function: Callable[..., Any]) -> TaskFunction[..., Any]:
        declaration = declaration_of(
            function,
            name=_name(function),
            options={**options, "takes_context": takes_context, "many": many},
        )
        registry.register(declaration)
        return TaskFunction(function, declaration)

    return declare if function is None else declare(function)


describe(task, TaskOptions)


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
