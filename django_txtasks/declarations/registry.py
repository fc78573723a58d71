"""The declarations of @task by name: data, no behaviour.

A name found in a row or a message is looked up here and nowhere else; nothing is imported for it.
"""

from __future__ import annotations

import inspect
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any, TypeAlias

from django_txtasks.exceptions import UnknownTask

TextOfCall: TypeAlias = str | Callable[..., str | None]
"""Text, or a function that gets a task's arguments by name and returns text, or None for none."""


@dataclass(frozen=True, kw_only=True)
class Declaration:
    """The declaration of one function by ``@task``.

    Attributes:
        expires: None = never.
        timeout: seconds; None = no limit.
        hooks: specs of the tasks that its arrows enqueue, by the option's name.
        backoff: returns how long to wait after so many failures, the last of them this error; None = as usual.
        max_snoozes: how often a task may put itself off.
        unique_key: text, or a function of the arguments that returns it; None = tasks are never merged.
        keep: whose arguments a run has that stands for several: ``newest`` or ``oldest``.
        settle: tasks of one key that are enqueued within such a span of time are due together.
        lane: text, or a function of the arguments that returns it: whose limits a task shares; None = nobody's.
        once: text, or a function of the arguments that returns it: one call is enqueued under it; None = all are.
        once_for: for how long; None = as usual.
        interruptible: what runs may be ended by an exception anywhere in it, when it is asked to stop.
    """

    function: Callable[..., Any]
    name: str
    queue_name: str = "default"
    priority: int = 0
    max_attempts: int = 5
    max_crashes: int = 3
    atomic: bool = False
    idempotent: bool = False
    takes_context: bool = False
    is_async: bool = False
    expires: timedelta | None = None
    timeout: float | None = None
    hooks: dict[str, dict[str, Any]] = field(default_factory=dict)
    backoff: Callable[[int, BaseException], timedelta | float] | None = None
    max_snoozes: int = 1000
    interruptible: bool = False
    unique_key: TextOfCall | None = None
    keep: str = "newest"
    settle: timedelta | None = None
    lane: TextOfCall | None = None
    once: TextOfCall | None = None
    once_for: timedelta | None = None

    @cached_property
    def on_crash(self) -> str:
        """The policy that follows from what was declared: a value of ``OnCrash``."""
        if self.atomic or self.idempotent:
            return "retry+undo" if "compensate" in self.hooks else "retry"
        return "compensate" if "compensate" in self.hooks else "dead"

    @cached_property
    def task_spec(self) -> dict[str, Any]:
        """What a row of this function says, whatever its arguments; JSON."""
        spec = {
            "task_name": self.name,
            "queue_name": self.queue_name,
            "priority": self.priority,
            "max_attempts": self.max_attempts,
            "max_crashes": self.max_crashes,
            "on_crash": self.on_crash,
            "timeout": self.timeout,
            "hooks": self.hooks,
        }
        if isinstance(self.lane, str):  # else left out: workers of before do not know it
            spec["lane"] = self.lane
        return spec

    @cached_property
    def signature(self) -> inspect.Signature:
        """What the function takes, without its context."""
        signature = inspect.signature(self.function, follow_wrapped=False)
        parameters = list(signature.parameters.values())
        takes_rest = parameters and parameters[0].kind is inspect.Parameter.VAR_POSITIONAL
        if self.takes_context and not takes_rest:
            del parameters[0]
        return signature.replace(parameters=parameters)

    @cached_property
    def lengths(self) -> range:
        """With how many positional arguments, and nothing else, the function can be called."""
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


@dataclass(frozen=True, kw_only=True)
class Options:
    """Options that ``using()`` changed for one enqueue; None = as declared."""

    queue_name: str | None = None
    priority: int | None = None
    run_after: datetime | timedelta | float | None = None
    expires: datetime | timedelta | float | None = None
    using: str | None = None
    max_attempts: int | None = None
    max_crashes: int | None = None
    timeout: timedelta | float | None = None
    on_success: Any = None
    on_retry: Any = None
    on_failure: Any = None
    unique_key: TextOfCall | None = None
    settle: timedelta | float | None = None
    lane: TextOfCall | None = None
    once: TextOfCall | None = None
    once_for: timedelta | float | None = None


def text_of_hooks(hooks: dict[str, dict[str, Any]]) -> str:
    """Return specs of hooks as the JSON text of a row."""
    return json.dumps(hooks, separators=(",", ":"))


_declarations: dict[str, Declaration] = {}


def register(declaration: Declaration) -> None:
    """Add a declaration. A module that is loaded again replaces its own."""
    _declarations[declaration.name] = declaration


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
    """Return the declaration of this name, if there is one."""
    return _declarations.get(name)


def task_spec(name: str) -> dict[str, Any]:
    """Return what a row of this name says; for a name that nobody declares here, the defaults."""
    return (find(name) or Declaration(function=print, name=name)).task_spec


def is_task_spec(value: Any) -> bool:
    """Say whether it is what a declaration writes into rows: somebody may have written something else."""
    if not isinstance(value, dict) or value.keys() - _OPTIONAL != task_spec("").keys():
        return False
    return (
        _is_text(value["task_name"], 200)
        and _is_text(value["queue_name"], 100)
        and _is_number(value["priority"], -100, 100)
        and _is_number(value["max_attempts"], 1, 32767)
        and _is_number(value["max_crashes"], 1, 32767)
        and value["on_crash"] in ("dead", "retry", "compensate", "retry+undo")
        and (value["timeout"] is None or is_time_limit(value["timeout"]))
        and (value.get("lane", "") == "" or _is_text(value["lane"], 200))
        and value.get("with_result", False) in (True, False)
        and isinstance(value["hooks"], dict)
        and all(is_task_spec(hook) for hook in value["hooks"].values())
    )


_OPTIONAL = {"lane", "with_result"}
"""Keys of a spec that are there only where they say something: workers of before do not know them."""


def is_time_limit(value: Any) -> bool:
    """Say whether it is a number of seconds that an attempt may be given."""
    return type(value) in (int, float) and 0 < value < 1e9


def names() -> list[str]:
    """Return all declared names, sorted."""
    return sorted(_declarations)


def declarations() -> list[Declaration]:
    """Return all declarations, sorted by name."""
    return [_declarations[name] for name in names()]


def _is_text(value: Any, length: int) -> bool:
    return isinstance(value, str) and 0 < len(value) <= length and value.isprintable()


def _is_number(value: Any, least: int, most: int) -> bool:
    return type(value) is int and least <= value <= most
