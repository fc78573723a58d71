"""Statements that leave something in their session, such as a setting, a lock or a temporary table."""

from __future__ import annotations

import functools
import re
from typing import Any

from django.db.backends.base.base import BaseDatabaseWrapper

SEARCHED_CHARACTERS = 4000
"""Characters of a statement that are searched, because generated SQL can be very long."""
_BEFORE = r"(?:\s|/\*.*?\*/|--[^\n]*\n|\()*"
_WORDS = {
    "postgresql": r"set(?!\s+(?:local|transaction|constraints)\b)|reset|discard|deallocate|listen|load|do|call"
    r"|declare|prepare(?!\s+transaction)|create\s+(?:(?:local|global)\s+)?temp(?:orary)?",
    # The block that finishes an atomic task leaves nothing.
    "mysql": r"set|lock|flush|begin(?!\s+not\s+atomic\s+(?:insert\s+into|delete\s+from)\s+txtasks_)"
    r"|start\s+transaction|prepare|use|call|xa|handler|create\s+(?:or\s+replace\s+)?temporary",
    "sqlite": r"pragma|attach|detach|create\s+temp(?:orary)?",
}
_STATEMENTS = {
    vendor: re.compile(rf"{_BEFORE}(?:{words})\b", re.DOTALL) for vendor, words in _WORDS.items()
}
_CALLS = {"postgresql": ("advisory_lock", "set_config", " into temp"), "mysql": ("get_lock",)}
_LOCAL = re.compile(r"set_config\s*\([^()]*,\s*true\s*\)")


@functools.lru_cache(maxsize=512)
def outlives_the_task(vendor: str, sql: str) -> bool:
    """Return True if a statement may leave a setting, a lock, a temporary table or the like in its session.

    A false True costs a new connection.
    """
    text = _LOCAL.sub("", sql.lower())
    begins = _STATEMENTS.get(vendor)
    if begins is not None and any(begins.match(part) for part in text.split(";")):
        return True
    return any(call in text for call in _CALLS.get(vendor, ()))


def text_of_statement(sql: Any, connection: BaseDatabaseWrapper) -> str:
    """Return the beginning of a statement, which may be text or a psycopg object."""
    return _text(sql, connection)[:SEARCHED_CHARACTERS]


def _text(sql: Any, connection: BaseDatabaseWrapper) -> str:
    if isinstance(sql, str):
        return sql
    if hasattr(sql, "as_string"):  # psycopg's sql.Composed
        return str(sql.as_string(connection.connection))
    return sql.decode(errors="replace") if isinstance(sql, bytes) else str(sql)
