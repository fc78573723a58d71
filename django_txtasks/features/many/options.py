"""The option of functions of many tasks."""

from __future__ import annotations

from typing import Any

from django_txtasks.core.declaring.registry import Declaration
from django_txtasks.core.declaring.table import Option
from django_txtasks.exceptions import InvalidDeclaration
from django_txtasks.features.many.declaring import refuse_what_many_cannot_have

MOST_AT_ONCE = 500
"""Maximum number of tasks that one call gets: as many as one claim takes."""


def many_of(name: str, option: str, value: Any) -> int | None:
    """Return the number of tasks that one call gets at most.

    Raises:
        InvalidDeclaration: neither None nor a whole number from 2 to 500.
    """
    if value is None or (type(value) is int and 2 <= value <= MOST_AT_ONCE):
        return value
    raise InvalidDeclaration(
        f"{name} has {option}={value!r}; it must be from 2 to {MOST_AT_ONCE}: the number of tasks that one "
        "call of the function gets at most."
    )


MANY = Option(None, many_of)
"""``many``, which ``task`` has in its signature: the type of the function depends on it."""


def refuse(declaration: Declaration) -> None:
    """Refuse what a function of many tasks cannot have."""
    if declaration.many is not None:
        refuse_what_many_cannot_have(declaration)
