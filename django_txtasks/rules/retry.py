"""The wait before the next attempt. No clock, no database."""

from __future__ import annotations

from datetime import timedelta
from random import SystemRandom

from django_txtasks.exceptions import InvalidArguments, Reject

jitter = SystemRandom().uniform
"""A number between two, so that what happened together does not happen together again.

From the system: a project's ``random.seed()`` makes no two processes alike, and its numbers stay its own.
"""


def backoff(failures: int, *, base: timedelta, ceiling: timedelta) -> timedelta:
    """Return how long to wait after a failed attempt.

    Doubles from ``base`` up to ``ceiling``, then keeps a random half to all of it, so that
    tasks that failed together don't return together ("equal jitter": M. Brooker,
    "Exponential Backoff and Jitter", AWS Architecture Blog, 2015).

    Args:
        failures: how many attempts have failed so far; the first failure is 1.

    Raises:
        ValueError: ``failures`` is below 1.
    """
    if failures < 1:
        raise ValueError(f"backoff() follows a failure: failures is {failures}, it starts at 1")
    doublings = min(failures - 1, 62)  # 2**62 s is beyond any ceiling; larger powers overflow
    full = min(base.total_seconds() * 2**doublings, ceiling.total_seconds())
    return timedelta(seconds=full * jitter(0.5, 1))


def seconds_from(asked: timedelta | float) -> timedelta:
    """Return what a task's own ``backoff`` has answered.

    Raises:
        ValueError, TypeError: it is no wait, or one of more than 30 years.
    """
    seconds = asked.total_seconds() if isinstance(asked, timedelta) else asked
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)):
        raise TypeError(f"backoff returned {asked!r}; it returns seconds or a timedelta")
    if not 0 <= seconds < 1e9:
        raise ValueError(f"backoff returned {asked!r}; it returns from 0 seconds to 30 years")
    return timedelta(seconds=seconds)


def is_last(error: BaseException, *, failures: int, max_attempts: int) -> bool:
    """Say whether no further attempt follows this failure.

    Args:
        failures: how many attempts had failed before.
    """
    hopeless = isinstance(error, (Reject, InvalidArguments))  # another attempt would meet the same
    return hopeless or failures + 1 >= max_attempts
