"""The declarations of @task by name: data, no behaviour.

A name found in a row or a message is looked up here and nowhere else; nothing is imported for it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django_txtasks.exceptions import UnknownTask


@dataclass(frozen=True, kw_only=True)
class Declaration:
    """What ``@task`` said about one function."""

    function: Callable[..., Any]
    name: str
    queue_name: str
    priority: int
    max_attempts: int
    max_crashes: int
    atomic: bool
    idempotent: bool
    takes_context: bool
    is_async: bool


@dataclass(frozen=True, kw_only=True)
class Options:
    """What ``using()`` changed for one enqueue; None = as declared."""

    queue_name: str | None = None
    priority: int | None = None
    run_after: datetime | timedelta | None = None
    using: str | None = None


_declarations: dict[str, Declaration] = {}


def register(declaration: Declaration) -> None:
    """Add a declaration. A module that is loaded again replaces its own."""
    _declarations[declaration.name] = declaration


def get(name: str) -> Declaration:
    """Return the declaration of this name.

    Raises:
        UnknownTask: no installed app declares it.
    """
    try:
        return _declarations[name]
    except KeyError:
        raise UnknownTask(f"No installed app declares a task function {name!r}.") from None


def names() -> list[str]:
    """Return all declared names, sorted."""
    return sorted(_declarations)


def declarations() -> list[Declaration]:
    """Return all declarations, sorted by name."""
    return [_declarations[name] for name in names()]
