"""The open batch, to which newly enqueued tasks are added. It belongs to the connection of its transaction."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from weakref import WeakKeyDictionary

from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper

from django_txtasks.core.rows.attempts import Attempt
from django_txtasks.core.rows.running import running
from django_txtasks.exceptions import InvalidOption

_open: WeakKeyDictionary[BaseDatabaseWrapper, uuid.UUID] = WeakKeyDictionary()
"""A connection belongs to one thread. Other threads add no members: their tasks would not commit with it."""


def opener_at(alias: str) -> Attempt | None:
    """Return the attempt that runs here, if its row is in this database, as that of a batch it opens must be."""
    run = running.get()
    return run.attempt if run is not None and run.alias == alias else None


def is_any() -> bool:
    """Say whether any thread of this process has an open batch."""
    return bool(_open)


def batch_at(alias: str) -> uuid.UUID | None:
    """Return the open batch of this thread; None = there is none.

    Raises:
        InvalidOption: the batch is in another database, so the task would not commit together with it.
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
    """Add the tasks that this thread enqueues in the block to a batch, whose transaction is open."""
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
