"""A slot's prepared statements, which its session of PostgreSQL keeps ready.

To plan the finish of an atomic task takes longer than to carry it out. For sessions that are not shared: see
``sessions.keeps_statements``.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

from django_txtasks.database.execute import numbered

# A plan is kept: made while few tasks wait, it would read the whole table when there are many. What the COMMIT may
# still look at, such as deferred foreign keys, is planned as ever.
_BY_INDEX = "SET LOCAL enable_seqscan = off; {execute}; SET LOCAL enable_seqscan TO DEFAULT"
_NO_SUCH, _THERE_ALREADY = "26000", "42P05"


class NotKept(Exception):
    """A session does not know the statement that it was told to keep, so the transaction is lost."""


@dataclass
class _Kept:
    """What one session keeps.

    Attributes:
        forms: of each statement that was asked for, what ``short_form`` says; empty = it was asked for once.
        times_forgotten: how often it was told to keep nothing; each time names are new ones.
    """

    forms: dict[str, str] = field(default_factory=dict)
    times_forgotten: int = 0


_kept: WeakKeyDictionary[Any, _Kept] = WeakKeyDictionary()
"""By psycopg's connections."""
_given_up: set[str] = set()
"""Aliases of which a session did not keep what it was told to."""


def short_form(session: Any, text: str, send: Callable[[str], None]) -> str:
    """Return a statement that does the same; from the second call on the session keeps that ready.

    It is to be the last one of its transaction, but for COMMIT.

    Args:
        session: psycopg's connection, in a transaction.
        text: with parameters as psycopg writes them.
        send: runs a statement in this session.
    """
    kept = _kept.setdefault(session, _Kept())
    if text not in kept.forms:
        kept.forms[text] = ""
        return text
    if not kept.forms[text]:
        sql, parameters = numbered(text)
        name = f"txtasks_{hashlib.sha256(text.encode()).hexdigest()[:16]}"
        name += f"_{kept.times_forgotten}" * bool(kept.times_forgotten)
        send(f"PREPARE {name} AS {sql}")
        places = ", ".join(f"%({parameter})s" for parameter in parameters)
        kept.forms[text] = _BY_INDEX.format(execute=f"EXECUTE {name}({places})")
    return kept.forms[text]


def forget(session: Any) -> None:
    """Forget what a session keeps ready: somebody may have told it to keep nothing."""
    kept = (
        _kept.get(session) if session is not None else None
    )  # None: somebody has closed it meanwhile
    if kept is not None:
        kept.forms.clear()
        kept.times_forgotten += 1


def may_be_used(alias: str) -> bool:
    """Say whether sessions of this alias have kept so far what they were told to."""
    return alias not in _given_up


def give_up_if_missing(alias: str, error: Exception) -> None:
    """Use none any more if a session did not know its statement, or knew it before it was told.

    Raises:
        NotKept: that was it.
    """
    code = getattr(error.__cause__, "sqlstate", None)
    if code in (_NO_SUCH, _THERE_ALREADY) and may_be_used(alias):
        _given_up.add(alias)
        raise NotKept from error
