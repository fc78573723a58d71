"""The answer that a sender got for one transaction, whatever happens to the database meanwhile."""

from __future__ import annotations

from collections.abc import Callable

from django.db import DatabaseError, InterfaceError, connection, transaction


class RolledBack(Exception):
    """On purpose."""


def promised(write: Callable[[], object], *, roll_back: bool = False) -> str:
    """Write in one transaction of its own.

    Returns:
        ``committed``, ``refused`` (it certainly did not commit), or ``unknown`` (the answer to its
        COMMIT was lost).
    """
    written = False
    try:
        with transaction.atomic():
            write()
            if roll_back:
                raise RolledBack
            written = True
    except RolledBack:
        return "refused"
    except (DatabaseError, InterfaceError):
        connection.close()
        return "unknown" if written else "refused"
    return "committed"
