"""All exceptions of this package. They have one base, and each is named for its cause."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.core.exceptions import ImproperlyConfigured


class TxTasksError(Exception):
    """Base of all errors of this package. They can be pickled and copied."""

    def __reduce__(self) -> tuple[Any, ...]:
        """Return text and attributes; ``__init__`` would build the text again, or need other arguments."""
        return _made_again, (type(self), self.args, self.__dict__)


def _made_again(
    kind: type[BaseException], args: tuple[Any, ...], attributes: dict[str, Any]
) -> BaseException:
    error = kind.__new__(kind, *args)
    error.args = args
    error.__dict__.update(attributes)
    return error


class ConfigError(TxTasksError, ImproperlyConfigured):
    """The ``TXTASKS`` setting has a value that cannot work."""


class InvalidDeclaration(TxTasksError, TypeError):
    """``@task`` was used on an object, or with options, that cannot be a task function."""


class NotATask(TxTasksError, TypeError):
    """An argument of an enqueueing function was not declared with ``@task``, so it is not a task function."""


class UnknownTask(TxTasksError, LookupError):
    """No installed app declares a task function of this name."""


class UnknownQueue(TxTasksError, ValueError):
    """The queue is not among ``TXTASKS["queues"]``, so no worker would serve it."""


class InvalidOption(TxTasksError, ValueError):
    """An option of ``using()`` or ``@task`` has a value that cannot be stored."""


class UnknownLane(InvalidOption):
    """``TXTASKS["lanes"]`` has no rule for this lane, so its tasks would have no limit."""


class InvalidChoice(TxTasksError, ValueError):
    """A function of ``django_txtasks.operations`` cannot tell which tasks it shall change, or how."""


class InvalidSchedule(TxTasksError, ValueError):
    """A schedule has impossible times or an impossible task."""


class UnknownZone(InvalidSchedule):
    """This host does not know the time zone."""


class LibraryMissing(TxTasksError, ImportError):
    """A feature needs a library that is not installed; the message names it."""


class UnknownEvent(TxTasksError, ValueError):
    """The event is not among ``TXTASKS["events"]``."""


class UnknownOption(TxTasksError, TypeError):
    """``@task`` or ``using()`` was given an unknown option."""


class UnsupportedDatabase(TxTasksError):
    """Tasks do not run on this database. They run on PostgreSQL, MariaDB, MySQL and SQLite."""


class InvalidArguments(TxTasksError, ValueError):
    """The arguments or the result of a task cannot be stored as JSON."""


class ScratchRefused(TxTasksError):
    """The database server did not let ``txtasks_verify`` create a scratch database."""


class ClaimLost(TxTasksError):
    """The row has changed without this attempt, so the attempt may not write it."""


class MarkRefused(TxTasksError, RuntimeError):
    """An item of a call for many tasks was given an outcome that cannot be kept.

    It has an outcome already, the call is over, or a transaction is open that may still be rolled back.
    """


class NotRunning(TxTasksError):
    """The stack of a task was asked for, and no living worker runs the task."""


class NotInBatch(TxTasksError, LookupError):
    """``ctx.batch()`` was called in a task that is not a member of a batch."""


class BatchEnded(TxTasksError):
    """A task cannot join a batch that has ended."""


class WorkerLost(TxTasksError):
    """Never raised. An entry in a task's errors for an attempt whose worker was lost."""


class WorkerStopped(TxTasksError):
    """Never raised. An entry in a task's errors for an attempt that its worker's orderly end cut short."""


class ArgumentsDoNotFit(TxTasksError):
    """Never raised. An entry in a task's errors for attempts whose function does not take the row's arguments.

    The function has not begun, and the task waits for code that takes the arguments.
    """


class EndLost(TxTasksError):
    """Never raised. An entry in a task's errors for an attempt whose recorded end the database has lost.

    This happens in a failover to a standby that lacked the last commits. It is unknown how far the task
    came.
    """


class StepRefused(TxTasksError, RuntimeError):
    """A step of a task could not be recorded, so its function was not called, or its effects are rolled back."""


class Suspended(BaseException):
    """Raised by ``ctx.sleep_until()`` and ``ctx.wait_for()``: the task waits without a slot. Do not catch it.

    The next attempt begins at the top, and continues after the wait once the wait is over. It is not an
    ``Exception``, so that a task's own ``except Exception`` does not skip the wait.
    """

    def __init__(self, name: str) -> None:
        super().__init__(f"the task waits for {name!r}")
        self.name = name

    def __reduce__(self) -> tuple[Any, ...]:
        """Return the text and the attributes, as ``TxTasksError`` does."""
        return _made_again, (type(self), self.args, self.__dict__)


class WaitTimedOut(TxTasksError, TimeoutError):
    """``ctx.wait_for()``: no value has come in time. None will come; each further attempt raises this, too."""


class InvalidToken(TxTasksError, ValueError):
    """``resume()`` got a token that no task of this site has issued, or that was changed on its way."""


