"""The tasks of Django's ``@task``, with this package's options on top."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from datetime import datetime, timedelta
from functools import cached_property
from types import SimpleNamespace
from typing import Any

from django_txtasks import registry
from django_txtasks.backends import compat
from django_txtasks.backends.running import EntryPoint, TaskContext
from django_txtasks.declaring import HOOKS, declaration_of
from django_txtasks.exceptions import TxTasksError
from django_txtasks.registry import Declaration, Options


@dataclass(frozen=True, kw_only=True)
class Task(compat.Task):
    """A function declared with Django's ``@task``. The options are those of ``django_txtasks.task``.

    Attributes:
        run_after: a datetime, or a timedelta from enqueueing on.
        expires: a timedelta from enqueueing on; through ``using()`` also a datetime.
    """

    run_after: datetime | timedelta | None = None  # type: ignore[assignment]  # a timedelta, too
    max_attempts: int = 5
    max_crashes: int = 3
    atomic: bool = False
    idempotent: bool = False
    timeout: timedelta | float | None = None
    expires: datetime | timedelta | None = None
    compensate: Any = None
    on_success: Any = None
    on_retry: Any = None
    on_failure: Any = None

    def __post_init__(self) -> None:
        super().__post_init__()
        declaration = replace(self.declaration, function=EntryPoint(self), takes_context=True)
        entry = registry.find(self.module_path)
        if entry is None or getattr(entry.function, "function", None) is not self.func:
            registry.register(declaration)

    def using(self, **changes: Any) -> Task:
        """Return this task with other options for what is enqueued through it.

        Args:
            changes: priority, queue_name, run_after, backend; and max_attempts, max_crashes, idempotent,
                timeout, expires, compensate, on_success, on_retry, on_failure. None changes nothing.

        Raises:
            InvalidTask: ``atomic`` is among them: how a function runs is declared with it.
        """
        if changes.get("atomic", self.atomic) not in (self.atomic, None):
            raise compat.InvalidTask(
                f"{self.module_path}.using(atomic={changes['atomic']!r}): workers know a task as it was declared. "
                "Say @task(atomic=True); on Django 6.0 with task from django_txtasks.backends."
            )
        known = {one.name for one in fields(self)} - {"func", "takes_context"}
        for name in changes.keys() - known:
            raise TypeError(f"using() got an unexpected keyword argument {name!r}")
        return replace(
            self, **{name: value for name, value in changes.items() if value is not None}
        )

    def as_enqueued(self, **changes: Any) -> Task:
        """Return it as a row says it was enqueued: nothing is checked any more, as settings change."""
        task: Task = object.__new__(type(self))
        for one in fields(self):
            object.__setattr__(task, one.name, changes.get(one.name, getattr(self, one.name)))
        return task

    def call(self, *args: Any, **kwargs: Any) -> Any:
        """Run it here and now, as the immediate backend does."""
        if self.takes_context and args and type(args[0]) is compat.TaskContext:
            args = (TaskContext(task_result=args[0].task_result), *args[1:])
        return super().call(*args, **kwargs)

    @cached_property
    def declaration(self) -> Declaration:
        """What is written into the rows of this task; ``enqueue_task()`` reads it."""
        try:
            return declaration_of(
                self.func,
                name=self.module_path,
                queue_name=self.queue_name,
                priority=self.priority,
                max_attempts=self.max_attempts,
                max_crashes=self.max_crashes,
                atomic=self.atomic,
                idempotent=self.idempotent,
                takes_context=self.takes_context,
                timeout=self.timeout,
                expires=None if isinstance(self.expires, datetime) else self.expires,
                hooks={name: self._hook(getattr(self, name)) for name in HOOKS},
            )
        except TxTasksError as error:
            raise compat.InvalidTask(str(error)) from error

    @property
    def database(self) -> str:
        """The alias that its backend writes to."""
        alias: str = getattr(self.get_backend(), "database", "default")
        return alias

    @property
    def options(self) -> Options:
        """What is said of one enqueue alone; ``enqueue_task()`` reads it."""
        return Options(
            run_after=self.run_after,
            expires=self.expires if isinstance(self.expires, datetime) else None,
            using=None if self.database == "default" else self.database,
        )

    def _hook(self, hook: Any) -> Any:
        """A hook is written where the task is, which is no option of it."""
        if isinstance(hook, Task) and hook.database == self.database:
            return SimpleNamespace(
                declaration=hook.declaration, options=replace(hook.options, using=None)
            )
        return hook


def with_our_options(task: compat.Task) -> Task:
    """Return a task as one of ours: it may have been declared for another backend.

    Raises:
        InvalidTask: workers would not know it.
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
    """Return what Django's validation takes: it knows no timedelta as ``run_after``."""
    if not isinstance(task.run_after, timedelta):
        return task
    return SimpleNamespace(
        func=task.func,
        takes_context=task.takes_context,
        priority=task.priority,
        queue_name=task.queue_name,
        run_after=None,
    )
