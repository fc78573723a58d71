"""A replaced file, of SQLite: another one has got its name while it was open, such as a backup.

Whoever has it open goes on with the old one, which has no name any more; in WAL mode SQLite does not say so. Not
noticed where the name is a URI.
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
"""The driver's connection of each of Django's, and which file it was seen with first."""
_replaced: list[str] = []
"""The alias of each file that was found replaced, once for each time."""


def number_replaced() -> int:
    """Return how often this process has found a file replaced: other threads may still have the old one open."""
    return len(_replaced)


def is_replaced(wrapper: Any) -> bool:
    """Say whether an open connection has another file than the one that has its name now.

    The first call for a connection notes which one it has, so it belongs right after it was opened.
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
        OperationalError: it was.
    """
    wrapper = connections[alias]
    if wrapper.vendor == "sqlite":
        wrapper.ensure_connection()
        if is_replaced(wrapper):
            _replaced.append(alias)
            wrapper.close()
            raise OperationalError(REPLACED)


def _file_of(wrapper: Any) -> tuple[int, int] | None:
    """Return device and number of the file of this name; None = there is none, or it is in memory."""
    try:
        found = os.stat(wrapper.settings_dict["NAME"])
    except (OSError, TypeError, ValueError):
        return None
    return found.st_dev, found.st_ino
