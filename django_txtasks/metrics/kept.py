"""The values that this process has read a moment ago, so that many scrapes cost the database one read."""

from __future__ import annotations

import threading
import time
from typing import NamedTuple

from django_txtasks.core.ground.forks import register_at_fork
from django_txtasks.database.errors import TookTooLong
from django_txtasks.database.transactions import is_in_test_case
from django_txtasks.metrics.samples import Sample, samples_of

MAX_AGE_SECONDS = 15.0
"""Age from which values are read anew."""
WAIT_SECONDS = 5.0
"""Longest time that a request waits for the read of another, so that a slow database keeps few threads waiting."""


class _Kept(NamedTuple):
    samples: list[Sample]
    read_at: float


_kept: dict[str, _Kept] = {}
_reading: dict[str, threading.Lock] = {}


def forget() -> None:
    """Forget all values, and locks that a thread of the parent may hold."""
    _kept.clear()
    _reading.clear()


register_at_fork(after_in_child=forget)


def samples(alias: str) -> list[Sample]:
    """Return the values of a database, at most ``MAX_AGE_SECONDS`` old. One thread reads while the others wait.

    Raises:
        DatabaseError: the database cannot be reached, or did not answer in time.
    """
    if is_in_test_case(alias):
        return list(samples_of(alias))
    lock = _reading.setdefault(alias, threading.Lock())
    if not lock.acquire(timeout=WAIT_SECONDS):
        raise TookTooLong("another request still reads the metrics")
    try:
        now = time.monotonic()
        last = _kept.get(alias)
        if last is None or now - last.read_at >= MAX_AGE_SECONDS:
            last = _kept[alias] = _Kept(list(samples_of(alias)), now)
        return last.samples
    finally:
        lock.release()
