"""The registry of task functions: their declarations, by name.

Only this module looks up names from rows and messages. It imports no module for them.
"""

from __future__ import annotations

import inspect
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from typing import Any

from django.conf import settings

from django_txtasks.core.declaring.forms import FORM_OF, Form
from django_txtasks.core.declaring.values import TextOfCall
from django_txtasks.exceptions import InvalidDeclaration, UnknownTask


@dataclass(frozen=True, kw_only=True)
class Declaration:
    """One function as ``@task`` declares it, with its options checked; ``options.py`` describes these.

    Attributes:
        is_async: True for an ``async def``.
        hooks: task specs, by the option's name.
        columns: values of the options that the code only writes to a row, by name.
        expires: time from the enqueue on; None: never.
        backoff: returns the wait after a number of failures, the last of them this error; None: the default wait.
        settle, once_for: None: the option was left out.
        was: earlier names of the function, the oldest first.
        many: number of tasks that one call gets at most; None: the function is called with one task's arguments.
    """

    function: Callable[..., Any]
    name: str
    is_async: bool
    hooks: dict[str, dict[str, Any]]
    columns: dict[str, Any]
    queue_name: str
    atomic: bool
    idempotent: bool
    takes_context: bool
    expires: timedelta | None
    backoff: Callable[[int, BaseException], timedelta | float] | None
    max_snoozes: int
    interruptible: bool
    was: tuple[str, ...]
    unique_key: TextOfCall | None = None
    keep: str = "newest"
    settle: timedelta | None = None
    lane: TextOfCall | None = None
    once: TextOfCall | None = None
    once_for: timedelta | None = None
    intake: bool = False
    many: int | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """The names under which rows may have the function: its own name first."""
        return self.name, *self.was

    @property
    def oldest_name(self) -> str:
        """The name that stays the same when the function is renamed once more."""
        return self.was[0] if self.was else self.name

    @property
    def priority(self) -> int:
        """The declared priority."""
        priority: int = self.columns["priority"]
        return priority

    @cached_property
    def on_crash(self) -> str:
        """The crash policy that follows from the options: a value of ``OnCrash``."""
        if self.atomic or self.idempotent:
            return "retry+undo" if "compensate" in self.hooks else "retry"
        return "compensate" if "compensate" in self.hooks else "dead"

    @cached_property
    def task_spec(self) -> dict[str, Any]:
        """The task spec of this function, for a row that has it as a hook; JSON."""
        # a lane that is a function is left out: older workers do not know the key
        lane = {"lane": self.lane} if isinstance(self.lane, str) else {}
        return {
            "task_name": self.name,
            "queue_name": self.queue_name,
            **self.columns,
            "on_crash": self.on_crash,
            "hooks": self.hooks,
            **lane,
        }

    @cached_property
    def form(self) -> Form:
        """The form of the function, which says how to call it with the arguments of a row."""
        return FORM_OF.whole(self)

    @cached_property
    def signature(self) -> inspect.Signature:
        """The signature of a task's arguments: that of the function, without its context."""
        of_function = inspect.signature(self.function, follow_wrapped=False)
        signature = self.form.signature(of_function)
        parameters = list(signature.parameters.values())
        takes_rest = parameters and parameters[0].kind is inspect.Parameter.VAR_POSITIONAL
        if self.takes_context and not takes_rest:
            del parameters[0]
        return signature.replace(parameters=parameters)

    @cached_property
    def lengths(self) -> range:
        """The numbers of positional arguments with which, and with nothing else, the function can be called."""
        parameters = self.signature.parameters.values()
        if any(one.kind is one.KEYWORD_ONLY and one.default is one.empty for one in parameters):
            return range(0)
        placed = [
            one
            for one in parameters
            if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)
        ]
        needed = sum(one.default is one.empty for one in placed)
        takes_rest = any(one.kind is one.VAR_POSITIONAL for one in parameters)
        return range(needed, sys.maxsize if takes_rest else len(placed) + 1)

    @cached_property
    def hooks_text(self) -> str:
        """The hooks as JSON text."""
        return text_of_hooks(self.hooks)


def text_of_hooks(hooks: dict[str, dict[str, Any]]) -> str:
    """Return task specs, by the hook's option, as the JSON text of a row."""
    return json.dumps(hooks, separators=(",", ":"))


_declarations: dict[str, Declaration] = {}
_packages: set[str] = set()


def register(declaration: Declaration) -> None:
    """Add a declaration, under its earlier names, too. A module that is loaded again replaces its declarations.

    Raises:
        InvalidDeclaration: another function has one of the names.
    """
    for name in declaration.names:
        other = _declarations.get(name)
        if other is not None and other.name != declaration.name:
            raise InvalidDeclaration(_two_places(name, declaration, other))
    before = _declarations.get(declaration.name)
    for name in () if before is None else before.was:
        del _declarations[name]
    _declarations.update(dict.fromkeys(declaration.names, declaration))
    _packages.add(_top(declaration.name))


def _two_places(name: str, new: Declaration, known: Declaration) -> str:
    says = [f"{one.name} has was={[*one.was]!r}" for one in (new, known) if name in one.was]
    if len(says) == 1:
        says.append(f"{name} is a task function itself")
    return (
        f"The task name {name!r} is declared in two places, so a worker could not choose: {' and '.join(says)}. "
        "Remove the name from was=, or the function that has the name."
    )


def get(name: str) -> Declaration:
    """Return the declaration of this name.

    Raises:
        UnknownTask: no installed app declares it.
    """
    try:
        return _declarations[name]
    except KeyError:
        raise UnknownTask(f"No installed app declares a task function {name!r}.") from None


def find(name: str) -> Declaration | None:
    """Return the declaration of this name, or None."""
    return _declarations.get(name)


def own_packages() -> set[str]:
    """Return the top packages of the project: of its task functions and of its settings."""
    of_settings = (
        getattr(settings, "SETTINGS_MODULE", None) or ""
    )  # missing after settings.configure()
    return (_packages | {_top(of_settings)}) - {_top(__name__)}


def _top(name: str) -> str:
    return name.partition(".")[0]


def is_async(name: str) -> bool:
    """Return True if an async function of this name is declared."""
    declaration = _declarations.get(name)
    return declaration is not None and declaration.is_async


ASYNC_QUEUE = "@async."
"""Prefix of the name under which hints of async functions travel. No task queue has such a name."""


def hint_queue(name: str, queue_name: str) -> str:
    """Return the queue for hints of a task: async functions have hint queues of their own.

    Workers with an event loop take no sync tasks, and others beside them no async ones. On one hint queue, each
    would get half of the hints of the other.
    """
    return f"{ASYNC_QUEUE}{queue_name}" if is_async(name) else queue_name


def names() -> list[str]:
    """Return all declared names, sorted; earlier names of functions are among them."""
    return sorted(_declarations)


def declarations() -> list[Declaration]:
    """Return all declarations, sorted by name."""
    return [_declarations[name] for name in names() if _declarations[name].name == name]
