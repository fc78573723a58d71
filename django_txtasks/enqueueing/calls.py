"""From a call to a validated row; everything is checked here, before any SQL.

``bind`` checks a task function with its options, once for all calls. ``of_call`` adds the values that depend on
the arguments: lane, unique key and key of ``once``. ``to_row`` encodes the arguments.
"""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias

from django_txtasks.conf import get_config
from django_txtasks.declarations.arguments import check_call
from django_txtasks.declarations.hooks import HOOKS
from django_txtasks.declarations.registry import Declaration, text_of_hooks
from django_txtasks.declarations.table import OPTIONS, checked, columns_of
from django_txtasks.declarations.values import (
    TextOfCall,
    key_of,
    moment_of,
)
from django_txtasks.enqueueing import parts
from django_txtasks.enqueueing.once import OnceKey
from django_txtasks.enqueueing.parts import CallPart
from django_txtasks.exceptions import (
    InvalidArguments,
    InvalidDeclaration,
    InvalidOption,
    NotATask,
    UnknownLane,
    UnknownQueue,
)
from django_txtasks.lifecycle.enqueueing import Edge, NewTask, RowDefaults, new_id, new_ids
from django_txtasks.links.subjects import Subject, subject_of
from django_txtasks.rules import payload

TASKS_PER_ENCODING = 250
"""Tasks whose arguments are encoded together."""
REMEMBERED = 1000
"""Pairs of lane and unique key of a bound function whose row defaults are remembered."""
ONCE_FOR = timedelta(days=7)
"""Time for which a key of ``once`` is kept, if ``once_for`` is left out."""
_FIXED_BITS = 0xF << 76 | 0x3 << 62
_VERSION_5 = 0x5 << 76 | 0x2 << 62
_NO_KWARGS: Mapping[str, Any] = MappingProxyType({})


