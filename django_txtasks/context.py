"""The context of a running task: the first argument of a function declared with ``takes_context=True``."""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from asgiref.sync import sync_to_async

from django_txtasks.core.rows.running import CoreContext
from django_txtasks.features.batches import api as batches
from django_txtasks.features.batches.api import BatchHandle
from django_txtasks.features.progress.notes import ProgressNotes, checked

if TYPE_CHECKING:
    from django.db.models import Model

    from django_txtasks.features.steps.context import Steps

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True)
class TaskContext(CoreContext):
    """The first argument of a task function that was declared with ``takes_context=True``.

    A context can be pickled for another process. There ``check`` works as usual, but ``cancelled`` is always False
    and ``progress`` has no effect.

    Attributes:
        task_id: id of the task's row.
        attempt: number of this attempt, from 1 on. It never goes down.
        failures: number of earlier attempts that raised.
        max_attempts: number of attempts that may raise. After the last of them the task is dead.
        snoozes: number of times that the task has postponed itself.
    """

    @property
    def scheduled_for(self) -> datetime | None:
        """Time of the tick for which a schedule enqueued the task, in UTC, the same in each attempt; else None."""
        from django_txtasks.features.schedules.rules import tick_of_id

        return tick_of_id(self.task_id)

    def progress(self, done: float, total: float | None = None, note: str = "") -> None:
        """Report the progress of this attempt, which the handle and the admin show up to a second later.

        The call needs no query: the worker writes the latest report to its own row. If more than 100 tasks of one
        worker report progress, it writes numbers only, every 5 s.

        Args:
            done: the amount of ``total`` that is done, in any unit.
            total: None: unknown.
            note: a description of the current work; 200 characters are kept.

        Raises:
            InvalidArguments: ``done`` or ``total`` is not a number, or the note is not text.
        """
        progress = checked(done, total, note)
        if (notes := self._offered.get(ProgressNotes)) is not None:
            notes.note(self.task_id, progress)

    def batch(self) -> AbstractContextManager[BatchHandle]:
        """Add members to this task's batch: the tasks that are enqueued in ``with ctx.batch():``.

        The block is a transaction, or part of the open one. It locks this task's row until the transaction ends,
        because the batch must not end before its new members are committed. An async task uses the block in a
        function that it calls by ``sync_to_async``.

        Raises:
            ClaimLost: as from ``check``. Do not catch it.
            NotInBatch: this task is not in a batch.
            BatchEnded: this task was revived after its batch had ended.
            InvalidOption: another batch is open.
        """
        return batches.of_member(self._alias, self._claim)

    def link(self, subject: Model) -> None:
        """Link this task to a business object, so that ``tasks_of(subject)`` finds the task.

        It is for tasks that are not enqueued with ``using(subject=…)``: ticks of schedules, hooks, subscribers of
        events, and rows that plain SQL has written. A link that is there already stays.

        Raises:
            InvalidOption: not a saved object, or an object in another database.
        """
        from django_txtasks.features.links import rows

        rows.link(self._alias, self.task_id, subject, f"{self.task_name} has called ctx.link()")

    async def alink(self, subject: Model) -> None:
        """Like ``link``, from an async task."""
        await sync_to_async(self.link)(subject)

    def step(self, name: str, function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function once for all attempts, in a transaction that also stores the value it returns.

        Effects in the task's database and the value are committed together. After a crash or a failure, the next
        attempt does not call the function: it gets the stored value and continues.

        Args:
            name: text of at most 100 characters, different for each step of a task.

        Returns:
            The value of the function, as read back from JSON in every attempt: a tuple becomes a list.

        Raises:
            StepRefused: the task is ``atomic=True``, a transaction is open, or the name was used in this attempt.
            InvalidArguments: the value cannot be stored as JSON. The step is rolled back.
            ClaimLost: the worker was declared lost. The step is rolled back. Do not catch it.
        """
        return self._steps.run(name, function, args, kwargs)  # type: ignore[no-any-return]

    async def astep(
        self, name: str, function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs
    ) -> R:
        """Like ``step``, from an async task. The function is sync."""
        return await sync_to_async(self.step)(name, function, *args, **kwargs)

    def key(self, name: str) -> str:
        """Return an idempotency key for a request to another system, the same in each attempt of this task.

        Args:
            name: text of at most 100 characters, different for each request of a task.

        Returns:
            A UUID as text of 36 characters. Other tasks get other keys.

        Raises:
            StepRefused: the name is not such text.
        """
        from django_txtasks.features.steps.context import key_of

        return key_of(self.task_id, name)

    def sleep_until(self, name: str, when: datetime | timedelta | float) -> None:
        """Suspend the task until a time. It occupies no slot; a later attempt returns from this call.

        A suspension does not count as a failure, crash or snooze. From now on the task does not expire.

        Args:
            name: text of at most 100 characters, different for each step and wait of a task.
            when: an aware datetime, a timedelta or seconds. Later attempts keep the time of the first attempt.

        Raises:
            Suspended: the time has not come. Do not catch it.
            StepRefused: as from ``step``.
            InvalidOption: ``when`` has another type, or is more than 100 years away.
            ClaimLost: the worker was declared lost. Do not catch it.
        """
        self._steps.sleep_until(name, when)

    async def asleep_until(self, name: str, when: datetime | timedelta | float) -> None:
        """Like ``sleep_until``, from an async task."""
        await sync_to_async(self.sleep_until)(name, when)

    def wait_for(self, name: str, *, timeout: timedelta | float | None = None) -> Any:
        """Suspend the task until ``resume(token, value)`` is called, and return that value.

        The task occupies no slot meanwhile; a later attempt returns from this call. The value may arrive before
        this call. A suspension does not count as a failure, crash or snooze. From now on the task does not
        expire.

        Args:
            name: the name that ``ctx.token(name)`` gets, different for each step and wait of a task.
            timeout: a timedelta or seconds from the first attempt that waits; None: no limit.

        Returns:
            The value, as read back from JSON, the same in each attempt.

        Raises:
            WaitTimedOut: no value arrived in time. It is raised in each later attempt, too.
            Suspended: no value has arrived yet. Do not catch it.
            StepRefused: as from ``step``.
            InvalidOption: the timeout has another type, or is more than 100 years.
            ClaimLost: the worker was declared lost. Do not catch it.
        """
        return self._steps.wait_for(name, timeout)

    async def await_for(self, name: str, *, timeout: timedelta | float | None = None) -> Any:
        """Like ``wait_for``, from an async task."""
        return await sync_to_async(self.wait_for)(name, timeout=timeout)

    def token(self, name: str) -> str:
        """Return the token with which ``resume()`` delivers the value for ``wait_for(name)``.

        It is the same in each attempt, and needs no query. The token is signed with the ``SECRET_KEY``, so it
        cannot be guessed; its owner may deliver a value.

        Raises:
            StepRefused: the name is not text of at most 100 characters.
        """
        from django_txtasks.features.steps.answering import token_of

        return token_of(self._alias, self.task_id, name)

    @functools.cached_property
    def _steps(self) -> Steps:
        from django_txtasks.features.steps.context import Steps  # imported only by tasks with steps

        return Steps(self._alias, self._claim)


def steps_of(context: TaskContext) -> Steps:
    """Return the steps of a running task, for an app that has waits of its own."""
    return context._steps
