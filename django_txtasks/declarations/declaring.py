"""From the options of a decorator to a declaration: checked, and without a model.

Decorators run while Django is still loading its apps.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, fields
from datetime import timedelta
from typing import Any

from django_txtasks.declarations import foreign, registry
from django_txtasks.declarations.key_functions import KeyFunction
from django_txtasks.declarations.registry import Declaration, Options
from django_txtasks.exceptions import InvalidDeclaration, InvalidOption, UnknownOption
from django_txtasks.rules.lanes import problem_of_name

MOST_SNOOZES = 1_000_000
MOST_KEY_CHARACTERS = 200
LONGEST_SPAN = timedelta(days=36525)
ONCE_FOR = timedelta(days=7)
"""How long a key of ``once`` is kept where nothing else is said."""
HOOKS = ("compensate", "on_success", "on_retry", "on_failure")
"""Options that name a task function, which one of the arrows enqueues."""
OF_TASK = (
    *(
        "queue_name",
        "priority",
        "max_attempts",
        "max_crashes",
        "atomic",
        "idempotent",
        "takes_context",
    ),
    *("timeout", "expires", "backoff", "max_snoozes", "interruptible"),
    *("unique_key", "keep", "settle", "lane", "once", "once_for"),
    *HOOKS,
)
"""Options of ``@task``."""
OF_USING = tuple(one.name for one in fields(Options))
"""Options of ``using()``."""


@dataclass(frozen=True)
class WithResult:
    """A task function as an ``on_success`` that is called with the result; see ``TaskFunction.with_result``."""

    function: Any
    gets_result: bool = field(default=True, init=False, repr=False)

    @property
    def declaration(self) -> Declaration:
        """That of the function."""
        declaration: Declaration = self.function.declaration
        return declaration

    @property
    def options(self) -> Options:
        """Those of the function."""
        options: Options = self.function.options
        return options


def declaration_of(
    function: Callable[..., Any],
    *,
    name: str,
    timeout: timedelta | float | None,
    expires: timedelta | float | None,
    hooks: Mapping[str, Any],
    settle: timedelta | float | None = None,
    once_for: timedelta | float | None = None,
    **options: Any,
) -> Declaration:
    """Return what was declared of a function.

    Args:
        hooks: task functions, or None, by the option's name.
        options: other fields of ``Declaration``.

    Raises:
        InvalidDeclaration, InvalidOption: a value that cannot work, or options that contradict each other.
    """
    _refuse_name(function, name)
    declaration = Declaration(
        function=function,
        name=name,
        is_async=inspect.iscoroutinefunction(function),
        timeout=seconds_of(timeout, name),
        expires=_expires(expires, name),
        settle=settle_of(settle, name),
        once_for=span_of(once_for, name, "once_for"),
        hooks={
            option: spec_of_hook(hook, option, name)
            for option, hook in hooks.items()
            if hook is not None
        },
        **options,
    )
    _refuse_contradictions(declaration)
    return declaration


def _refuse_name(function: Callable[..., Any], name: str) -> None:
    if len(name) > 200:
        raise InvalidDeclaration(
            f"The task name {name!r} has more than 200 characters. Shorten it."
        )
    if function.__module__ == "__main__":
        raise InvalidDeclaration(
            f"@task was used on {function.__name__} in a script: Python calls the module that it was started with "
            f"'__main__', so the task would be {name!r} here, as in every script, and no worker would know it. "
            "Move the function to a module of an installed app, such as its tasks.py, and import it from there."
        )


def refuse_unknown(where: str, given: Collection[str], known: Collection[str] = OF_TASK) -> None:
    """Raise UnknownOption if options were given that ``where`` does not have; it has the known ones."""
    for name in given:
        if name in OF_USING:
            more = f"It is said of one task: fn.using({name}=…).enqueue(…)."
        elif name in OF_TASK:
            more = f"It is declared with the function: @task({name}=…)."
        else:
            more = foreign.about_option(name, known)
        raise UnknownOption(f"{where} has no option {name!r}. {more}")


def from_now(value: Any, name: str) -> Any:
    """Return a number of seconds as a timedelta, and anything else as it is.

    Raises:
        InvalidOption: a number of more than 30 years, such as a Unix time.
    """
    if type(value) not in (int, float):
        return value
    if not abs(value) < 1e9:
        raise InvalidOption(
            f"{name} is {value!r}. A number is seconds from now on; for a moment in time, use an aware datetime."
        )
    return timedelta(seconds=value)


def check_priority(priority: Any, name: str) -> None:
    """Raise InvalidOption unless it is from -100 to 100."""
    if not isinstance(priority, int) or isinstance(priority, bool) or not -100 <= priority <= 100:
        raise InvalidOption(f"{name} has priority={priority!r}; it must be from -100 to 100.")


def _check_uniqueness(declaration: Declaration) -> None:
    name, key = declaration.name, declaration.unique_key
    check_unique_key(key, name)
    if declaration.keep not in ("newest", "oldest"):
        raise InvalidDeclaration(
            f"{name} has keep={declaration.keep!r}; it is 'newest' or 'oldest': whose arguments a run has that "
            "stands for several."
        )
    if key is None and (declaration.keep != "newest" or declaration.settle is not None):
        raise InvalidDeclaration(
            f"{name} has keep= or settle= without unique_key=: say which of its tasks are the same."
        )
    if key is not None and "compensate" in declaration.hooks and declaration.keep != "oldest":
        raise InvalidDeclaration(
            f"{name} has compensate= and unique_key=: what is compensated has to be what ran. Say keep='oldest'."
        )


def check_unique_key(key: Any, name: str) -> None:
    """Raise InvalidDeclaration unless it is None, text that can be a key, or a function."""
    check_text_of_call(key, name, "unique_key")


def check_text_of_call(key: Any, name: str, option: str) -> None:
    """Raise InvalidDeclaration unless this option is None, text that can be a key, or a function."""
    if key is None or callable(key):
        return
    if not isinstance(key, str) or not 0 < len(key) <= MOST_KEY_CHARACTERS or not key.isprintable():
        raise InvalidDeclaration(
            f"{name} has {option}={key!r}; use printable text of 1 to {MOST_KEY_CHARACTERS} characters, or a "
            "function of the task's arguments that returns it."
        )


def by_name(text: Any, declaration: Declaration, option: str) -> Any:
    """Return an option's text as it is, and a key function as what calls it with the task's arguments by name.

    Raises:
        InvalidDeclaration: the function names what the task does not have.
    """
    if not callable(text):
        return text
    return KeyFunction(text, declaration.signature, f"{declaration.name} has {option}=, which")


def check_lane(lane: Any, name: str) -> None:
    """Raise InvalidDeclaration unless it is None, text that can name a lane, or a function."""
    if lane is None or callable(lane):
        return
    if problem := problem_of_name(lane):
        raise InvalidDeclaration(
            f"{name} has lane={lane!r}: {problem}, or a function of the task's arguments that returns it."
        )


def settle_of(settle: Any, name: str) -> timedelta | None:
    """Return the span of time in which tasks of a key settle.

    Raises:
        InvalidDeclaration: it is none.
    """
    return span_of(settle, name, "settle")


def span_of(span: Any, name: str, option: str) -> timedelta | None:
    """Return a span of time as a timedelta.

    Raises:
        InvalidDeclaration: it is none.
    """
    span = from_now(span, option)
    if span is not None and not (
        isinstance(span, timedelta) and timedelta(0) < span <= LONGEST_SPAN
    ):
        raise InvalidDeclaration(
            f"{name} has {option}={span!r}; use a timedelta or seconds, more than zero and 100 years at most."
        )
    return span


def check_limit(option: str, value: Any, name: str) -> None:
    """Raise InvalidDeclaration unless it is a number of attempts or crashes that a row can have."""
    if not isinstance(value, int) or not 1 <= value <= 32767:
        raise InvalidDeclaration(f"{name} has {option}={value!r}; it must be from 1 to 32767.")


def seconds_of(timeout: Any, name: str) -> float | None:
    """Return a time limit in seconds.

    Raises:
        InvalidDeclaration: it is none.
    """
    if timeout is None:
        return None
    seconds = timeout.total_seconds() if isinstance(timeout, timedelta) else timeout
    if not registry.is_time_limit(seconds):
        raise InvalidDeclaration(
            f"{name} has timeout={timeout!r}; use a timedelta or a number of seconds, more than 0."
        )
    return float(seconds)


def _expires(expires: Any, name: str) -> timedelta | None:
    expires = from_now(expires, "expires")
    if expires is not None and not (isinstance(expires, timedelta) and expires > timedelta(0)):
        raise InvalidDeclaration(
            f"{name} has expires={expires!r}; a declaration takes a timedelta or seconds, more than zero. "
            "A moment in time belongs to one task: use .using(expires=...)."
        )
    return expires


def spec_of_hook(hook: Any, option: str, name: str) -> dict[str, Any]:
    """Return what a row says of the task function that is to be enqueued for an arrow.

    Args:
        hook: a task function, or for ``on_success`` also its ``with_result()``.

    Raises:
        InvalidDeclaration: it is none, or has options of its own.
    """
    gets_result = getattr(hook, "gets_result", False)
    declaration = getattr(hook, "declaration", None)
    if not isinstance(declaration, Declaration):
        raise InvalidDeclaration(
            f"{name} has {option}={hook!r}, which is no task function. Declare it with @task, before {name}."
        )
    if hook.options != Options():
        raise InvalidDeclaration(
            f"{name} has {option}={hook!r} with using(): a hook is enqueued as it was declared. Declare it so."
        )
    if declaration.once is not None:
        raise InvalidDeclaration(
            f"{name} has {option}={hook!r}, which has once=: a hook is enqueued each time. Enqueue it in a task."
        )
    if callable(declaration.lane):
        raise InvalidDeclaration(
            f"{name} has {option}={hook!r}, whose lane is a function of its arguments: a hook's lane is text."
        )
    if not gets_result:
        return declaration.task_spec
    _check_result_of(declaration, option, name)
    return {**declaration.task_spec, "with_result": True}


def _check_result_of(declaration: Declaration, option: str, name: str) -> None:
    """Refuse a hook with the result where there is none, or that could not be called with it."""
    if option != "on_success":
        raise InvalidDeclaration(
            f"{name} has {option}={declaration.name}.with_result(): only a task that succeeds has a result. Use "
            "it with on_success=."
        )
    if 1 not in declaration.lengths:
        raise InvalidDeclaration(
            f"{name} has on_success={declaration.name}.with_result(), but it cannot be called with one argument, "
            f"the result: {declaration.name}{declaration.signature}."
        )


def _refuse_contradictions(declaration: Declaration) -> None:
    name = declaration.name
    if declaration.atomic and declaration.is_async:
        raise InvalidDeclaration(
            f"{name} is async and atomic=True: Django has no transactions in async code. Make the "
            "function sync, or drop atomic=True and declare it idempotent if it may run again."
        )
    if "compensate" in declaration.hooks and declaration.atomic:
        raise InvalidDeclaration(
            f"{name} has compensate= and atomic=True: a crash rolls back what it did, so there is nothing to "
            "undo. Drop one of them; what may run again and is undone in the end is idempotent=True."
        )
    for option in ("max_attempts", "max_crashes"):
        check_limit(option, getattr(declaration, option), name)
    snoozes = declaration.max_snoozes
    if type(snoozes) is not int or not 0 <= snoozes <= MOST_SNOOZES:
        raise InvalidDeclaration(
            f"{name} has max_snoozes={snoozes!r}; it must be from 0 to {MOST_SNOOZES:,}."
        )
    _check_uniqueness(declaration)
    check_lane(declaration.lane, name)
    check_text_of_call(declaration.once, name, "once")
    for option in ("lane", "unique_key", "once"):
        by_name(getattr(declaration, option), declaration, option)
    if declaration.once is None and declaration.once_for is not None:
        raise InvalidDeclaration(
            f"{name} has once_for= without once=: say which calls are the same."
        )
    if declaration.backoff is not None and not callable(declaration.backoff):
        raise InvalidDeclaration(
            f"{name} has backoff={declaration.backoff!r}; use a function of (failures, error) that returns "
            "seconds or a timedelta."
        )
    check_priority(declaration.priority, name)
    if declaration.takes_context and not inspect.signature(declaration.function).parameters:
        raise InvalidDeclaration(f"{name} has takes_context=True but no parameter to take it.")
