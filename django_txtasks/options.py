"""The options of ``@task`` and of ``using()``, from the core and from the features."""

from __future__ import annotations

import ast
import inspect
import itertools
from collections.abc import Collection
from functools import cache
from typing import Any

from django_txtasks.core.declaring import foreign
from django_txtasks.core.declaring.options import (
    CoreOptions,
    CoreTaskOptions,
    CoreUsingOptions,
    HookOptions,
)
from django_txtasks.core.declaring.table import Option, entries_of, table_of
from django_txtasks.exceptions import UnknownOption
from django_txtasks.features.intake.options import IntakeOptions
from django_txtasks.features.lanes import options as lanes
from django_txtasks.features.lanes.options import LaneOptions
from django_txtasks.features.links.options import SubjectOptions
from django_txtasks.features.many import options as many
from django_txtasks.features.once import options as once
from django_txtasks.features.once.options import OnceOptions
from django_txtasks.features.unique import options as unique
from django_txtasks.features.unique.options import KeepOptions, UniqueOptions

__all__ = ["COLUMNS", "OF_TASK", "OF_USING", "Option", "TaskOptions", "UsingOptions"]


class SharedOptions(CoreOptions, UniqueOptions, LaneOptions, OnceOptions, HookOptions, total=False):
    """Options of ``@task`` that ``using()`` can set for single enqueues."""


class TaskOptions(SharedOptions, CoreTaskOptions, KeepOptions, IntakeOptions, total=False):
    """Options of ``@task``, besides ``takes_context`` and ``many``."""


class UsingOptions(SharedOptions, CoreUsingOptions, SubjectOptions, total=False):
    """Options of ``using()``."""


_PARTS = (
    CoreOptions,
    UniqueOptions,
    LaneOptions,
    OnceOptions,
    HookOptions,
    CoreTaskOptions,
    KeepOptions,
    IntakeOptions,
    CoreUsingOptions,
    SubjectOptions,
)
"""The classes that declare an option each, with its text."""
OPTIONS = table_of(
    {**entries_of(TaskOptions), "many": many.MANY},
    entries_of(UsingOptions),
    refusals=(unique.refuse, once.refuse, many.refuse),
    of_hooks=(once.refuse_as_hook, lanes.refuse_as_hook),
)
"""All options."""
OF_TASK = OPTIONS.of_task
"""Options of ``@task``, by name."""
OF_USING = OPTIONS.of_using
"""Options of ``using()``, by name."""
COLUMNS = OPTIONS.columns
"""Options that are columns of a row, by name."""


def refuse_unknown(
    where: str, given: Collection[str], known: Collection[str] = tuple(OF_TASK)
) -> None:
    """Raise UnknownOption if options were given that ``where`` does not have; it has the known ones."""
    for name in given:
        if name in known:
            continue
        if name in OF_USING:
            more = f"It is said of one task: fn.using({name}=…).enqueue(…)."
        elif name in OF_TASK:
            more = f"It is declared with the function: @task({name}=…)."
        else:
            more = foreign.about_option(name, known)
        raise UnknownOption(f"{where} has no option {name!r}. {more}")


def describe(function: Any, options: Any) -> None:
    """Show the options in a function's signature and docstring, which ``help()`` and the API reference print.

    Args:
        function: its docstring has a line that begins with "**options:", which the list of options replaces.
        options: the TypedDict that the function takes as its keyword arguments.
    """
    own = inspect.signature(function)
    parameters = list(own.parameters.values())[:-1]  # without **options
    for name, entry in options.__annotations__.items():
        default, kind = entry.__metadata__[0].default, entry.__origin__
        if options is UsingOptions:  # an option that is left out stays as declared
            default, kind = None, kind | None
        one = inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default)
        parameters.append(one.replace(annotation=kind))
    function.__signature__ = own.replace(parameters=parameters)
    if function.__doc__ is None:  # python -OO
        return
    texts = _texts(options)
    if options is UsingOptions:
        texts |= dict.fromkeys(SharedOptions.__annotations__, "As of ``@task``.")
    listed = "\n".join(f"    {name}: {text}" for name, text in texts.items())
    before, _, after = inspect.cleandoc(function.__doc__).partition("    **options:")
    function.__doc__ = before + listed + "\n" + after.partition("\n")[2]


def _texts(options: Any) -> dict[str, str]:
    """Return the docstring of each option."""
    known = options.__annotations__
    found = {
        name: text
        for part in _PARTS
        for name, text in _docstrings(part).items()
        if known.get(name) == part.__annotations__[name]
    }
    return {name: found[name] for name in known if name in found}


@cache
def _docstrings(kind: type) -> dict[str, str]:
    """Return the docstrings of a class's options, read from its source, because Python does not keep them."""
    try:
        (found,) = ast.parse(inspect.getsource(kind)).body
    except OSError:  # installed without its source
        return {}
    body = found.body if isinstance(found, ast.ClassDef) else []
    return {
        ast.unparse(entry.target): ast.literal_eval(text.value).replace("\n", "\n    ")
        for entry, text in itertools.pairwise(body)
        if isinstance(entry, ast.AnnAssign) and isinstance(text, ast.Expr)
    }