class BoundFunction(NamedTuple):
    """A task function with its options, checked once for many calls.

    Attributes:
        defaults: values of the row that all calls share.
        lane: the lane of the calls, or the function that makes it; None: no lane.
        unique_key: the key by which calls are merged, or the function that makes it; None: calls are not merged.
        settle: calls of a key that come within this time are due together.
        once: the key under which a call is enqueued once, or the function that makes it; None: no key.
        once_for: the time for which that key is kept.
        known: the bound function of each pair of lane and unique key that was called before.
        once_key: the key of one call, as its row has it.
        is_external: the code of the task is in another system.
        task_id: the id of one call, if something has it already; None: a new one.
        subjects: the business objects that the tasks are about.
        parts: what features add to the calls.
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
    is_external: bool = False
    task_id: uuid.UUID | None = None
    subjects: tuple[Subject, ...] = ()
    parts: tuple[CallPart, ...] = ()


Call: TypeAlias = tuple[BoundFunction, Sequence[Any], Mapping[str, Any]]
"""A bound function and its arguments."""


def read_call(call: Sequence[Any], bound_functions: dict[int, tuple[Any, BoundFunction]]) -> Call:
    """Return one call of ``enqueue_many``.

    Args:
        bound_functions: functions of earlier calls by ``id()``, which the entry keeps alive; a new one is added.
    """
    if isinstance(call, (tuple, list)) and 1 <= len(call) <= 3:
        args = call[1] if len(call) > 1 else ()
        kwargs = call[2] if len(call) > 2 else _NO_KWARGS
        if isinstance(args, (tuple, list)) and (
            kwargs is _NO_KWARGS or isinstance(kwargs, Mapping)
        ):
            known = bound_functions.get(id(call[0]))
            if known is None:
                known = bound_functions[id(call[0])] = call[0], bind(call[0])
            return of_call(known[1], args, kwargs), args, kwargs
    raise InvalidArguments(
        f"enqueue_many() got {str(call)[:200]}; each call is (function, args) or (function, args, kwargs), "
        "with a tuple or list and a dict."
    )


def bind(function: Any) -> BoundFunction:
    """Return a task function with its options, checked.

    Raises:
        NotATask, InvalidOption, UnknownQueue: before any SQL.
    """
    bound = getattr(function, "_bound", None)
    if isinstance(bound, BoundFunction):  # a TaskFunction that was enqueued before
        check_queue(bound.defaults.queue_name)
        parts.check(bound)
        return bound
    if (base := getattr(function, "without_subject", None)) is not None:
        function._bound = _with_subjects(bind(base), function.options["subject"])
        return function._bound  # type: ignore[no-any-return]
    declaration = getattr(function, "declaration", None)
    if not isinstance(declaration, Declaration):
        raise NotATask(
            f"{function!r} is not a task function. Declare it with @task and pass the decorated name."
        )
    bound = _bound(declaration, function.options)
    if getattr(function, "is_external", False):
        bound = bound._replace(is_external=True)
    parts.check(bound)
    if hasattr(function, "_bound"):
        function._bound = bound
    return bound


def _bound(declaration: Declaration, options: Mapping[str, Any]) -> BoundFunction:
    name = declaration.name
    with as_option():
        said = checked(name, OPTIONS.whole.of_using, options)
        lane, key, once = (
            _of_call(option, said.get(option) or getattr(declaration, option), declaration)
            for option in ("lane", "unique_key", "once")
        )
    settle = said.get("settle") or declaration.settle
    once_for = said.get("once_for") or declaration.once_for
    if settle is not None and key is None:
        raise InvalidOption(
            f"{name} has settle= without unique_key=: say which of its tasks are the same."
        )
    if settle is not None and "run_after" in said:
        raise InvalidOption(
            f"{name} has settle= and run_after=: settle says when it may run. Leave one of them out."
        )
    if once_for is not None and once is None and not declaration.intake:
        raise InvalidOption(f"{name} has once_for= without once=: say which calls are the same.")
    expires = said.get("expires")
    defaults = RowDefaults(
        task_name=name,
        queue_name=check_queue(said.get("queue_name") or declaration.queue_name),
        run_after=said.get("run_after"),
        expires_at=moment_of(name, "expires", declaration.expires) if expires is None else expires,
        on_crash=declaration.on_crash,
        hooks=_hooks(declaration, said),
        **columns_of({**declaration.columns, **said}),
    )
    bound = BoundFunction(
        said.get("using") or "default",
        declaration,
        defaults,
        lane,
        key,
        settle,
        once,
        once_for or ONCE_FOR,
        {},
    )
    return _with_subjects(bound, said["subject"]) if "subject" in said else _with_parts(bound)


def _of_call(option: str, value: Any, declaration: Declaration) -> Any:
    """Return an option's value in the form that calls read; see ``Option``."""
    entry = OPTIONS.whole.of_using.get(option)
    if entry is None or entry.of_call is None:
        return value
    return entry.of_call(value, declaration, option)


def _with_parts(bound: BoundFunction) -> BoundFunction:
    return bound._replace(parts=parts.of_function(bound))


def _with_subjects(bound: BoundFunction, subject: Any) -> BoundFunction:
    """Return the bound function with these business objects. Nothing that it remembers of other calls has them."""
    name = bound.declaration.name
    where = f"{name} has subject="
    subjects = OPTIONS.whole.of_using["subject"].check(name, "subject", subject)
    found = [subject_of(one, bound.alias, where) for one in subjects]
    return _with_parts(bound._replace(subjects=tuple(dict.fromkeys(found)), known=None))


def changed(calls: Sequence[Call], **changes: Any) -> list[Call]:
    """Return these calls with changes in their row defaults."""
    known: dict[int, BoundFunction] = {}
    found = []
    for bound, args, kwargs in calls:
        if id(bound) not in known:
            known[id(bound)] = bound._replace(defaults=bound.defaults._replace(**changes))
        found.append((known[id(bound)], args, kwargs))
    return found


def _hooks(declaration: Declaration, said: Mapping[str, Any]) -> str:
    own = {hook: said[hook] for hook in HOOKS if hook in said}
    return text_of_hooks({**declaration.hooks, **own}) if own else declaration.hooks_text


@contextmanager
def as_option() -> Iterator[None]:
    """Turn InvalidDeclaration into InvalidOption: the value is an option of one call."""
    try:
        yield
    except InvalidDeclaration as error:
        raise InvalidOption(str(error)) from None


