"""Calls in rows that do not fit the functions that this code declares."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from enum import Enum
from typing import NamedTuple

from django_txtasks.core.declaring import registry
from django_txtasks.core.declaring.arguments import call_text, misfit
from django_txtasks.core.declaring.registry import Declaration
from django_txtasks.core.rows.follow_ups import read_hooks
from django_txtasks.features.reports.whose import Living, Whose
from django_txtasks.insight.preflight.shapes import Call, Shape
from django_txtasks.models import Status

OF_HOOK = Call(1, ())
"""A hook gets one argument: the hook data, or the result."""
KEEP_NAME = (
    "Give the function that replaces it @task(was=[{name!r}]), or first run these with today's release. If a "
    "worker in another language runs it, start that worker, and check again."
)
DEFAULT = "Give the parameter a default, or first run these with today's release."
KEEP_PARAMETER = "Keep the parameter, or first run these with today's release."
CORRECT_ROW = "Correct the row: args is a list, kwargs an object."
DECORATED = (
    "This is certain only if the decorator passes the arguments on unchanged. Then keep the parameter, or give it "
    "a default."
)
ELSEWHERE = frozenset({Whose.HANDED, Whose.FOREIGN})
"""Owners of rows that are not compared with this code: another system has the functions."""
REVIVE = "This matters only if somebody revives the dead tasks."


class Kind(Enum):
    """Kinds of cases, with their numbers in the exit code."""

    UNKNOWN = 1
    ARGUMENTS = 2
    NOTE = 0


class Case(NamedTuple):
    """One function and one form of call that does not fit it.

    Attributes:
        where: the part of rows that has the call, such as ``tasks`` or ``on_success of shop.tasks.pack``.
        text: what does not fit.
        action: what to do.
    """

    kind: Kind
    task_name: str
    where: str
    text: str
    action: str


def cases_of(living: Living, shape: Shape) -> tuple[Case, ...]:
    """Return the cases of one shape: of its own call, and of its hooks. Of dead tasks, all are notes."""
    if living.whose(shape.queue_name, shape.task_name) in ELSEWHERE:
        return ()
    own = cases_of_call(shape.task_name, "tasks", shape.call)
    if shape.status == Status.DEAD:
        return tuple(one._replace(kind=Kind.NOTE, action=f"{REVIVE} {one.action}") for one in own)
    return (*own, *cases_of_hooks(living, shape.hooks, shape.task_name, shape.call))


def cases_of_hooks(living: Living, text: str, of: str, call: Call) -> Iterator[Case]:
    """Yield the cases of the hooks in a row, and of the hooks of these hooks.

    Args:
        of: the function or batch whose hooks these are.
        call: its own call. A compensation gets the same arguments.
    """
    waiting = [(of, call, read_hooks(text))]
    while waiting:
        of, call, hooks = waiting.pop()
        for option, spec in hooks.items():
            if living.whose(spec["queue_name"], spec["task_name"]) in ELSEWHERE:
                continue
            of_hook = call if option == "compensate" else OF_HOOK
            yield from cases_of_call(spec["task_name"], f"{option} of {of}", of_hook)
            waiting.append((spec["task_name"], of_hook, spec["hooks"]))


def cases_of_call(name: str, where: str, call: Call) -> list[Case]:
    """Return the case of one call of one function; none if the call fits."""
    declaration = registry.find(name)
    if declaration is None:
        text = "no function of this name is declared"
        return [Case(Kind.UNKNOWN, name, where, text, KEEP_NAME.format(name=name))]
    if call.args is None or call.names is None:
        text = "args is not a list, or kwargs is not an object"
        return [Case(Kind.ARGUMENTS, name, where, text, CORRECT_ROW)]
    args, kwargs = [None] * call.args, dict.fromkeys(call.names)
    said = f"is called as {call_text(call.args, call.names)}"
    if why := misfit(declaration, args, kwargs):
        text = f"{declaration.name}{declaration.signature} {said}: {why}"
        action = DEFAULT if why.startswith("missing") else KEEP_PARAMETER
        return [Case(Kind.ARGUMENTS, name, where, text, action)]
    inside = _inside_decorator(declaration)
    if inside is not None and (why := misfit(declaration, args, kwargs, inside)):
        text = f"the function inside the decorator, {name}{inside}, {said}: {why}"
        return [Case(Kind.NOTE, name, where, text, DECORATED)]
    return []


def _inside_decorator(declaration: Declaration) -> inspect.Signature | None:
    """Return the signature of a function inside decorators that used ``functools.wraps``; None: no decorator."""
    function = inspect.unwrap(declaration.function)
    return None if function is declaration.function else inspect.signature(function)
