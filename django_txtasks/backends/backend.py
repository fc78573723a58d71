"""The backends that ``TASKS`` names."""

from __future__ import annotations

import difflib
import uuid
from collections.abc import Iterable
from datetime import datetime
from typing import Any

from django.apps import apps
from django.core.checks import CheckMessage, Error
from django.db import connections, router

from django_txtasks.backends import compat, endings, results
from django_txtasks.backends.tasks import Task, with_our_options, without_delay
from django_txtasks.conf import get_config

OPTIONS = ("database",)


class _TakesOurOptions(compat.BaseTaskBackend):
    task_class = Task

    def validate_task(self, task: Any) -> None:
        """Check like Django, and also accept a timedelta or seconds as ``run_after``."""
        if task.run_after is not None and not self.supports_defer:
            raise compat.InvalidTask("Backend does not support run_after.")
        super().validate_task(without_delay(task))


class ImmediateBackend(_TakesOurOptions, compat.ImmediateBackend):
    """Django's backend that runs a task at once, without a row, for tasks with this package's options."""


class DummyBackend(_TakesOurOptions, compat.DummyBackend):
    """Django's backend that keeps results in a list and runs no task, for tasks with this package's options."""


class TxTasksBackend(_TakesOurOptions):
    """Django's Tasks as rows, written in the same transaction as the data that they belong to.

    The queues are ``QUEUES``, or ``TXTASKS["queues"]`` if ``QUEUES`` is left out.

    Attributes:
        database: the alias of ``OPTIONS["database"]``.
    """

    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = True

    def __init__(self, alias: str, params: dict[str, Any]) -> None:
        super().__init__(alias, params)
        self.database: str = self.options.get("database", "default")
        if not params.get("QUEUES"):
            self.queues = set(get_config().queues)
        endings.listen()

    def enqueue(self, task: Any, args: Any, kwargs: Any) -> Any:
        """Write a task in the current transaction of ``database``, or in its own transaction if none is open.

        Returns:
            The TaskResult, like ``get_result``. If an earlier task has the same key of ``once``, the result of
            that task.

        Raises:
            InvalidTask, TypeError, TxTasksError: before any SQL.
        """
        from django_txtasks.core.enqueueing import enqueue_and_read

        self.validate_task(task)
        args, kwargs = compat.normalize_json(list(args)), compat.normalize_json(dict(kwargs))
        ours = with_our_options(task)
        handle, times = enqueue_and_read(ours, *args, **kwargs)
        if times is None:
            return self._result_of_the_first(task, handle.id, args, kwargs)
        shown = task if task.run_after is None else ours.as_enqueued(run_after=times.later)
        result = self._waiting(shown, handle.id, args, kwargs, enqueued_at=times.enqueued_at)
        compat.task_enqueued.send(type(self), task_result=result)
        return result

    def _result_of_the_first(
        self, task: Any, task_id: uuid.UUID, args: list[Any], kwargs: dict[str, Any]
    ) -> Any:
        """Return the result of an earlier task; if its row is not kept any longer, a result without an end."""
        try:
            return self.get_result(str(task_id))
        except compat.TaskResultDoesNotExist:
            return self._waiting(task, task_id, args, kwargs, enqueued_at=None)

    def _waiting(
        self,
        task: Any,
        task_id: uuid.UUID,
        args: list[Any],
        kwargs: dict[str, Any],
        *,
        enqueued_at: datetime | None,
    ) -> Any:
        """Return the result of a task that was enqueued and has not begun."""
        return compat.TaskResult(
            task=task,
            id=str(task_id),
            status=compat.TaskResultStatus.READY,
            enqueued_at=enqueued_at,
            started_at=None,
            finished_at=None,
            last_attempted_at=None,
            args=args,
            kwargs=kwargs,
            backend=self.alias,
            errors=[],
            worker_ids=[],
        )

    def get_result(self, result_id: str) -> compat.TaskResult:
        """Return the result of a task by its id, in any state.

        Raises:
            TaskResultDoesNotExist: no such task, or it has finished and is not kept any longer.
        """
        return results.find(self.database, result_id, self.alias)

    def check(self, **_: Any) -> list[CheckMessage]:
        """Return the problems of this backend's settings, without opening a connection."""
        return list(self._problems())

    def _problems(self) -> Iterable[CheckMessage]:
        name = f"TASKS[{self.alias!r}]"
        if not apps.is_installed("django_txtasks"):
            yield Error(
                f"{name} uses django_txtasks, which is not installed.",
                hint="Add 'django_txtasks' to INSTALLED_APPS and migrate.",
                id="txtasks.E016",
            )
            return
        for option in sorted(set(self.options) - set(OPTIONS)):
            near = difflib.get_close_matches(option, OPTIONS, n=1, cutoff=0.5)
            yield Error(
                f"{name}['OPTIONS'] has the unknown key {option!r}.",
                hint=f"Did you mean {near[0]!r}?" if near else f"Known: {', '.join(OPTIONS)}.",
                id="txtasks.E017",
            )
        yield from self._check_database(name)
        if unknown := sorted(self.queues - set(get_config().queues)):
            yield Error(
                f"{name}['QUEUES'] has {', '.join(map(repr, unknown))}, which no worker serves.",
                hint="Add them to TXTASKS['queues'], or leave that out: then QUEUES counts.",
                id="txtasks.E018",
            )

    def _check_database(self, name: str) -> Iterable[CheckMessage]:
        from django_txtasks.models import Task as Row

        if self.database not in connections:
            yield Error(
                f"{name}['OPTIONS']['database'] is {self.database!r}, which is not in DATABASES.",
                hint=f"Known: {', '.join(map(repr, connections))}.",
                id="txtasks.E019",
            )
        elif not router.allow_migrate_model(self.database, Row):
            yield Error(
                f"{name} writes to database {self.database!r}, which has no table for tasks: "
                "a router keeps them away from it.",
                hint="Let DATABASE_ROUTERS allow the app 'txtasks' there, or name another database.",
                id="txtasks.E020",
            )
