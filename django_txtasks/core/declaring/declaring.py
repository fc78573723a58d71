"""From the options of ``@task`` to a declaration: each value checked, then the values together.

No model is imported: decorators run while Django is still loading its apps.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from django_txtasks.core.declaring.hooks import HOOKS
from django_txtasks.core.declaring.registry import Declaration
from django_txtasks.core.declaring.table import OPTIONS, checked
from django_txtasks.core.declaring.values import MOST_NAME_CHARACTERS
from django_txtasks.exceptions import InvalidDeclaration

_ALWAYS_DESCRIBED = ("priority", "max_attempts", "max_crashes", "timeout")
"""Columns that each task spec has, because older workers require them.

Another column is in it only if it differs from its default, because older workers drop a hook with an unknown key.
"""


def declaration_of(
    function: Callable[..., Any], *, name: str, options: Mapping[str, Any]
) -> Declaration:
    """Return the declaration of a function.

    Args:
        options: of ``@task``; those left out have their defaults.

    Raises:
        InvalidDeclaration, InvalidOption: a value that cannot work, or options that contradict each other.
    """
    _refuse_name(function, name)
    declaration = _made(function, name, checked(name, OPTIONS.whole.of_task, options))
    _refuse_contradictions(declaration)
    return declaration


def undeclared(name: str) -> Declaration:
    """Return the declaration that a task has which this code does not know: the defaults."""
    return _made(print, name, {})


def _made(function: Callable[..., Any], name: str, given: Mapping[str, Any]) -> Declaration:
    table = OPTIONS.whole
    values = {**{option: one.default for option, one in table.of_task.items()}, **given}
    own = {
        option: value
        for option, value in values.items()
        if option not in table.columns and option not in HOOKS
    }
    return Declaration(
        function=function,
        name=name,
        is_async=inspect.iscoroutinefunction(function),
        hooks={hook: values[hook] for hook in HOOKS if values[hook] is not None},
        columns={
            option: values[option]
            for option in sorted(table.columns.keys() & values.keys())
            if option in _ALWAYS_DESCRIBED or values[option] != table.columns[option].default
        },
        **own,
    )


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
    for refuse in OPTIONS.whole.refusals:
        refuse(declaration)
    for option, one in OPTIONS.whole.of_task.items():
        if one.of_call is not None:
            one.of_call(getattr(declaration, option), declaration, option)
    if declaration.takes_context and not inspect.signature(declaration.function).parameters:
        raise InvalidDeclaration(f"{name} has takes_context=True but no parameter to take it.")
