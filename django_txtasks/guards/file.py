"""A replaced file of SQLite: another file, such as a backup, was given its name while it was open.

A process that has the old file open goes on with it, although it has no name any more; in WAL mode, SQLite reports
nothing. A replacement is not detected if the name in the settings is a URI.
"""

from __future__ import annotations

import os
from typing import Any
from weakref import WeakKeyDictionary

from django.db import OperationalError, connections
from django.db.backends.base.base import BaseDatabaseWrapper

REPLACED = "its file was replaced by another one, which is opened now"
_opened: WeakKeyDictionary[BaseDatabaseWrapper, tuple[Any, tuple[int, int] | None]] = (
    WeakKeyDictionary()
)
"""By connection of Django: the driver's connection, and the file that it had first."""
_replaced: list[str] = []
"""The alias of each file that was found replaced, once for each replacement."""


def number_replaced() -> int:
    """Return how often this process has found a file replaced. Other threads may still have the old one open."""
    return len(_replaced)


def is_replaced(wrapper: Any) -> bool:
    """Say whether the file of an open connection is no longer the file with its name.

    The first call for a connection notes its file, so make that call right after the connection was opened.
    """
    if wrapper.vendor != "sqlite" or wrapper.connection is None:
        return False
    raw, first = _opened.get(wrapper, (None, None))
    file = _file_of(wrapper)
    if raw is not wrapper.connection or first is None:
        _opened[wrapper] = (wrapper.connection, file)
        return False
    return file is not None and file != first


def refuse_replaced(alias: str) -> None:
    """Close this thread's connection if its file was replaced; the next statement opens the new one.

    Raises:
        OperationalError: the file was replaced.
    """
    wrapper = connections[alias]
    if wrapper.vendor == "sqlite":
        wrapper.ensure_connection()
        if is_replaced(wrapper):
            _replaced.append(alias)
            wrapper.close()
            raise OperationalError(REPLACED)


def _file_of(wrapper: Any) -> tuple[int, int] | None:
    """Return device and inode of the file; None = there is no such file, or the database is in memory."""
    try:
        found = os.stat(wrapper.settings_dict["NAME"])
    except (OSError, TypeError, ValueError):
        return None
    return found.st_dev, found.st_ino
