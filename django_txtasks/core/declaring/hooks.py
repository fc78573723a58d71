"""Hooks: the options that name a task function, which is enqueued in the transaction that ends an attempt."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from django_txtasks.core.declaring.registry import Declaration
from django_txtasks.core.declaring.table import OPTIONS
from django_txtasks.exceptions import InvalidDeclaration

HOOKS = ("compensate", "on_success", "on_retry", "on_failure")
"""Options that name a task function."""


class DeclaredTask(Protocol):
    """A task function, declared with ``@task``."""

    @property
    def declaration(self) -> Declaration: ...

    @property
    def enqueue(self) -> Callable[..., Any]: ...


@dataclass(frozen=True)
class WithResult:
    """A task function as an ``on_success`` that is called with the result; see ``TaskFunction.with_result``."""

    function: Any
    gets_result: bool = field(default=True, init=False, repr=False)

    @property
    def declaration(self) -> Declaration:
        """The function's declaration."""
        declaration: Declaration = self.function.declaration
        return declaration

    @property
    def options(self) -> Mapping[str, Any]:
        """The function's options of ``using()``."""
        options: Mapping[str, Any] = self.function.options
        return options


def spec_of_hook(name: str, option: str, hook: Any) -> dict[str, Any] | None:
    """Return the task spec of a hook, which the row of the task that has the hook keeps.

    Args:
        name: of the task that has the hook.
        hook: a task function, or for ``on_success`` also its ``with_result()``; None returns None.

    Raises:
        InvalidDeclaration: not a task function, or its options do not allow it as a hook.
    """
    if hook is None:
        return None
    gets_result = getattr(hook, "gets_result", False)
    declaration = getattr(hook, "declaration", None)
    if not isinstance(declaration, Declaration):
        raise InvalidDeclaration(
            f"{name} has {option}={hook!r}, which is no task function. Declare it with @task, before {name}."
        )
    if hook.options:
        raise InvalidDeclaration(
            f"{name} has {option}={hook!r} with using(): a hook is enqueued as it was declared. Declare it so."
        )
    for refuse in OPTIONS.whole.of_hooks:
        refuse(declaration, f"{name} has {option}={hook!r}")
    if not gets_result:
        return declaration.task_spec
    _check_result_of(declaration, option, name)
    return {**declaration.task_spec, "with_result": True}


def _check_result_of(declaration: Declaration, option: str, name: str) -> None:
    """Refuse a hook with the result if there is no result, or if the function does not take one argument."""
    if option != "on_success":
        raise InvalidDeclaration(
            f"{name} has {option}={declaration.name}.with_result(): only a task that succeeds has a result. Use "
            "it with on_success=."
        )
    if 1 not in declaration.lengths:
        raise InvalidDeclaration(
            f"{name} has on_success={declaration.name}.with_result(), but it cannot be called with one argument, "
            f"the result: {declaration.name}{declaration.signature}."
        )
