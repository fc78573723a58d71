"""The batch that what is enqueued now is a member of: each belongs to a connection, in whose transaction it is."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper

from django_txtasks.exceptions import InvalidOption

_open: WeakKeyDictionary[BaseDatabaseWrapper, uuid.UUID] = WeakKeyDictionary()
"""A connection belongs to one thread: another thread, whose tasks would not commit with the batch, adds none."""


class Opener(NamedTuple):
    """The task that runs here, which may open batches.

    Attributes:
        alias: of the database in which its row is.
        batch: of which it is a member, as the database gives it; None = of none.
    """

    alias: str
    task_id: uuid.UUID
    batch: Any


running: ContextVar[Opener | None] = ContextVar("txtasks_running", default=None)
"""The task whose attempt this context belongs to; whoever runs an attempt sets it."""


@contextmanager
def run_by(opener: Opener) -> Iterator[None]:
    """Make this task the one that runs, inside the block."""
    token = running.set(opener)
    try:
        yield
    finally:
        running.reset(token)


def opener_at(alias: str) -> Opener | None:
    """Return the task that runs here, if its row is in this database, so that the two can be seen together."""
    opener = running.get()
    return opener if opener is not None and opener.alias == alias else None


def is_any() -> bool:
    """Say whether some thread of this process has a batch open."""
    return bool(_open)


def batch_at(alias: str) -> uuid.UUID | None:
    """Return the batch that is open in this thread; None = none is.

    Raises:
        InvalidOption: it is one of another database, so that the two do not commit together.
    """
    for connection in connections.all(initialized_only=True):
        batch = _open.get(connection)
        if batch is not None and connection.alias != alias:
            raise InvalidOption(
                f"A task for the database {alias!r} was enqueued inside a batch of {connection.alias!r}: they do "
                f"not commit together. Say batch(using={alias!r}), or enqueue the task outside of the batch."
            )
        if batch is not None:
            return batch
    return None


@contextmanager
def opened(alias: str, batch: uuid.UUID) -> Iterator[None]:
    """Make what this thread enqueues in the block a member of a batch, whose transaction is open."""
    connection = connections[alias]
    _open[connection] = batch
    try:
        yield
    finally:
        del _open[connection]


def refuse_second() -> None:
    """Raise InvalidOption if this thread has a batch open."""
    if _open and any(one in _open for one in connections.all(initialized_only=True)):
        raise InvalidOption(
            "A batch was opened inside another one: batches do not nest. Close the first one before, or let a "
            "member of it, when it runs, open its own."
        )
