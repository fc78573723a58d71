"""Everything this package raises: one base, each named for what happened."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.core.exceptions import ImproperlyConfigured


class TxTasksError(Exception):
    """The base of all errors of this package. They survive ``pickle`` and ``copy``."""

    def __reduce__(self) -> tuple[Any, ...]:
        """Return text and attributes: ``__init__`` would make the text anew, or ask for other arguments."""
        return _made_again, (type(self), self.args, self.__dict__)


def _made_again(
    kind: type[BaseException], args: tuple[Any, ...], attributes: dict[str, Any]
) -> BaseException:
    error = kind.__new__(kind, *args)
    error.args = args
    error.__dict__.update(attributes)
    return error


class ConfigError(TxTasksError, ImproperlyConfigured):
    """The ``TXTASKS`` setting holds something that cannot work."""


class InvalidDeclaration(TxTasksError, TypeError):
    """``@task`` was used on something, or with options, that cannot be a task function."""


class NotATask(TxTasksError, TypeError):
    """An argument of an enqueueing function is no task function: it was not declared with ``@task``."""


class UnknownTask(TxTasksError, LookupError):
    """No installed app declares a task function of this name."""


class UnknownQueue(TxTasksError, ValueError):
    """The queue is not among ``TXTASKS["queues"]``, so no worker would serve it."""


class InvalidOption(TxTasksError, ValueError):
    """An option of ``using()`` or ``@task`` has a value that cannot be stored."""


class UnknownLane(InvalidOption):
    """``TXTASKS["lanes"]`` has no rule for this lane: its tasks would have no limit."""


class InvalidSchedule(TxTasksError, ValueError):
    """A schedule says when, or what, in a way that cannot be."""


class UnknownZone(InvalidSchedule):
    """This host knows no time zone of that name."""


class LibraryMissing(TxTasksError, ImportError):
    """A feature needs a library that is not installed; the text names it."""


class UnknownEvent(TxTasksError, ValueError):
    """The event is not among ``TXTASKS["events"]``."""


class UnknownOption(TxTasksError, TypeError):
    """``@task`` or ``using()`` was given an option that it does not have."""


class UnsupportedDatabase(TxTasksError):
    """The database is none of those on which tasks run: PostgreSQL, MariaDB, MySQL and SQLite."""


class InvalidArguments(TxTasksError, ValueError):
    """The arguments or the result of a task cannot be stored as JSON."""


class ScratchRefused(TxTasksError):
    """The database server did not let ``txtasks_verify`` create a database of its own."""


class ClaimLost(TxTasksError):
    """The row has moved on without this attempt, so the attempt may not change it."""


class NotInBatch(TxTasksError, LookupError):
    """``ctx.batch()`` was asked for in a task that is a member of none."""


class BatchEnded(TxTasksError):
    """A member was to be added to a batch that has ended."""


class WorkerLost(TxTasksError):
    """Never raised. It stands among a task's errors for an attempt whose worker was lost."""


class WorkerStopped(TxTasksError):
    """Never raised. It stands among a task's errors for an attempt that its worker's orderly end cut short."""


class EndLost(TxTasksError):
    """Never raised. It stands among a task's errors for an attempt whose recorded end the database has lost.

    A failover to a standby that lacked the last commits does that. How far the task came is not known any more.
    """


class StepRefused(TxTasksError, RuntimeError):
    """A step of a task could not be kept as one, so its function was not called, or what it did is rolled back."""


class Suspended(BaseException):
    """Raised by ``ctx.sleep_until()`` and ``ctx.wait_for()``: the task waits without a slot. Let it pass.

    The next attempt begins at the top, and goes on behind the wait when that is over. It is no ``Exception``, so
    that a task's own ``except Exception`` does not skip the wait.
    """

    def __init__(self, name: str) -> None:
        super().__init__(f"the task waits for {name!r}")
        self.name = name

    def __reduce__(self) -> tuple[Any, ...]:
        """Return the text and the attributes, as ``TxTasksError`` does."""
        return _made_again, (type(self), self.args, self.__dict__)


class WaitTimedOut(TxTasksError, TimeoutError):
    """``ctx.wait_for()``: no value has come in time. None will: each further attempt meets the same."""


class InvalidToken(TxTasksError, ValueError):
    """``resume()`` got what no task of this site has given out, or what was changed on its way."""


