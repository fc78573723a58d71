"""A call of a function whose options may depend on it: its lane, its unique key."""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, NamedTuple

from django_txtasks.conf import get_config
from django_txtasks.declarations import foreign
from django_txtasks.declarations.declaring import (
    OF_TASK,
    OF_USING,
    ONCE_FOR,
    check_lane,
    check_text_of_call,
    check_unique_key,
)
from django_txtasks.declarations.registry import Declaration, TextOfCall
from django_txtasks.enqueueing.once import OnceKey
from django_txtasks.exceptions import (
    InvalidArguments,
    InvalidDeclaration,
    InvalidOption,
    UnknownLane,
)
from django_txtasks.lifecycle.enqueueing import Edge, RowDefaults

_FIXED_BITS = 0xF << 76 | 0x3 << 62
_VERSION_5 = 0x5 << 76 | 0x2 << 62
REMEMBERED = 1000
"""Pairs of lane and unique key of a bound function whose row defaults are remembered."""


class BoundFunction(NamedTuple):
    """What all calls of a function share: database, declaration, row defaults.

    Attributes:
        lane: whose limits its calls share; None = they are in no lane.
        unique_key: what makes two calls the same task; None = nothing does.
        settle: they are due together if they come within this time.
        once: the key under which a call is enqueued once; None = each call is.
        once_for: for how long.
        once_key: that of one call.
        known: the same with lane and unique key in the row defaults, by these.
    """

    alias: str
    declaration: Declaration
    defaults: RowDefaults
    lane: TextOfCall | None = None
    unique_key: TextOfCall | None = None
    settle: timedelta | None = None
    once: TextOfCall | None = None
    once_for: timedelta = ONCE_FOR
    known: dict[tuple[str, str | None], BoundFunction] | None = None
    once_key: OnceKey | None = None


@contextmanager
def as_option() -> Iterator[None]:
    """Say of one call what declarations say of theirs: InvalidOption."""
    try:
        yield
    except InvalidDeclaration as error:
        raise InvalidOption(str(error)) from None


def of_call(bound: BoundFunction, args: Sequence[Any], kwargs: Mapping[str, Any]) -> BoundFunction:
    """Return the bound function with the lane and the unique key of this call in its row defaults.

    Raises:
        InvalidOption: the function that makes one of them has failed, or has returned what is none.
        UnknownLane: the settings have no rule for it.
        InvalidArguments: the task function cannot be called like that.
    """
    if bound.lane is None and bound.unique_key is None:
        return bound if bound.once is None else _once(bound, args, kwargs)
    lane = _asked(bound, "lane", bound.lane, args, kwargs) or ""
    key = _asked(bound, "unique_key", bound.unique_key, args, kwargs)
    found = _with_texts_known(bound, lane, key)
    return found if bound.once is None else _once(found, args, kwargs)


def _with_texts_known(bound: BoundFunction, lane: str, key: str | None) -> BoundFunction:
    if bound.known is None:
        return with_texts(bound, lane, key)
    known = bound.known
    found = known.get((lane, key))
    if found is None:
        if len(known) >= REMEMBERED:
            known.clear()
        found = known[lane, key] = with_texts(bound, lane, key)
    return found


def _once(bound: BoundFunction, args: Sequence[Any], kwargs: Mapping[str, Any]) -> BoundFunction:
    """Return the bound function with the key of this call under which it is enqueued once."""
    name = bound.declaration.name
    text = _asked(bound, "once", bound.once, args, kwargs)
    if text is None:
        return bound
    with as_option():
        check_text_of_call(text, name, "once")
    digest = _digest_of("once", name, text)
    return bound._replace(once_key=OnceKey(digest, text, name, bound.once_for))


def with_texts(bound: BoundFunction, lane: str, key: str | None) -> BoundFunction:
    """Return the bound function with this lane and this unique key in its row defaults; empty, None = with none.

    Raises:
        InvalidOption, UnknownLane: see ``of_call``.
    """
    name = bound.declaration.name
    with as_option():
        for option, text, check in (
            ("lane", lane or None, check_lane),
            ("unique_key", key, check_unique_key),
        ):
            if callable(text):
                raise InvalidDeclaration(f"{name} has {option}={text!r}; use text.")
            check(text, name)
    defaults = bound.defaults
    changes: dict[str, Any] = {}
    if lane:
        _refuse_unknown_lane(name, lane)
        changes["lane"] = lane
    if key is not None:
        digest = _digest(defaults.task_name, defaults.queue_name, lane, key)
        changes.update(unique_key=digest, unique_text=key)
        if bound.settle is not None:
            changes["run_after"] = _grid(digest, bound.settle)
    return bound._replace(defaults=defaults._replace(**changes), known=None)


