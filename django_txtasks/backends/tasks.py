"""The tasks of Django's ``@task``, with this package's options on top."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, make_dataclass, replace
from datetime import datetime, timedelta
from functools import cached_property
from importlib import import_module
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from django_txtasks.backends import compat
from django_txtasks.backends.running import EntryPoint, TaskContext
from django_txtasks.core.declaring import foreign, registry
from django_txtasks.core.declaring.declaring import declaration_of
from django_txtasks.core.declaring.hooks import HOOKS, WithResult
from django_txtasks.core.declaring.registry import Declaration
from django_txtasks.exceptions import TxTasksError, UnknownOption
from django_txtasks.options import OF_TASK, OF_USING, UsingOptions, refuse_unknown

_DJANGOS = ("queue_name", "priority", "takes_context")
"""Options that Django's own task has, too."""
_OF_DECLARATION = OF_TASK.keys() - OF_USING.keys() - {"idempotent", "compensate", "takes_context"}
"""Options that workers read from the declaration, and not from a row."""

if TYPE_CHECKING:
    _WithOptions = compat.Task
else:
    _WithOptions = make_dataclass(
        "_WithOptions",
        [
            (name, Any, field(default=option.default))
            for name, option in OF_TASK.items()
            if name not in _DJANGOS
        ],
        bases=(compat.Task,),
        frozen=True,
        kw_only=True,
    )


