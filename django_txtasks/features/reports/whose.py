"""The owner of a row: who may run it, by its queue and its function. All that reads rows for people asks here.

* In a queue of ``TXTASKS["hand_over"]``, drains take the row, whatever its function.
* Else, if this code declares the function, workers of this package run it.
* Else, if a living worker in another language names the function and serves the queue, this worker runs it.
* Else its owner is unknown.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from django.db.models import TextField
from django.db.models.functions import Cast

from django_txtasks.conf import get_config
from django_txtasks.core.declaring import registry
from django_txtasks.core.rows.workers import DRAIN_MARK, texts_in
from django_txtasks.database import processes
from django_txtasks.models import DatabaseNow, Worker

MAX_WORKERS = 1000
"""Number of workers that are read."""
_OURS = ("@", __name__.partition(".")[0])
"""Beginnings of names in the rows of this package's workers: marks, and task functions of the package."""


class Whose(enum.Enum):
    """The owner of a row."""

    HANDED = "handed"
    """Another system, to which drains hand it over."""
    OURS = "ours"
    """Workers of this package: this code declares its function."""
    FOREIGN = "foreign"
    """A living worker in another language."""
    UNKNOWN = "unknown"
    """Code of another release, or a worker that does not live now, may have its function."""


@dataclass(frozen=True)
class LivingWorker:
    """The row of a worker or drain whose lease has not run out.

    Attributes:
        names: its task functions, with marks; empty: a release that does not list them.
        is_foreign: True if it is a worker in another language.
    """

    queues: frozenset[str]
    names: frozenset[str]
    is_foreign: bool = False

    @property
    def is_drain(self) -> bool:
        """True if it hands over rows, and runs none."""
        return DRAIN_MARK in self.names

    def takes(self, name: str) -> bool:
        """Return True if it takes rows of this function from its queues."""
        return not self.names or self.is_drain or name in self.names


@dataclass(frozen=True)
class Living:
    """The living workers and drains of a database."""

    workers: tuple[LivingWorker, ...] = ()

    @cached_property
    def drained(self) -> frozenset[str]:
        """The queues that a living drain serves."""
        return frozenset(queue for one in self.workers if one.is_drain for queue in one.queues)

    @cached_property
    def foreign(self) -> dict[str, set[str]]:
        """The functions that only workers in other languages run, by queue."""
        found: dict[str, set[str]] = {}
        for one in self.workers:
            for queue in one.queues if one.is_foreign else ():
                theirs = {name for name in one.names if self.whose(queue, name) is Whose.FOREIGN}
                found.setdefault(queue, set()).update(theirs)
        return found

    def whose(self, queue: str, name: str) -> Whose:
        """Return who may run the rows of this function in this queue."""
        if is_handed(queue):
            return Whose.HANDED
        if registry.find(name) is not None:
            return Whose.OURS
        is_foreign = any(
            one.is_foreign and queue in one.queues and one.takes(name) for one in self.workers
        )
        return Whose.FOREIGN if is_foreign else Whose.UNKNOWN


def is_handed(queue: str) -> bool:
    """Return True if the rows of this queue go to another system."""
    return queue in get_config().hand_over


def is_foreign(names: Iterable[str], sessions: str) -> bool:
    """Return True if the row of a worker is that of a program in another language.

    The rows of this package's workers have a mark or a function of the package among the names, or the mark of
    their process among the sessions.

    Args:
        sessions: the column as text.
    """
    known = list(names)
    is_ours = any(one.startswith(_OURS) for one in known) or f'"{processes.PREFIX}' in sessions
    return bool(known) and not is_ours


def living(alias: str) -> Living:
    """Read the living workers and drains, at most ``MAX_WORKERS``."""
    columns = {
        f"{name}_text": Cast(name, TextField()) for name in ("queues", "task_names", "sessions")
    }
    every: Any = Worker.objects.using(alias).filter(lost=False)
    rows = every.annotate(now=DatabaseNow(), **columns)
    found = []
    for row in rows.only("seen_at", "lease")[:MAX_WORKERS]:
        if not row.is_silent(row.now):
            names = texts_in(row.task_names_text)
            foreign = is_foreign(names, row.sessions_text or "")
            found.append(
                LivingWorker(frozenset(texts_in(row.queues_text)), frozenset(names), foreign)
            )
    return Living(tuple(found))
