"""Key functions: functions that make a lane or a key from a task's arguments."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from django_txtasks.core.declaring.registry import Declaration
from django_txtasks.exceptions import InvalidDeclaration

_NAMED = (
    inspect.Parameter.POSITIONAL_ONLY,
    inspect.Parameter.POSITIONAL_OR_KEYWORD,
    inspect.Parameter.KEYWORD_ONLY,
)


class KeyFunction:
    """A key function with the signature of its task, so that ``f(1)`` and ``f(order=1)`` give the same key.

    Each parameter gets the task's argument with the same name, or its default. ``*args`` gets the other positional
    values of the call, and ``**kwargs`` the other arguments by name. The function does not get the context.

    Args:
        function: returns the text. A function without a readable signature is called with the call's own
            arguments.
        signature: the signature of the task function, without its context.
        said: the first words of errors, with the names of task and option.

    Raises:
        InvalidDeclaration: a parameter that the task does not have, or with another default than the task's.
    """

    def __init__(
        self, function: Callable[..., Any], signature: inspect.Signature, said: str
    ) -> None:
        self._function, self._signature = function, signature
        self._task = {one.name: one for one in signature.parameters.values() if one.kind in _NAMED}
        own = _parameters_of(function)
        self._is_known = own is not None
        own = own or []
        kinds = {one.kind for one in own}
        self._takes_rest = inspect.Parameter.VAR_POSITIONAL in kinds
        self._takes_others = inspect.Parameter.VAR_KEYWORD in kinds
        self._named = {one.name: one for one in own if one.kind in _NAMED}
        by_place = _NAMED[:2] if self._takes_rest else _NAMED[:1]
        self._placed = [one.name for one in own if one.kind in by_place]
        self._refuse(said)

    def __call__(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Return the function's value for a call of the task that ``check_call`` has accepted."""
        if not self._is_known:
            return self._function(*args, **kwargs)
        bound = self._signature.bind(*args, **kwargs)
        rest = self._rest(bound) if self._takes_rest else []
        bound.apply_defaults()
        values = {
            name: value
            for key, given in bound.arguments.items()
            for name, value in self._by_name(key, given)
            if self._takes_others or name in self._named
        }
        placed = [
            values.pop(name, one.default)
            for name, one in self._named.items()
            if name in self._placed
        ]
        if self._takes_rest:
            values = {
                name: value
                for name, value in values.items()
                if name in self._named or not self._is_positional(name)
            }
        return self._function(*placed, *rest, **values)

    def _by_name(self, name: str, given: Any) -> list[tuple[str, Any]]:
        """Return one bound argument as pairs of name and value: all of ``**kwargs``, no value of ``*args``."""
        kind = self._signature.parameters[name].kind
        if kind is inspect.Parameter.VAR_KEYWORD:
            return [one for one in given.items() if one[0] not in self._task]
        return [] if kind is inspect.Parameter.VAR_POSITIONAL else [(name, given)]

    def _rest(self, bound: inspect.BoundArguments) -> list[Any]:
        """Return the positional values of the call for which the function has no parameter."""
        places = [name for name in self._task if self._is_positional(name)]
        named = len([name for name in places if name in bound.arguments])
        rest = [
            bound.arguments[name]
            for name in places
            if name in bound.arguments and name not in self._named
        ]
        return [*rest, *bound.args[named:]]

    def _is_positional(self, name: str) -> bool:
        one = self._task.get(name)
        return one is not None and one.kind in _NAMED[:2]

    def _refuse(self, said: str) -> None:
        parameters = self._signature.parameters.values()
        if any(one.kind is one.VAR_KEYWORD for one in parameters):
            unknown = []  # the task takes any name
        else:
            unknown = [name for name in self._named if name not in self._task]
        if unknown:
            raise InvalidDeclaration(
                f"{said} is a function of {_list(self._named)}, but the task function has {_list(self._task)}: "
                f"{_list(unknown)} would never be given. A key function gets the task's arguments by name; use "
                "the same names, and **_ for the others."
            )
        for name, one in self._named.items():
            of_task = self._task.get(name, one).default
            if one.empty not in (one.default, of_task) and one.default != of_task:
                raise InvalidDeclaration(
                    f"{said} is a function with {name}={one.default!r}, but the task function has "
                    f"{name}={of_task!r}: which of them makes the key? Leave the function's default out."
                )


def _parameters_of(function: Callable[..., Any]) -> list[inspect.Parameter] | None:
    """Return the parameters of a key function that a ``partial`` leaves open; None: no readable signature."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (ValueError, TypeError):
        return None
    given = function.keywords if isinstance(function, functools.partial) else {}
    return [one for one in parameters if one.name not in given or one.kind not in _NAMED]


def _list(names: Any) -> str:
    return ", ".join(map(repr, names)) or "no parameters"


def by_name(text: Any, declaration: Declaration, option: str) -> Any:
    """Return text unchanged, and a function as a ``KeyFunction``, which gives it the task's arguments by name.

    Raises:
        InvalidDeclaration: the function has a parameter that the task does not have.
    """
    if not callable(text):
        return text
    return KeyFunction(text, declaration.signature, f"{declaration.name} has {option}=, which")
