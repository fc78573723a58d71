"""Calls of async tasks that wait while other tasks hold all shared threads: who waits, and who holds them."""

from __future__ import annotations

import os
import socket
from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from django_txtasks import signals
from django_txtasks.features.progress.notes import (
    HELD_FROM,
    MOST_NOTE_CHARACTERS,
    THREADS,
    Progress,
    ProgressNotes,
)

LONG_SECONDS = 5.0
"""Seconds that a call waits for a thread before the log has a warning."""
TELL_EVERY_SECONDS = 60.0
"""Seconds between two such log lines."""
ROUND_SECONDS = 5.0
"""The row has the length of a wait in steps of these seconds, so that it is not written each second."""
MOST_NAMES = 2
"""Number of functions that a text names."""


class Waits(NamedTuple):
    """The calls that wait for a thread at one moment.

    Attributes:
        waiting: the task function of each attempt with a waiting call, the longest wait first.
        holding: the task function of each attempt that has a thread.
        threads: number of threads.
        pinned: number of these that stay with one attempt.
        seconds: length of the longest wait.
        held: seconds in which calls wait, and no thread has changed its attempt.
    """

    waiting: list[str]
    holding: list[str]
    threads: int
    pinned: int
    seconds: float
    held: float


class WaitNotes:
    """Tells people of long waits: in the log once a minute, and in the worker's row while all threads are held."""

    def __init__(self, notes: ProgressNotes) -> None:
        self._notes = notes
        self._key = f"{THREADS}{socket.gethostname()} pid {os.getpid()}"
        self._told_at = -TELL_EVERY_SECONDS

    def tell(self, waits: Waits, now: float) -> None:
        """Report these waits where they are long.

        Args:
            now: the time, by ``time.monotonic()``.
        """
        self._log(waits, now)
        if waits.held >= LONG_SECONDS:
            seconds = waits.seconds // ROUND_SECONDS * ROUND_SECONDS
            names = f"{_short(waits.holding)}{HELD_FROM}{_short(waits.waiting)}"
            self._notes.note(self._key, Progress(seconds, len(waits.waiting), names))
        elif self._notes.has(self._key):
            self._notes.forget(self._key)

    def _log(self, waits: Waits, now: float) -> None:
        if waits.seconds >= LONG_SECONDS and now >= self._told_at + TELL_EVERY_SECONDS:
            self._told_at = now
            signals.threads_awaited.emit(
                count=len(waits.waiting),
                threads=waits.threads,
                pinned=waits.pinned,
                seconds=waits.seconds,
                waiting=_names(waits.waiting),
                holding=_names(waits.holding),
            )


def _names(functions: Iterable[str]) -> str:
    """Return the most frequent functions with their numbers: ``shop.tasks.export (6), shop.tasks.ask (2), …``."""
    counts = Counter(functions)
    shown = [f"{name} ({number})" for name, number in counts.most_common(MOST_NAMES)]
    return ", ".join([*shown, "…"] if len(counts) > MOST_NAMES else shown)


def _short(functions: Iterable[str]) -> str:
    """Return the names so short that a note has room for two such texts."""
    names, most = _names(functions), (MOST_NOTE_CHARACTERS - len(HELD_FROM)) // 2
    return names if len(names) <= most else f"{names[: most - 1]}…"
