"""The options of ``@task`` and of ``using()``, each declared once.

A new option is an entry here: its type, its default, its check (``values.py``) and, for a column of a row, how the
column takes it. The signature, the errors, the row, hooks and Django's ``@task`` follow from the entry.
"""

# No `from __future__ import annotations`: the entries are read at run time.

import inspect
import re
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Annotated, Any, Literal, NamedTuple, TypedDict

from django.db.models import Model

from django_txtasks.declarations import foreign
from django_txtasks.declarations.hooks import DeclaredTask, WithResult, spec_of_hook
from django_txtasks.declarations.values import (
    Check,
    TextOfCall,
    as_given,
    backoff_of,
    delay_of,
    keep_of,
    key_of,
    lane_of,
    limit_of,
    many_of,
    moment_of,
    names_of,
    priority_of,
    seconds_of,
    snoozes_of,
    span_of,
    subjects_of,
)
from django_txtasks.exceptions import UnknownOption


class Option(NamedTuple):
    """One option, besides its type.

    Attributes:
        default: the value of an option that ``@task`` leaves out.
        check: takes the task's name, the option's name and the value; returns the value in the form that the code
            reads. It must be hashable, and JSON for an option with a column.
        column: takes the checked value and returns the value of the row's column with the option's name; None: no
            column has this name.
    """

    default: Any = None
    check: Check = as_given
    column: Callable[[Any], Any] | None = None


def as_checked(value: Any) -> Any:
    """Return a value that its column takes unchanged."""
    return value


class SharedOptions(TypedDict, total=False):
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

    unique_key: Annotated[TextOfCall | None, Option(None, key_of)]
    """Text of at most 200 characters, or a function of the task's arguments that returns it, or None. Due tasks
    with the same key in the same queue are merged into one run. A task that already runs is not part of the
    merge."""

    settle: Annotated[timedelta | float | None, Option(None, span_of)]
    """A timedelta or seconds: collect the tasks of a unique key for this long, then run them as one."""

    lane: Annotated[TextOfCall | None, Option(None, lane_of)]
    """Text of at most 200 characters, or a function of the task's arguments that returns it, or None. All tasks of
    a lane share the limits that ``TXTASKS["lanes"]`` sets for it."""

    once: Annotated[TextOfCall | None, Option(None, key_of)]
    """Idempotency key: text of at most 200 characters, or a function of the task's arguments that returns it, or
    None. Only the first enqueue with a key writes a task. Later ones return the handle of the first task."""

    once_for: Annotated[timedelta | float | None, Option(None, span_of)]
    """Time for which a key of ``once`` is kept, as timedelta or seconds. None: 7 days."""

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


class TaskOptions(SharedOptions, total=False):
    """Options of ``@task``, besides ``takes_context``."""

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

    keep: Annotated[Literal["newest", "oldest"], Option("newest", keep_of)]
    """The request whose arguments a merged run has; see ``unique_key``."""

    compensate: Annotated[DeclaredTask | None, Option(None, spec_of_hook)]
    """A task function that is enqueued with the same arguments when a crash leaves the task dead, in the same
    transaction: after the first crash, or with ``idempotent`` after ``max_crashes``. Such a task cannot be
    revived."""

    was: Annotated[Sequence[str], Option((), names_of)]
    """Earlier names of the function, the oldest first, such as ``["shop.tasks.old"]``. Workers also run the tasks
    that were enqueued under these names."""

    intake: Annotated[bool, Option(False)]
    """Let messages of an AMQP queue enqueue the function, by ``manage.py runintake``. Each ``message_id`` counts
    once, as a key of ``once`` does; ``once_for`` sets for how long."""


