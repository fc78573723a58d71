"""The options of keys of ``once``."""

# No `from __future__ import annotations`: the entries are read at run time.

from datetime import timedelta
from typing import Annotated, TypedDict

from django_txtasks.core.declaring.registry import Declaration
from django_txtasks.core.declaring.table import Option
from django_txtasks.core.declaring.values import TextOfCall, key_of, span_of
from django_txtasks.exceptions import InvalidDeclaration
from django_txtasks.features.unique.key_functions import by_name


class OnceOptions(TypedDict, total=False):
    """Options of keys of ``once``."""

    once: Annotated[TextOfCall | None, Option(None, key_of, of_call=by_name)]
    """Idempotency key: text of at most 200 characters, or a function of the task's arguments that returns it, or
    None. Only the first enqueue with a key writes a task. Later ones return the handle of the first task."""

    once_for: Annotated[timedelta | float | None, Option(None, span_of)]
    """Time for which a key of ``once`` is kept, as timedelta or seconds. None: 7 days."""


def refuse(declaration: Declaration) -> None:
    """Refuse a second key, and a time without a key."""
    name = declaration.name
    if declaration.intake and declaration.once is not None:
        raise InvalidDeclaration(
            f"{name} has once= and intake=True: the key of a message is its message_id. Drop one of them."
        )
    if declaration.once is None and declaration.once_for is not None and not declaration.intake:
        raise InvalidDeclaration(
            f"{name} has once_for= without once=: say which calls are the same."
        )


def refuse_as_hook(declaration: Declaration, said: str) -> None:
    """Refuse a function as a hook if it has a key."""
    if declaration.once is not None:
        raise InvalidDeclaration(
            f"{said}, which has once=: a hook is enqueued each time. Enqueue it in a task."
        )
