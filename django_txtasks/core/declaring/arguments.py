"""The check of a call's arguments against the signature of the task function."""

from __future__ import annotations

import inspect
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from django_txtasks.core.declaring import foreign
from django_txtasks.core.declaring.registry import Declaration
from django_txtasks.core.declaring.table import OPTIONS
from django_txtasks.exceptions import InvalidArguments
from django_txtasks.signals import tracebacks

MOST_SHOWN = 20
"""Arguments of a call that a text names: positional ones, and as many by keyword."""


def check_call(declaration: Declaration, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Refuse arguments that the function does not take: a worker would find out after the commit.

    Raises:
        InvalidArguments: names a keyword that the function does not have.
    """
    try:
        declaration.signature.bind(*args, **kwargs)
    except TypeError as error:
        raise InvalidArguments(
            f"{declaration.name}{declaration.signature} cannot be called like that: "
            f"{_about_keywords(declaration, kwargs) or f'{error}.'}"
        ) from None


def misfit(
    declaration: Declaration,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    signature: inspect.Signature | None = None,
) -> str:
    """Return why a worker cannot call the function with the arguments of a row; empty: it can.

    Args:
        signature: with the context; default: that of the function.
    """
    context = [None] if declaration.takes_context else []
    if signature is None:
        signature = inspect.signature(declaration.function, follow_wrapped=False)
    try:
        declaration.form.signature(signature).bind(*context, *args, **kwargs)
    except TypeError as error:
        return str(error)
    return ""


def misfit_of(
    error: BaseException, declaration: Declaration, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> str:
    """Return why a worker could not call the function; empty: the function had begun, or it is another error."""
    if type(error) is not TypeError or not tracebacks.is_ours_alone(error):
        return ""
    return misfit(declaration, args, kwargs)


def call_text(args: int, names: Collection[str]) -> str:
    """Return the form of a call, without its values, such as ``f(…, …, kind=…)`` for ``f``."""
    return f"({', '.join([*['…'] * min(args, MOST_SHOWN), *(f'{one}=…' for one in sorted(names)[:MOST_SHOWN])])})"


def _about_keywords(declaration: Declaration, kwargs: Mapping[str, Any]) -> str:
    """Return a sentence on the first keyword that the function does not have; empty: it has them all."""
    parameters = declaration.signature.parameters.values()
    known = [
        one.name for one in parameters if one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY)
    ]
    if any(one.kind is one.VAR_KEYWORD for one in parameters):
        return ""
    for name in kwargs:
        if name in known:
            continue
        if name in OPTIONS.whole.of_using:
            more = f"It is an option: fn.using({name}=…).enqueue(…)."
        elif name in OPTIONS.whole.of_task:
            more = f"It is an option: @task({name}=…)."
        elif name in foreign.OPTIONS:
            more = foreign.about_option(name, known)
        else:
            more = foreign.about_name(name, known)
        return f"it has no parameter {name!r}. {more}"
    return ""