class Retry(TxTasksError):
    """Raise it in a task: this attempt failed, try again after a while.

    It counts as a failure against ``max_attempts``, like any other exception.

    Args:
        reason: kept in the task's errors.
        after: shortest wait until the next attempt, as timedelta or seconds;
            None means the usual exponential backoff.
        lane: no other task of its lane starts before that, either: the other side has asked for a pause.
    """

    def __init__(
        self, reason: str = "", *, after: timedelta | float | None = None, lane: bool = False
    ) -> None:
        super().__init__(reason or "the task asked for another attempt")
        if not isinstance(after, (int, float, timedelta, type(None))):
            raise TypeError(f"Retry(after={after!r}): use seconds (a number) or a timedelta.")
        if lane and after is None:
            raise TypeError("Retry(lane=True): say after=…, too: for how long the lane is to wait.")
        self.lane = lane
        self.after = timedelta(seconds=after) if isinstance(after, (int, float)) else after


class Snooze(TxTasksError):
    """Raise it in a task: not now, run it again later. That counts neither as a failure nor as a crash.

    The function's ``max_snoozes`` says how often; once more counts as a failure.

    Args:
        after: wait until the next attempt, as timedelta or seconds; a second at least.
    """

    def __init__(self, *, after: timedelta | float) -> None:
        if type(after) not in (int, float, timedelta):
            raise TypeError(f"Snooze(after={after!r}): use seconds (a number) or a timedelta.")
        seconds = after.total_seconds() if isinstance(after, timedelta) else after
        if not 1 <= seconds < 1e9:
            raise ValueError(
                f"Snooze(after={after!r}): a task may be put off for a second at least, and for 30 years at most."
            )
        super().__init__(f"the task put itself off for {seconds:g} s")
        self.after = timedelta(seconds=seconds)


class TaskCancelled(TxTasksError):
    """Raised by ``ctx.check()``: this attempt was asked to stop. Let it pass, and the task is cancelled.

    A task that raises it by itself is cancelled as well.
    """


class TaskFailed(TxTasksError):
    """``handle.result()``: the task has no result, and will have none, unless a person revives it.

    Attributes:
        state: ``dead``, ``cancelled``, ``expired`` or ``discarded``.
        errors: of its attempts: dicts with ``type``, ``message``, ``traceback``, ``attempt``, ``at``.
    """

    def __init__(self, message: str, *, state: str, errors: list[dict[str, Any]]) -> None:
        super().__init__(message)
        self.state, self.errors = state, errors


class ResultTimeout(TxTasksError, TimeoutError):
    """``handle.result()``: the task has not ended within the time. It goes on."""


class ResultUnavailable(TxTasksError):
    """``handle.result()`` cannot return what it was asked for: the message says why, and what to do."""


class Reject(TxTasksError):
    """Raise it in a task: no further attempt can help, the task is dead at once.

    Args:
        reason: kept in the task's errors and shown in the admin.
    """

    def __init__(self, reason: str = "") -> None:
        super().__init__(reason or "the task rejected itself")


class AlreadyRun(Reject):
    """In the errors of a dead task: a task of this id stands in history, so its function was not called again."""

    def __init__(self) -> None:
        super().__init__(
            "this id has already run: somebody has written the row anew. Discard it, or enqueue the task anew"
        )


class TimedOut(TxTasksError, TimeoutError):
    """Raised inside a task that has taken longer than its ``timeout``. Catch it to clean up, no more."""


INTERRUPTIONS = (TimedOut, TaskCancelled)
"""Errors that a worker raises in a task from outside, once, wherever it is: whoever it calls lets them pass."""


TASK_SAYS = (ClaimLost, TaskCancelled, Reject, Suspended, Snooze, Retry)
"""Errors by which a task says how it goes on. Of several in one group the first kind of this order counts."""


def meant(error: BaseException) -> BaseException:
    """Return the error that says how an attempt goes on: of a group of such errors alone, one of these.

    An ``asyncio.TaskGroup`` wraps what its tasks raise. One foreign error makes the group an ordinary failure.
    """
    leaves = leaves_of(error)
    if len(leaves) == 1 and leaves[0] is error:
        return error
    if not all(isinstance(one, TASK_SAYS) for one in leaves):
        return error
    return next(one for kind in TASK_SAYS for one in leaves if isinstance(one, kind))


def leaves_of(error: BaseException) -> list[BaseException]:
    """Return the errors of a group, of those in it, and so on. Python 3.10 has groups of a package alone."""
    inside = getattr(error, "exceptions", None)
    if not (isinstance(inside, tuple) and inside) or isinstance(error, TASK_SAYS):
        return [error]
    if not all(isinstance(one, BaseException) for one in inside):
        return [error]
    return [leaf for one in inside for leaf in leaves_of(one)]


def class_path(error: type[BaseException]) -> str:
    """Return where a class of errors is, as a task's errors name it: ``module.Class``."""
    return f"{error.__module__}.{error.__qualname__}"
