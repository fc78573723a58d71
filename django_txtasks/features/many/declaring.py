"""The options that a function of many tasks, declared with ``many=``, cannot have."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from django_txtasks.core.declaring.registry import Declaration
from django_txtasks.exceptions import InvalidDeclaration


def refuse_what_many_cannot_have(declaration: Declaration) -> None:
    """Refuse options that one call cannot keep for each of its tasks, or that make each call one of a single task.

    Raises:
        InvalidDeclaration: names the option and what to do.
    """
    columns = declaration.columns
    problems = (
        (
            declaration.is_async,
            "is async: make it a sync function, or gather the work in one async task",
        ),
        (
            not _takes_one_argument(declaration.function),
            "cannot be called with one argument, the list of items: give it one parameter",
        ),
        (
            inspect.isgeneratorfunction(declaration.function),
            "is a generator function, of which a call runs nothing: leave yield out",
        ),
        (
            declaration.atomic,
            "atomic=True: a transaction cannot commit for some tasks and roll back for others. Say "
            "idempotent=True, and open a transaction in the function where the work needs one",
        ),
        (
            not declaration.idempotent,
            "no idempotent=True: after a crash of its worker, the tasks of a call run again. Say "
            "idempotent=True if a second run does no harm, or drop many=",
        ),
        (
            declaration.takes_context,
            "takes_context=True: each item has its own task_id, attempt, cancelled and key(). Drop takes_context=",
        ),
        (
            declaration.interruptible,
            "interruptible=True: the cancel of one task would end the call of all. Look at item.cancelled instead",
        ),
        (
            "compensate" in declaration.hooks,
            "compensate=: such tasks are called alone. Drop one of them",
        ),
        (
            declaration.lane is not None,
            "lane=: the tasks of a lane are called alone. Drop one of them",
        ),
        (
            columns["max_attempts"] == 1,
            "max_attempts=1: a task is called alone at its last attempt. Say 2",
        ),
        (
            columns["max_crashes"] == 1,
            "max_crashes=1: a task that must not run again is called alone. Say 2",
        ),
    )
    for is_so, problem in problems:
        if is_so:
            raise InvalidDeclaration(f"{declaration.name} has many= and {problem}.")


def _takes_one_argument(function: Callable[..., Any]) -> bool:
    try:
        inspect.signature(function, follow_wrapped=False).bind(None)
    except TypeError:
        return False
    return True
