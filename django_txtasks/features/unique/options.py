"""The options of unique keys."""

# No `from __future__ import annotations`: the entries are read at run time.

from datetime import timedelta
from typing import Annotated, Any, Literal, TypedDict

from django_txtasks.core.declaring.registry import Declaration
from django_txtasks.core.declaring.table import Option
from django_txtasks.core.declaring.values import TextOfCall, key_of, span_of
from django_txtasks.exceptions import InvalidDeclaration
from django_txtasks.features.unique.key_functions import by_name


def keep_of(name: str, option: str, value: Any) -> str:
    """Return the request whose arguments a merged run has.

    Raises:
        InvalidDeclaration: neither ``newest`` nor ``oldest``.
    """
    if value not in ("newest", "oldest"):
        raise InvalidDeclaration(
            f"{name} has {option}={value!r}; it is 'newest' or 'oldest': whose arguments a run has that "
            "stands for several."
        )
    return str(value)


class UniqueOptions(TypedDict, total=False):
    """Options of unique keys that ``using()`` can set, too."""

    unique_key: Annotated[TextOfCall | None, Option(None, key_of, of_call=by_name)]
    """Text of at most 200 characters, or a function of the task's arguments that returns it, or None. Due tasks
    with the same key in the same queue are merged into one run. A task that already runs is not part of the
    merge."""

    settle: Annotated[timedelta | float | None, Option(None, span_of)]
    """A timedelta or seconds: collect the tasks of a unique key for this long, then run them as one."""


class KeepOptions(TypedDict, total=False):
    """The option of unique keys that only ``@task`` has."""

    keep: Annotated[Literal["newest", "oldest"], Option("newest", keep_of)]
    """The request whose arguments a merged run has; see ``unique_key``."""


def refuse(declaration: Declaration) -> None:
    """Refuse options that need a unique key, and arguments that a compensation would not get."""
    name, key = declaration.name, declaration.unique_key
    if key is None and (declaration.keep != "newest" or declaration.settle is not None):
        raise InvalidDeclaration(
            f"{name} has keep= or settle= without unique_key=: say which of its tasks are the same."
        )
    if key is not None and "compensate" in declaration.hooks and declaration.keep != "oldest":
        raise InvalidDeclaration(
            f"{name} has compensate= and unique_key=: what is compensated has to be what ran. Say keep='oldest'."
        )