def static_lane(bound: BoundFunction) -> str:
    """Return the lane that does not depend on a call.

    Raises:
        InvalidOption: it does.
    """
    if bound.lane is None or isinstance(bound.lane, str):
        return bound.lane or ""
    raise InvalidOption(
        f"The lane of {bound.declaration.name} depends on the arguments. Say which one: "
        f"{bound.declaration.function.__name__}.using(lane='…')."
    )


def _asked(
    bound: BoundFunction,
    option: str,
    ask: TextOfCall | None,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
) -> str | None:
    """Return a text that may be a function of the arguments."""
    if ask is None or isinstance(ask, str):
        return ask
    declaration = bound.declaration
    if kwargs or len(args) not in declaration.lengths:
        check_call(declaration, args, kwargs)
    try:
        text = ask(args, kwargs)
    except Exception as error:
        raise InvalidOption(
            f"The function that makes the {_NAMES[option]} of {declaration.name} has failed: "
            f"{type(error).__name__}: {error}. It gets the task's arguments by name."
        ) from error
    if text is not None and not isinstance(text, str):
        raise InvalidOption(f"{declaration.name} has {option}={text!r}; use text.")
    return text


_NAMES = {"lane": "lane", "unique_key": "unique key", "once": "key of once"}


def _refuse_unknown_lane(name: str, lane: str) -> None:
    rules = get_config().lanes
    if rules.find(lane) is None:
        known = ", ".join(map(repr, rules.names)) or "none"
        raise UnknownLane(
            f"{name} has lane={lane!r}, for which TXTASKS['lanes'] has no rule; it has {known}. Fix the name or "
            "add a rule; {'weight': 1} is one without a limit."
        )


def _digest(task_name: str, queue_name: str, lane: str, key: str) -> str:
    """Return a key as its column has it: databases differ in which texts they take for the same.

    It looks like a UUID of version 5, with 122 bits of SHA-256 instead of SHA-1: MariaDB refuses what is no UUID,
    and some of version 8, which the RFC would have for it.
    """
    parts = [task_name, queue_name, lane, key] if lane else [task_name, queue_name, key]
    return _digest_of(*parts)


def _digest_of(*parts: str) -> str:
    digest = hashlib.sha256(json.dumps(parts).encode()).digest()
    return uuid.UUID(int=int.from_bytes(digest[:16], "big") & ~_FIXED_BITS | _VERSION_5).hex


def _grid(digest: str, settle: timedelta) -> Edge:
    """Return the edges at which tasks of a key are due together; each key has its own."""
    width = settle // timedelta(microseconds=1)
    return Edge(width, int(digest[:12], 16) % width)


def check_call(declaration: Declaration, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Refuse what the function could not be called with: a worker would find out after the commit."""
    try:
        declaration.signature.bind(*args, **kwargs)
    except TypeError as error:
        raise InvalidArguments(
            f"{declaration.name}{declaration.signature} cannot be called like that: "
            f"{_about_keywords(declaration, kwargs) or f'{error}.'}"
        ) from None


def _about_keywords(declaration: Declaration, kwargs: Mapping[str, Any]) -> str:
    """Return what to say of the first keyword that the function does not know; empty = it knows them all."""
    parameters = declaration.signature.parameters.values()
    known = [
        one.name for one in parameters if one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY)
    ]
    if any(one.kind is one.VAR_KEYWORD for one in parameters):
        return ""
    for name in kwargs:
        if name in known:
            continue
        if name in OF_USING:
            more = f"It is an option: fn.using({name}=…).enqueue(…)."
        elif name in OF_TASK:
            more = f"It is an option: @task({name}=…)."
        elif name in foreign.OPTIONS:
            more = foreign.about_option(name, known)
        else:
            more = foreign.about_name(name, known)
        return f"it has no parameter {name!r}. {more}"
    return ""
