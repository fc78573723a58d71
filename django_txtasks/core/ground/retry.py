"""The wait before the next attempt. No clock, no database."""

from __future__ import annotations

from datetime import timedelta
from random import SystemRandom

from django_txtasks.exceptions import InvalidArguments, Reject

jitter = SystemRandom().uniform
"""A random number between two numbers, so that tasks that failed together are not repeated together.

It comes from the system: a project's ``random.seed()`` has no effect on it, and the project's sequence is
unchanged.
"""


def backoff(failures: int, *, base: timedelta, ceiling: timedelta) -> timedelta:
    """Return the wait after a failed attempt.

    The wait doubles with each failure, from ``base`` up to ``ceiling``. A random factor from 0.5 to 1 keeps
    tasks that failed together from returning together ("equal jitter": M. Brooker, "Exponential Backoff and
    Jitter", AWS Architecture Blog, 2015).

    Args:
        failures: number of failed attempts so far, from 1 on.

    Raises:
        ValueError: ``failures`` is below 1.
    """
    if failures < 1:
        raise ValueError(f"backoff() follows a failure: failures is {failures}, it starts at 1")
    doublings = min(failures - 1, 62)  # 2**62 s is beyond any ceiling; larger powers overflow
    full = min(base.total_seconds() * 2**doublings, ceiling.total_seconds())
    return timedelta(seconds=full * jitter(0.5, 1))


def seconds_from(asked: timedelta | float) -> timedelta:
    """Return the value of a task's ``backoff`` function as a timedelta.

    Raises:
        ValueError, TypeError: neither seconds nor a timedelta, or more than 30 years.
    """
    seconds = asked.total_seconds() if isinstance(asked, timedelta) else asked
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)):
        raise TypeError(f"backoff returned {asked!r}; it returns seconds or a timedelta")
    if not 0 <= seconds < 1e9:
        raise ValueError(f"backoff returned {asked!r}; it returns from 0 seconds to 30 years")
    return timedelta(seconds=seconds)


def is_last(error: BaseException, *, failures: int, max_attempts: int) -> bool:
    """Return whether this failure is the last attempt.

    Args:
        failures: number of attempts that failed before.
    """
    hopeless = isinstance(
        error, (Reject, InvalidArguments)
    )  # another attempt would raise the same error
    return hopeless or failures + 1 >= max_attempts
