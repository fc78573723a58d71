"""The options of ``@task`` and of ``using()`` that the core has, each declared once; see ``table``."""

# No `from __future__ import annotations`: the entries are read at run time.

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Annotated, TypedDict

from django_txtasks.core.declaring.hooks import DeclaredTask, WithResult, spec_of_hook
from django_txtasks.core.declaring.table import Option, as_checked, entries_of, table_of
from django_txtasks.core.declaring.values import (
    backoff_of,
    delay_of,
    limit_of,
    moment_of,
    names_of,
    priority_of,
    seconds_of,
    snoozes_of,
)


class CoreOptions(TypedDict, total=False):
    """Options of ``@task`` that ``using()`` can set for single enqueues."""

    queue_name: Annotated[str, Option("default")]
    """One of ``TXTASKS["queues"]``."""

    priority: Annotated[int, Option(0, priority_of, as_checked)]
    """From -100 to 100. Tasks with a higher priority are claimed first."""

    max_attempts: Annotated[int, Option(5, limit_of, as_checked)]
    """Number of attempts that may raise. After the last of them the task is dead."""

    max_crashes: Annotated[int, Option(3, limit_of, as_checked)]
    """Number of worker crashes, for a task that may run again after a crash. After the last of them the task is
    dead."""

    timeout: Annotated[timedelta | float | None, Option(None, seconds_of, as_checked)]
    """Longest time for one attempt, as timedelta or seconds. Then ``TimedOut`` is raised in the task. If the
    attempt still runs ``TXTASKS["grace"]`` later, its process is replaced. Both count as a failure. None: no
    limit."""


class HookOptions(TypedDict, total=False):
    """Hooks, which ``using()`` can set, too."""

    on_success: Annotated[DeclaredTask | WithResult | None, Option(None, spec_of_hook)]
    """A task function that is enqueued when the task has finished, in the same transaction. Its argument is one
    dict with event, task_id, task_name, queue_name, args, kwargs, attempt, failures, crashes, result and error.
    Declared as ``other.with_result()``, it gets the result instead."""

    on_retry: Annotated[DeclaredTask | None, Option(None, spec_of_hook)]
    """A task function that is enqueued when an attempt has ended and the task will be tried again, in the same
    transaction and with the same dict as ``on_success``."""

    on_failure: Annotated[DeclaredTask | None, Option(None, spec_of_hook)]
    """A task function that is enqueued when the task is dead, in the same transaction and with the same dict as
    ``on_success``."""


class CoreTaskOptions(TypedDict, total=False):
    """Options of ``@task`` alone."""

    atomic: Annotated[bool, Option(False)]
    """Run the function in a transaction that also finishes the task, so that its effects in this database happen
    exactly once. After a crash the task runs again."""

    idempotent: Annotated[bool, Option(False)]
    """Declare that a second run does no harm. After a crash the task runs again."""

    expires: Annotated[timedelta | float | None, Option(None, delay_of)]
    """Time from the enqueue on, as timedelta or seconds, after which no attempt starts. The task is then
    cancelled. None: never."""

    backoff: Annotated[
        Callable[[int, BaseException], timedelta | float] | None, Option(None, backoff_of)
    ]
    """A function of the number of failures, from 1 on, and the error. It returns the wait before the next attempt,
    as timedelta or seconds, and replaces the default wait, which grows. ``Retry(after=…)`` has precedence."""

    max_snoozes: Annotated[int, Option(1000, snoozes_of)]
    """Number of times that the task may postpone itself by ``Snooze``. Each further time counts as a failure."""

    interruptible: Annotated[bool, Option(False)]
    """Raise ``TaskCancelled`` at any line of the running function when the task is cancelled. Otherwise the
    function learns of the cancel at ``ctx.check()`` and ``ctx.cancelled``. Async functions always get
    ``CancelledError``."""

    compensate: Annotated[DeclaredTask | None, Option(None, spec_of_hook)]
    """A task function that is enqueued with the same arguments when a crash leaves the task dead, in the same
    transaction: after the first crash, or with ``idempotent`` after ``max_crashes``. Such a task cannot be
    revived."""

    was: Annotated[Sequence[str], Option((), names_of)]
    """Earlier names of the function, the oldest first, such as ``["shop.tasks.old"]``. Workers also run the tasks
    that were enqueued under these names."""


class CoreUsingOptions(TypedDict, total=False):
    """Options of ``using()`` alone."""

    run_after: Annotated[datetime | timedelta | float | None, Option(None, moment_of)]
    """Earliest start: an aware datetime, or from the enqueue on a timedelta or seconds."""

    expires: Annotated[datetime | timedelta | float | None, Option(None, moment_of)]
    """Time after which no attempt starts, in the same forms as ``run_after``. The task is then cancelled."""

    using: Annotated[str | None, Option(None)]
    """Alias of the database in whose transaction the row is written."""


CORE = table_of(
    entries_of(CoreOptions, HookOptions, CoreTaskOptions),
    entries_of(CoreOptions, HookOptions, CoreUsingOptions),
)
"""The options of the core alone."""