class UsingOptions(SharedOptions, total=False):
    """Options of ``using()``."""

    run_after: Annotated[datetime | timedelta | float | None, Option(None, moment_of)]
    """Earliest start: an aware datetime, or from the enqueue on a timedelta or seconds."""

    expires: Annotated[datetime | timedelta | float | None, Option(None, moment_of)]
    """Time after which no attempt starts, in the same forms as ``run_after``. The task is then cancelled."""

    using: Annotated[str | None, Option(None)]
    """Alias of the database in whose transaction the row is written."""

    subject: Annotated[Model | Sequence[Model] | None, Option(None, subjects_of)]
    """The saved object that the task is about, such as an order, or a list of objects, for ``tasks_of()``."""


def _entries(options: Any) -> dict[str, Any]:
    return dict(options.__annotations__)


_OF_TASK = _entries(TaskOptions)
_OF_USING = _entries(UsingOptions)
OF_TASK: dict[str, Option] = {
    **{name: entry.__metadata__[0] for name, entry in _OF_TASK.items()},
    "takes_context": Option(False),
    "many": Option(None, many_of),
}
"""Options of ``@task``, by name."""
OF_USING: dict[str, Option] = {name: entry.__metadata__[0] for name, entry in _OF_USING.items()}
"""Options of ``using()``, by name."""
COLUMNS = {name: one for name, one in {**OF_USING, **OF_TASK}.items() if one.column is not None}
"""Options that are columns of a row, by name."""


def checked(name: str, known: Mapping[str, Option], options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of options in the form that the code reads.

    Args:
        name: of the task, for errors.
        known: ``OF_TASK`` or ``OF_USING``.

    Raises:
        InvalidDeclaration, InvalidOption: see ``values.py``.
    """
    return {option: known[option].check(name, option, value) for option, value in options.items()}


def columns_of(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of a row's columns for checked values. Options without a column are left out."""
    return {
        name: option.column(values[name])
        for name, option in COLUMNS.items()
        if name in values and option.column is not None
    }


def refuse_unknown(
    where: str, given: Collection[str], known: Collection[str] = tuple(OF_TASK)
) -> None:
    """Raise UnknownOption if options were given that ``where`` does not have; it has the known ones."""
    for name in given:
        if name in known:
            continue
        if name in OF_USING:
            more = f"It is said of one task: fn.using({name}=…).enqueue(…)."
        elif name in OF_TASK:
            more = f"It is declared with the function: @task({name}=…)."
        else:
            more = foreign.about_option(name, known)
        raise UnknownOption(f"{where} has no option {name!r}. {more}")


def describe(function: Any, options: type) -> None:
    """Show the options in a function's signature and docstring, which ``help()`` and the API reference print.

    Args:
        function: its docstring has a line that begins with "**options:", which the list of options replaces.
        options: the TypedDict that the function takes as its keyword arguments.
    """
    own = inspect.signature(function)
    parameters = list(own.parameters.values())[:-1]  # without **options
    for name, entry in _entries(options).items():
        default, kind = entry.__metadata__[0].default, entry.__origin__
        if options is UsingOptions:  # an option that is left out stays as declared
            default, kind = None, kind | None
        one = inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default)
        parameters.append(one.replace(annotation=kind))
    function.__signature__ = own.replace(parameters=parameters)
    if function.__doc__ is None:  # python -OO
        return
    texts = _texts(options)
    if options is UsingOptions:
        texts |= dict.fromkeys(_entries(SharedOptions), "As of ``@task``.")
    listed = "\n".join(f"    {name}: {text}" for name, text in texts.items())
    before, _, after = inspect.cleandoc(function.__doc__).partition("    **options:")
    function.__doc__ = before + listed + "\n" + after.partition("\n")[2]


def _texts(options: type) -> dict[str, str]:
    """Return the docstring of each option, read from this file, because Python does not keep it."""
    try:
        source = inspect.getsource(sys.modules[__name__])
    except OSError:  # installed without its source
        return {}
    found: dict[str, str] = {}
    for kind in (SharedOptions, options):
        _, _, body = source.partition(f"\nclass {kind.__name__}(")
        body = body.partition("\n\n\n")[0]
        for name, text in re.findall(r'^    (\w+): .+?\n    """(.+?)"""', body, re.M | re.S):
            found[name] = text.replace("\n", "\n    ")
    return found
