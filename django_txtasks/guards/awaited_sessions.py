"""Threads that wait for a database that does not answer: the loop in its turn, or that of a claimed task which
has not begun.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from django_txtasks import signals
from django_txtasks.core.working.parts import Part, WorkerContext
from django_txtasks.core.working.running.limits import NEVER
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


class LongWaits(Part):
    """Logs the attempts of a worker that wait long for their sessions."""

    def __init__(self, alias: str) -> None:
        self._alias = alias
        self.looks = (self,)

    @property
    def next(self) -> float:
        """Time of the next look, by ``time.monotonic()``."""
        waits = [one.since for one in list(_waiting.values()) if one.facts and not one.is_told]
        return min(waits) + LONG_SECONDS if waits else NEVER

    def look(self) -> bool:
        """Log the attempts that have waited for long. Return False: this look finds no work."""
        tell_long_waits()
        return False

    @property
    def lacks_session(self) -> bool:
        """True if a thread waits long for its session."""
        return are_long(self._alias)


def parts(context: WorkerContext) -> Iterable[Part]:
    """Return the part for one worker."""
    return [LongWaits(context.alias)]


def tell_long_waits() -> None:
    """Log each attempt once that has waited for its session for LONG_SECONDS. ``LongWaits`` calls it."""
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