@dataclass(frozen=True, kw_only=True)
class Task(_WithOptions):
    """A function declared with Django's ``@task``, with the options of ``django_txtasks.task``.

    Attributes:
        run_after: an aware datetime, or a timedelta or seconds from the enqueue on.
        subject: the saved object that the tasks are about, or a list of objects; set it through ``using()``.
        expires: a timedelta or seconds from the enqueue on; through ``using()`` also an aware datetime.
    """

    run_after: datetime | timedelta | float | None = None  # type: ignore[assignment]  # not datetimes alone
    subject: Any = None

    is_external = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.declaration.many is not None:
            raise compat.InvalidTask(
                f"{self.module_path} has many=, which Django's @task does not have, because the function gets "
                "items and not arguments. Use @task of django_txtasks."
            )
        declaration = replace(self.declaration, function=EntryPoint(self), takes_context=True)
        object.__setattr__(self, "was", declaration.was)  # hashable
        if isinstance(self.subject, list):
            object.__setattr__(self, "subject", tuple(self.subject))
        entry = registry.find(self.module_path)
        if entry is None or getattr(entry.function, "function", None) is not self.func:
            with _as_invalid_task():
                registry.register(declaration)

    def using(self, **changes: Any) -> Task:
        """Return this task with other options for the tasks that are enqueued through it.

        An option that is left out, or None, stays as declared.

        Args:
            changes: ``backend``, ``run_after``, ``idempotent``, ``compensate``, and the options of
                ``django_txtasks.TaskFunction.using`` except ``using``.

        Raises:
            InvalidTask: an option that only a declaration can have, such as ``atomic``, because workers read it
                from their code and not from the row.
            UnknownOption: no such option.
        """
        for name in _OF_DECLARATION & changes.keys():
            declared = getattr(self, name)
            if changes[name] not in (declared, None):
                raise compat.InvalidTask(
                    f"{self.module_path}.using({name}={changes[name]!r}): workers know a task as it was declared. "
                    f"Say @task({name}=…); on Django 6.0 with task from django_txtasks.backends."
                )
        known = [one.name for one in fields(self) if one.name not in ("func", "takes_context")]
        for name in changes.keys() & {"using", "database"}:
            raise UnknownOption(
                f"{self.module_path}.using() has no option {name!r}. The database is that of the backend: "
                "using(backend=…), with TASKS[…]['OPTIONS']['database']."
            )
        refuse_unknown(
            f"{self.module_path}.using()", [one for one in changes if one not in known], known
        )
        return replace(
            self, **{name: value for name, value in changes.items() if value is not None}
        )

    def with_result(self) -> WithResult:
        """Return this task as an ``on_success`` hook that gets the result; see ``django_txtasks.TaskFunction``."""
        return WithResult(self)

    def as_enqueued(self, **changes: Any) -> Task:
        """Return this task with the values of a row, unchecked, because settings may have changed since."""
        task: Task = object.__new__(type(self))
        for one in fields(self):
            object.__setattr__(task, one.name, changes.get(one.name, getattr(self, one.name)))
        return task

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle name and options, as Python pickles functions: the other process imports the module."""
        options = {one.name: getattr(self, one.name) for one in fields(self) if one.name != "func"}
        return _found_again, (type(self), self.module_path, options)

    def __getattr__(self, name: str) -> Any:
        raise foreign.no_attribute(self, name)

    def call(self, *args: Any, **kwargs: Any) -> Any:
        """Run the task at once, as the immediate backend does."""
        if self.takes_context and args and type(args[0]) is compat.TaskContext:
            args = (TaskContext(task_result=args[0].task_result), *args[1:])
        return super().call(*args, **kwargs)

    @cached_property
    def declaration(self) -> Declaration:
        """The declaration of this task, which ``enqueue_task()`` reads."""
        with _as_invalid_task():
            return declaration_of(self.func, name=self.module_path, options=self._declared)

    @property
    def database(self) -> str:
        """Alias of the database of its backend."""
        alias: str = getattr(self.get_backend(), "database", "default")
        return alias

    @property
    def _declared(self) -> dict[str, Any]:
        """The options of ``@task``."""
        declared = {name: getattr(self, name) for name in OF_TASK}
        for hook in HOOKS:
            declared[hook] = self._hook(declared[hook])
        if isinstance(self.expires, datetime):  # of using()
            del declared["expires"]
        return declared

    @property
    def options(self) -> UsingOptions:
        """The options of single enqueues; ``enqueue_task()`` reads them."""
        options: UsingOptions = {}
        if self.run_after is not None:
            options["run_after"] = self.run_after
        if isinstance(self.expires, datetime):
            options["expires"] = self.expires
        if self.database != "default":
            options["using"] = self.database
        if self.subject is not None:
            options["subject"] = self.subject
        return options

    def _hook(self, hook: Any) -> Any:
        """Return a hook of the same database without the option ``using``, because hooks may not have options."""
        function = getattr(hook, "function", None) if isinstance(hook, WithResult) else hook
        if isinstance(function, Task) and function.database == self.database:
            return SimpleNamespace(
                declaration=function.declaration,
                options={
                    name: value for name, value in function.options.items() if name != "using"
                },
                gets_result=function is not hook,
            )
        return hook


@contextmanager
def _as_invalid_task() -> Iterator[None]:
    try:
        yield
    except TxTasksError as error:
        raise compat.InvalidTask(str(error)) from error


def _found_again(kind: type[Task], module_path: str, options: dict[str, Any]) -> Task:
    if known := registry.find(module_path):
        module_path = known.name  # it may have been renamed since
    module, _, name = module_path.rpartition(".")
    found = getattr(import_module(module), name)
    task = object.__new__(kind)
    for option, value in {"func": getattr(found, "func", found), **options}.items():
        object.__setattr__(task, option, value)
    return task


def with_our_options(task: compat.Task) -> Task:
    """Return a task as our class, even if it was declared for another backend.

    Raises:
        InvalidTask: workers would not know the task.
    """
    if isinstance(task, Task):
        return task
    entry = registry.find(task.module_path)
    if not isinstance(entry and entry.function, EntryPoint):
        raise compat.InvalidTask(
            f"{task.module_path} is declared for a backend of another package, so no worker knows it. "
            "Declare it for this backend, @task(backend=...), or for one of django_txtasks.backends."
        )
    return Task(**{one.name: getattr(task, one.name) for one in fields(task)})


def without_delay(task: Any) -> Any:
    """Return a task that Django's validation accepts, which takes only datetimes as ``run_after``."""
    if isinstance(task.run_after, datetime | None):
        return task
    return SimpleNamespace(
        func=task.func,
        takes_context=task.takes_context,
        priority=task.priority,
        queue_name=task.queue_name,
        run_after=None,
    )
