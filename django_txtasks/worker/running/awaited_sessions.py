"""Threads that wait for a database that does not answer: the loop in its turn, or that of a claimed task which
has not begun.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from django_txtasks import signals
from django_txtasks.signals.logs import current

LONG_SECONDS = 5.0
"""Seconds that an attempt waits for its session before the log says so, and the supervisor hears of it."""
_waiting: dict[int, _Wait] = {}  # by thread


@dataclass
class _Wait:
    """One wait of one thread.

    Attributes:
        facts: of its attempt; empty for the loop.
        is_told: True if the log has it.
    """

    alias: str
    facts: dict[str, Any]
    since: float
    is_told: bool = False


@contextmanager
def awaiting(alias: str) -> Iterator[None]:
    """Note that this thread, or its attempt, waits for its session inside the block."""
    me = threading.get_ident()
    _waiting[me] = _Wait(alias, current.get() or {}, time.monotonic())
    try:
        yield
    finally:
        del _waiting[me]


def tell_long_waits() -> None:
    """Log each attempt once that has waited for its session for LONG_SECONDS. The loop calls it."""
    if not _waiting:
        return
    now = time.monotonic()
    for wait in list(_waiting.values()):
        seconds = now - wait.since
        if wait.facts and not wait.is_told and seconds >= LONG_SECONDS:
            wait.is_told = True
            signals.session_awaited.emit(**wait.facts, database=wait.alias, seconds=seconds)


def are_long(alias: str) -> bool:
    """Return True if a thread has waited for its session in this database for LONG_SECONDS."""
    before = time.monotonic() - LONG_SECONDS
    return any(wait.alias == alias and wait.since <= before for wait in list(_waiting.values()))