class Retry(TxTasksError):
    """Raise it in a task: this attempt failed, try again later.

    It counts as a failure against ``max_attempts``, like any other exception.

    Args:
        reason: kept in the task's errors.
        after: shortest wait until the next attempt, as timedelta or seconds; None = the usual exponential
            backoff.
        lane: True = no other task of its lane starts before that either, because the other side asked for a
            pause.
    """

    def __init__(
        self, reason: str = "", *, after: timedelta | float | None = None, lane: bool = False
    ) -> None:
        super().__init__(reason or "the task asked for another attempt")
        if not isinstance(after, (int, float, timedelta, type(None))):
            raise TypeError(f"Retry(after={after!r}): use seconds (a number) or a timedelta.")
        if lane and after is None:
            raise TypeError("Retry(lane=True) also needs after=…: how long the lane waits.")
        self.lane = lane
        self.after = timedelta(seconds=after) if isinstance(after, (int, float)) else after


class Snooze(TxTasksError):
    """Raise it in a task: run it again later. This counts neither as a failure nor as a crash.

    The function's ``max_snoozes`` limits how often; one more counts as a failure.

    Args:
        after: wait until the next attempt, as timedelta or seconds; at least one second.
    """

    def __init__(self, *, after: timedelta | float) -> None:
        if type(after) not in (int, float, timedelta):
            raise TypeError(f"Snooze(after={after!r}): use seconds (a number) or a timedelta.")
        seconds = after.total_seconds() if isinstance(after, timedelta) else after
        if not 1 <= seconds < 1e9:
            raise ValueError(
                f"Snooze(after={after!r}): the wait must be at least one second and at most 30 years."
            )
        super().__init__(f"the task snoozed for {seconds:g} s")
        self.after = timedelta(seconds=seconds)


class TaskCancelled(TxTasksError):
    """Raised by ``ctx.check()``: this attempt was asked to stop. If the task does not catch it, the task is
    cancelled.

    A task that raises it itself is also cancelled.
    """


class TaskFailed(TxTasksError):
    """``handle.result()``: the task has no result, and will have none unless a person revives it.

    Attributes:
        state: ``dead``, ``cancelled``, ``expired`` or ``discarded``.
        errors: one dict for each failed attempt, with ``type``, ``message``, ``traceback``, ``attempt``,
            ``at``.
    """

    def __init__(self, message: str, *, state: str, errors: list[dict[str, Any]]) -> None:
        super().__init__(message)
        self.state, self.errors = state, errors


class ResultTimeout(TxTasksError, TimeoutError):
    """``handle.result()``: the task has not ended in time. It continues."""


class ResultUnavailable(TxTasksError):
    """``handle.result()`` cannot return the result; the message has the reason and the remedy."""


class HandedOver(ResultUnavailable):
    """``handle.result()``: the task was handed over to another system, which has its result."""


class Refused(TxTasksError):
    """A target of ``TXTASKS["hand_over"]`` can never take a row, so the row is dead at once.

    Args:
        reason: kept in the task's errors and shown in the admin.
    """

    def __init__(self, reason: str = "") -> None:
        super().__init__(reason or "the target refused the task")


class Away(TxTasksError):
    """A target of ``TXTASKS["hand_over"]`` cannot be reached now, so the rows stay as they are."""


class Reject(TxTasksError):
    """Raise it in a task: no further attempt can help, so the task is dead at once.

    Args:
        reason: kept in the task's errors and shown in the admin.
    """

    def __init__(self, reason: str = "") -> None:
        super().__init__(reason or "the task rejected itself")


class AlreadyRun(Reject):
    """An error of a dead task: a task with this id is in history, so its function was not called again."""

    def __init__(self) -> None:
        super().__init__(
            "this id has already run: somebody wrote the row again. Discard it, or enqueue the task again"
        )


class TimedOut(TxTasksError, TimeoutError):
    """Raised inside a task that has taken longer than its ``timeout``. Catch it only to clean up."""


class LoopBlocked(TimedOut):
    """An async task did not let the event loop turn for too long, so its process was replaced."""


INTERRUPTIONS = (TimedOut, TaskCancelled)
"""Errors that a worker raises inside a running task, once, wherever it is. Called code lets them pass."""


TASK_SAYS = (ClaimLost, TaskCancelled, Reject, Suspended, Snooze, Retry)
"""Errors by which a task decides how it continues. Of several in a group, the first in this order counts."""


def meant(error: BaseException) -> BaseException:
    """Return the error that decides how an attempt continues; for a group of only such errors, one of them.

    An ``asyncio.TaskGroup`` wraps the errors of its tasks. With any other error in it, the group is an
    ordinary failure.
    """
    leaves = leaves_of(error)
    if len(leaves) == 1 and leaves[0] is error:
        return error
    if not all(isinstance(one, TASK_SAYS) for one in leaves):
        return error
    return next(one for kind in TASK_SAYS for one in leaves if isinstance(one, kind))


def leaves_of(error: BaseException) -> list[BaseException]:
    """Return the errors of a group and of its nested groups. On Python 3.10 only other packages have groups."""
    inside = getattr(error, "exceptions", None)
    if not (isinstance(inside, tuple) and inside) or isinstance(error, TASK_SAYS):
        return [error]
    if not all(isinstance(one, BaseException) for one in inside):
        return [error]
    return [leaf for one in inside for leaf in leaves_of(one)]


def class_path(error: type[BaseException]) -> str:
    """Return the path of an error class as a task's errors name it: ``module.Class``."""
    return f"{error.__module__}.{error.__qualname__}"
