"""From the options of ``@task`` to a declaration: each value checked, then the values together.

No model is imported: decorators run while Django is still loading its apps.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from django_txtasks.declarations.hooks import HOOKS
from django_txtasks.declarations.key_functions import KeyFunction
from django_txtasks.declarations.many import refuse_what_many_cannot_have
from django_txtasks.declarations.options import COLUMNS, OF_TASK, checked
from django_txtasks.declarations.registry import Declaration
from django_txtasks.declarations.values import MOST_NAME_CHARACTERS
from django_txtasks.exceptions import InvalidDeclaration

TEXTS_OF_CALL = ("lane", "unique_key", "once")
"""Options that may be functions of a task's arguments."""
_ALWAYS_DESCRIBED = ("priority", "max_attempts", "max_crashes", "timeout")
"""Columns that each task spec has, because older workers require them.

Another column is in it only if it differs from its default, because older workers drop a hook with an unknown key.
"""


def declaration_of(
    function: Callable[..., Any], *, name: str, options: Mapping[str, Any]
) -> Declaration:
    """Return the declaration of a function.

    Args:
        options: of ``OF_TASK``; those left out have their defaults.

    Raises:
        InvalidDeclaration, InvalidOption: a value that cannot work, or options that contradict each other.
    """
    _refuse_name(function, name)
    declaration = _made(function, name, checked(name, OF_TASK, options))
    _refuse_contradictions(declaration)
    return declaration


def undeclared(name: str) -> Declaration:
    """Return the declaration that a task has which this code does not know: the defaults."""
    return _made(print, name, {})


def _made(function: Callable[..., Any], name: str, given: Mapping[str, Any]) -> Declaration:
    values = {**_DEFAULTS, **given}
    own = {
        option: value
        for option, value in values.items()
        if option not in COLUMNS and option not in HOOKS
    }
    return Declaration(
        function=function,
        name=name,
        is_async=inspect.iscoroutinefunction(function),
        hooks={hook: values[hook] for hook in HOOKS if values[hook] is not None},
        columns={
            option: values[option]
            for option in sorted(COLUMNS.keys() & values.keys())
            if option in _ALWAYS_DESCRIBED or values[option] != COLUMNS[option].default
        },
        **own,
    )


_DEFAULTS = {name: option.default for name, option in OF_TASK.items()}


def _refuse_name(function: Callable[..., Any], name: str) -> None:
    if len(name) > MOST_NAME_CHARACTERS:
        raise InvalidDeclaration(
            f"The task name {name!r} has more than {MOST_NAME_CHARACTERS} characters. Shorten it."
        )
    if not name.isprintable():
        raise InvalidDeclaration(
            f"The task name {name!r} has a character that cannot be printed. Use printable text."
        )
    if function.__module__ == "__main__":
        raise InvalidDeclaration(
            f"@task was used on {function.__name__} in a script: Python calls the module that it was started with "
            f"'__main__', so the task would be {name!r} here, as in every script, and no worker would know it. "
            "Move the function to a module of an installed app, such as its tasks.py, and import it from there."
        )


def by_name(text: Any, declaration: Declaration, option: str) -> Any:
    """Return text unchanged, and a function as a ``KeyFunction``, which gives it the task's arguments by name.

    Raises:
        InvalidDeclaration: the function has a parameter that the task does not have.
    """
    if not callable(text):
        return text
    return KeyFunction(text, declaration.signature, f"{declaration.name} has {option}=, which")


def _refuse_contradictions(declaration: Declaration) -> None:
    name = declaration.name
    if declaration.atomic and declaration.is_async:
        raise InvalidDeclaration(
            f"{name} is async and atomic=True: Django has no transactions in async code. Make the "
            "function sync, or drop atomic=True and declare it idempotent if it may run again."
        )
    if "compensate" in declaration.hooks and declaration.atomic:
        raise InvalidDeclaration(
            f"{name} has compensate= and atomic=True: a crash rolls back what it did, so there is nothing to "
            "undo. Drop one of them; what may run again and is undone in the end is idempotent=True."
        )
    _refuse_contradictions_of_keys(declaration)
    if declaration.many is not None:
        refuse_what_many_cannot_have(declaration)
    for option in TEXTS_OF_CALL:
        by_name(getattr(declaration, option), declaration, option)
    if declaration.takes_context and not inspect.signature(declaration.function).parameters:
        raise InvalidDeclaration(f"{name} has takes_context=True but no parameter to take it.")


def _refuse_contradictions_of_keys(declaration: Declaration) -> None:
    name, key = declaration.name, declaration.unique_key
    if key is None and (declaration.keep != "newest" or declaration.settle is not None):
        raise InvalidDeclaration(
            f"{name} has keep= or settle= without unique_key=: say which of its tasks are the same."
        )
    if key is not None and "compensate" in declaration.hooks and declaration.keep != "oldest":
        raise InvalidDeclaration(
            f"{name} has compensate= and unique_key=: what is compensated has to be what ran. Say keep='oldest'."
        )
    if declaration.intake and declaration.once is not None:
        raise InvalidDeclaration(
            f"{name} has once= and intake=True: the key of a message is its message_id. Drop one of them."
        )
    if declaration.once is None and declaration.once_for is not None and not declaration.intake:
        raise InvalidDeclaration(
            f"{name} has once_for= without once=: say which calls are the same."
        )
