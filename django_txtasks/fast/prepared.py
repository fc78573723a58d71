"""Prepared statements in a slot's PostgreSQL session.

Planning the finish of an atomic task takes longer than running it. Only sessions that are not shared prepare
statements: see ``sessions.keeps_statements``.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

from django_txtasks.database.errors import NothingDone
from django_txtasks.database.execute import numbered

# The session keeps the plan. A plan made for few waiting tasks would read the whole table when there are many, so
# it must use the index. Statements that the COMMIT runs, such as checks of deferred foreign keys, are planned as
# usual.
_BY_INDEX = "SET LOCAL enable_seqscan = off; {execute}; SET LOCAL enable_seqscan TO DEFAULT"
_NO_SUCH, _THERE_ALREADY = "26000", "42P05"


class NotKept(NothingDone):
    """The session does not know its prepared statement, so the transaction is lost."""


@dataclass
class _Kept:
    """The prepared statements of one session.

    Attributes:
        forms: the short form by statement; empty = the statement was requested once.
        times_forgotten: number of times that all were forgotten; after each time, statements get new names.
    """

    forms: dict[str, str] = field(default_factory=dict)
    times_forgotten: int = 0


_kept: WeakKeyDictionary[Any, _Kept] = WeakKeyDictionary()
"""By connection of psycopg."""
_given_up: set[str] = set()
"""Aliases of databases whose sessions have lost a prepared statement."""


def short_form(session: Any, text: str, send: Callable[[str], None]) -> str:
    """Return a statement with the same effect. From the second call on, it runs a prepared statement.

    It must be the last statement of its transaction before COMMIT.

    Args:
        session: psycopg's connection, in a transaction.
        text: the statement, with parameters in psycopg's form.
        send: a function that runs a statement in this session.
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
    """Forget the prepared statements of a session, because a task may have deallocated them."""
    kept = (
        _kept.get(session) if session is not None else None
    )  # None: the task has closed the connection
    if kept is not None:
        kept.forms.clear()
        kept.times_forgotten += 1


def may_be_used(alias: str) -> bool:
    """Say whether no session of this alias has lost a prepared statement so far."""
    return alias not in _given_up


def give_up_if_missing(alias: str, error: Exception) -> None:
    """Stop preparing for this alias if the session has lost its statement, or had one of that name before.

    Raises:
        NotKept: the error was one of these.
    """
    code = getattr(error.__cause__, "sqlstate", None)
    if code in (_NO_SUCH, _THERE_ALREADY) and may_be_used(alias):
        _given_up.add(alias)
        raise NotKept from error
