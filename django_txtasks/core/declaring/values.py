"""Checks of single option values, each of which returns the value in the form that the code reads.

Each check takes the task's name and the option's name, for its errors, and the value. A value that it has
returned, and that was JSON in the meantime, passes it again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any, TypeAlias

from django_txtasks.exceptions import InvalidDeclaration, InvalidOption

Check: TypeAlias = Callable[[str, str, Any], Any]
TextOfCall: TypeAlias = str | Callable[..., str | None]
"""Text, or a function that gets a task's arguments by name and returns text, or None."""

MOST_SNOOZES = 1_000_000
MOST_KEY_CHARACTERS = 200
MOST_NAME_CHARACTERS = 200
LONGEST_SPAN = timedelta(days=36525)


def as_given(name: str, option: str, value: Any) -> Any:
    """Return any value."""
    return value


def from_now(value: Any, option: str) -> Any:
    """Return a number of seconds as a timedelta, and any other value unchanged.

    Raises:
        InvalidOption: a number of more than 30 years, such as a Unix time.
    """
    if type(value) not in (int, float):
        return value
    if not abs(value) < 1e9:
        raise InvalidOption(
            f"{option} is {value!r}. A number is seconds from now on; for a moment in time, use an aware datetime."
        )
    return timedelta(seconds=value)


def moment_of(name: str, option: str, value: Any) -> datetime | timedelta | None:
    """Return a time as an aware datetime, or as a timedelta from the enqueue on.

    Raises:
        InvalidOption: another type, a naive datetime, or a time that a database cannot store.
    """
    if value is None:
        return value
    value = from_now(value, option)
    if isinstance(value, timedelta):
        if abs(value) > LONGEST_SPAN:
            raise InvalidOption(f"{option} is {value}, more than 100 years away.")
        return value
    if not isinstance(value, datetime):
        raise InvalidOption(
            f"{option} is {value!r}; use an aware datetime, a timedelta, or seconds."
        )
    if value.utcoffset() is None:
        raise InvalidOption(
            f"{option} is the naive datetime {value}: in which time zone? Use django.utils.timezone.now() "
            "or make_aware(), or a timedelta."
        )
    if not 1970 <= value.year <= 9000:
        raise InvalidOption(f"{option} is {value}; it must be between the years 1970 and 9000.")
    return value


def delay_of(name: str, option: str, value: Any) -> timedelta | None:
    """Return how long after its enqueue a task expires.

    Raises:
        InvalidDeclaration: neither a timedelta nor seconds, or not more than 0.
    """
    delay = from_now(value, option)
    if delay is None or (isinstance(delay, timedelta) and delay > timedelta(0)):
        return delay
    raise InvalidDeclaration(
        f"{name} has {option}={delay!r}; a declaration takes a timedelta or seconds, more than zero. "
        f"A moment in time belongs to one task: use .using({option}=...)."
    )


def span_of(name: str, option: str, value: Any) -> timedelta | None:
    """Return a span of time as a timedelta.

    Raises:
        InvalidDeclaration: neither a timedelta nor seconds, not more than 0, or more than 100 years.
    """
    span = from_now(value, option)
    if span is None or (isinstance(span, timedelta) and timedelta(0) < span <= LONGEST_SPAN):
        return span
    raise InvalidDeclaration(
        f"{name} has {option}={span!r}; use a timedelta or seconds, more than zero and 100 years at most."
    )


def seconds_of(name: str, option: str, value: Any) -> float | None:
    """Return a time limit in seconds.

    Raises:
        InvalidDeclaration: neither a timedelta nor seconds, not more than 0, or more than 30 years.
    """
    if value is None:
        return None
    seconds = value.total_seconds() if isinstance(value, timedelta) else value
    if not is_time_limit(seconds):
        raise InvalidDeclaration(
            f"{name} has {option}={value!r}; use a timedelta or a number of seconds, more than 0."
        )
    return float(seconds)


def is_time_limit(value: Any) -> bool:
    """Return whether a value is a number of seconds that can limit an attempt."""
    return type(value) in (int, float) and 0 < value < 1e9


def priority_of(name: str, option: str, value: Any) -> int:
    """Return a priority.

    Raises:
        InvalidOption: not a whole number from -100 to 100.
    """
    if not isinstance(value, int) or isinstance(value, bool) or not -100 <= value <= 100:
        raise InvalidOption(f"{name} has {option}={value!r}; it must be from -100 to 100.")
    return value


def limit_of(name: str, option: str, value: Any) -> int:
    """Return a number of attempts or crashes.

    Raises:
        InvalidDeclaration: not a whole number from 1 to 32767.
    """
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= 32767:
        raise InvalidDeclaration(f"{name} has {option}={value!r}; it must be from 1 to 32767.")
    return value


def snoozes_of(name: str, option: str, value: Any) -> int:
    """Return a number of snoozes.

    Raises:
        InvalidDeclaration: not a whole number from 0 to 1,000,000.
    """
    if type(value) is not int or not 0 <= value <= MOST_SNOOZES:
        raise InvalidDeclaration(
            f"{name} has {option}={value!r}; it must be from 0 to {MOST_SNOOZES:,}."
        )
    return value


def backoff_of(name: str, option: str, value: Any) -> Any:
    """Return a function that computes waits between attempts.

    Raises:
        InvalidDeclaration: not callable.
    """
    if value is None or callable(value):
        return value
    raise InvalidDeclaration(
        f"{name} has {option}={value!r}; use a function of (failures, error) that returns "
        "seconds or a timedelta."
    )


def key_of(name: str, option: str, value: Any) -> Any:
    """Return a key, or the function of a task's arguments that makes it.

    Raises:
        InvalidDeclaration: neither None, nor a function, nor printable text of 1 to 200 characters.
    """
    if value is None or callable(value):
        return value
    if (
        not isinstance(value, str)
        or not 0 < len(value) <= MOST_KEY_CHARACTERS
        or not value.isprintable()
    ):
        raise InvalidDeclaration(
            f"{name} has {option}={value!r}; use printable text of 1 to {MOST_KEY_CHARACTERS} characters, or a "
            "function of the task's arguments that returns it."
        )
    return value


def names_of(name: str, option: str, value: Any) -> tuple[str, ...]:
    """Return earlier names of a task function.

    Raises:
        InvalidDeclaration: not a list of different dotted names, or the function's present name is one of them.
    """
    is_list = isinstance(value, Sequence) and not isinstance(value, str)
    if not is_list or not all(map(_is_dotted_name, value)):
        raise InvalidDeclaration(
            f"{name} has {option}={value!r}; use a list of earlier names of the function, module and function, "
            f"such as {option}=['shop.tasks.old']."
        )
    if name in value or len(set(value)) < len(value):
        raise InvalidDeclaration(
            f"{name} has {option}={value!r}; name each earlier name once, and leave the present one out."
        )
    return tuple(value)


def _is_dotted_name(value: Any) -> bool:
    return (
        isinstance(value, str)
        and "." in value
        and len(value) <= MOST_NAME_CHARACTERS
        and all(part.isidentifier() for part in value.split("."))
    )
