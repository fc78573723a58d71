"""A slot's prepared statements, which its session of PostgreSQL keeps ready.

To plan the finish of an atomic task takes longer than to carry it out. For sessions that are not shared: see
``sessions.keeps_statements``.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

from django_txtasks.lifecycle.execute import numbered

_BY_INDEX = "SET LOCAL enable_seqscan = off"
"""A plan is kept: made while few tasks wait, it would read the whole table when there are many."""
_known: WeakKeyDictionary[Any, dict[str, str]] = WeakKeyDictionary()
"""Of psycopg's connections: what was asked of ``short_form``, and what it then said; empty = it was asked once."""
_numbers = itertools.count(1)


def short_form(session: Any, text: str, send: Callable[[str], None]) -> str:
    """Return a statement that does the same; from the second call on the session keeps that ready.

    It is to be the last one of its transaction, but for COMMIT.

    Args:
        session: psycopg's connection, in a transaction.
        text: with parameters as psycopg writes them.
        send: runs a statement in this session.
    """
    known = _known.setdefault(session, {})
    if text not in known:
        known[text] = ""
        return text
    if not known[text]:
        sql, parameters = numbered(text)
        name = f"txtasks_{next(_numbers)}"
        send(f"PREPARE {name} AS {sql}")
        places = ", ".join(f"%({parameter})s" for parameter in parameters)
        known[text] = f"{_BY_INDEX}; EXECUTE {name}({places})"
    return known[text]


def forget(session: Any) -> None:
    """Forget what a session keeps ready: somebody may have told it to keep nothing."""
    if session is not None:  # somebody has closed it meanwhile
        _known.pop(session, None)
