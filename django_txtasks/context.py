"""The context of a running task: the first argument of a function declared with ``takes_context=True``."""

from __future__ import annotations

import functools
import uuid
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, fields
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from asgiref.sync import sync_to_async

from django_txtasks.cancel_requests import NOBODY, CancelRequests
from django_txtasks.enqueueing import batches
from django_txtasks.enqueueing.batches import BatchHandle
from django_txtasks.exceptions import ClaimLost, TaskCancelled
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