def of_call(bound: BoundFunction, args: Sequence[Any], kwargs: Mapping[str, Any]) -> BoundFunction:
    """Return the bound function with lane and unique key of this call in its row defaults.

    Raises:
        InvalidOption: a function that makes lane or key raised, or returned a value that is neither text nor None.
        UnknownLane: the settings have no rule for the lane.
        InvalidArguments: the task function does not take these arguments.
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
    """Return the bound function with this call's key of ``once``."""
    name = bound.declaration.name
    text = _asked(bound, "once", bound.once, args, kwargs)
    if text is None:
        return bound
    with as_option():
        key_of(name, "once", text)
    digest = _digest_of("once", bound.declaration.oldest_name, text)
    return bound._replace(once_key=OnceKey(digest, text, name, bound.once_for))


def with_texts(bound: BoundFunction, lane: str, key: str | None) -> BoundFunction:
    """Return the bound function with this lane and this unique key in its row defaults; "" and None: without.

    Raises:
        InvalidOption, UnknownLane: see ``of_call``.
    """
    name = bound.declaration.name
    with as_option():
        for option, text in (("lane", lane or None), ("unique_key", key)):
            if callable(text):
                raise InvalidDeclaration(f"{name} has {option}={text!r}; use text.")
            if text is not None:
                OPTIONS.whole.of_using[option].check(name, option, text)
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
    """Return the lane of a function whose lane is text; "" for no lane.

    Raises:
        InvalidOption: the lane depends on the arguments.
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
    """Return an option's text; its function is called with the arguments."""
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
    """Return the value of the key's column: a digest, because databases differ in which texts they call equal.

    It has the form of a UUID of version 5, with 122 bits of SHA-256 instead of SHA-1. RFC 9562 has version 8 for
    this, but MariaDB refuses some UUIDs of version 8, as it refuses text that is no UUID.
    """
    parts = [task_name, queue_name, lane, key] if lane else [task_name, queue_name, key]
    return _digest_of(*parts)


def _digest_of(*parts: str) -> str:
    digest = hashlib.sha256(json.dumps(parts).encode()).digest()
    return uuid.UUID(int=int.from_bytes(digest[:16], "big") & ~_FIXED_BITS | _VERSION_5).hex


def _grid(digest: str, settle: timedelta) -> Edge:
    """Return the edges at which the tasks of a key are due together; each key has its own offset."""
    width = settle // timedelta(microseconds=1)
    return Edge(width, int(digest[:12], 16) % width)


def to_row(call: Call) -> NewTask:
    """Return the validated row of one call."""
    bound, args, kwargs = call
    return _row(bound, args, kwargs, payload.encode(args, name="args"), bound.task_id or new_id())


def to_rows(calls: Sequence[Call]) -> Iterator[NewTask]:
    """Yield the validated row of each call; ids rise in the order of the calls."""
    ids = new_ids(len(calls))
    for start in range(0, len(calls), TASKS_PER_ENCODING):
        some = calls[start : start + TASKS_PER_ENCODING]
        encoded = payload.encode_each([args for _, args, _ in some], name="args")
        for (bound, args, kwargs), text in zip(some, encoded, strict=True):
            yield _row(bound, args, kwargs, text, next(ids))


def _row(
    bound: BoundFunction,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    encoded_args: str,
    task_id: uuid.UUID,
) -> NewTask:
    if kwargs or len(args) not in bound.declaration.lengths:
        check_call(bound.declaration, args, kwargs)
    encoded_kwargs = payload.encode(dict(kwargs), name="kwargs") if kwargs else "{}"
    if len(encoded_args) + len(encoded_kwargs) > payload.MAX_BYTES:
        raise InvalidArguments(
            f"args and kwargs are more than {payload.MAX_BYTES:,} bytes of JSON together. "
            "Store the data in a model or a file and pass its id."
        )
    return NewTask(task_id, bound.defaults, encoded_args, encoded_kwargs)


def check_queue(name: str) -> str:
    """Return a queue's name.

    Raises:
        UnknownQueue: the settings do not have it.
    """
    queues = get_config().queues
    if name not in queues:
        raise UnknownQueue(
            f"Queue {name!r} is not served: TXTASKS['queues'] has {', '.join(map(repr, queues))}. "
            "Fix the name or add the queue."
        )
    return name
