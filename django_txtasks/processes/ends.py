"""The ends of child processes, told to the process that replaces them.

Only the supervisor sees how a child ended, and it has no connection to a database. So it puts the last ends into
its environment, which both a copy and a new program get. A worker writes them down when it has registered.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

from django.db import DatabaseError, InterfaceError, connections

from django_txtasks.core.rows import workers
from django_txtasks.core.working.parts import Part, WorkerContext
from django_txtasks.database.transactions import own_transaction

ENDS = "TXTASKS_ENDS"
MOST = 50
"""Number of ends that are remembered."""


def ended(pid: int, code: int) -> None:
    """Remember the exit code of a child; negative = a signal."""
    before = [one for one in _entries() if not one.startswith(f"{pid}:")]
    os.environ[ENDS] = " ".join([*before, f"{pid}:{code}"][-MOST:])


def take() -> dict[int, str]:
    """Return how earlier children of this supervisor ended, by process id, such as ``signal 9``; once."""
    entries = _entries()
    os.environ.pop(ENDS, None)  # not for processes that tasks start
    return {int(pid): _how(int(code)) for pid, code in (one.split(":") for one in entries)}


class EndsBefore(Part):
    """Writes down how processes before this one ended. If that fails, it stays unknown."""

    def __init__(self, context: WorkerContext) -> None:
        self._context = context

    def registered(self) -> None:
        """Write the ends before the first claim, because that task may end this process at once."""
        if found := take():
            alias = self._context.alias
            try:
                with own_transaction(alias, limit=self._context.config.lease / 2):
                    workers.note_ends(alias, found)
            except (DatabaseError, InterfaceError):
                connections[alias].close()


def parts(context: WorkerContext) -> Iterable[Part]:
    """Return the part for one worker."""
    return [EndsBefore(context)]


def _entries() -> list[str]:
    return os.environ.get(ENDS, "").split()


def _how(code: int) -> str:
    return f"signal {-code}" if code < 0 else f"exit code {code}"
