"""A call that is to become a row: everything is validated here, before any SQL sees it."""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta, timezone
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias

from django_txtasks import foreign, payload
from django_txtasks.conf import get_config
from django_txtasks.declaring import (
    HOOKS,
    OF_TASK,
    OF_USING,
    check_limit,
    check_priority,
    check_unique_key,
    from_now,
    seconds_of,
    settle_of,
    spec_of_hook,
)
from django_txtasks.exceptions import (
    InvalidArguments,
    InvalidDeclaration,
    InvalidOption,
    NotATask,
    UnknownQueue,
)
from django_txtasks.lifecycle.enqueueing import NewTask, RowDefaults, new_id, new_ids
from django_txtasks.registry import Declaration, Options, UniqueKey, text_of_hooks

TASKS_PER_ENCODING = 250
"""Tasks whose arguments are encoded in one go."""

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_FIXED_BITS = 0xF << 76 | 0x3 << 62
_VERSION_5 = 0x5 << 76 | 0x2 << 62
REMEMBERED_KEYS = 1000
"""Unique keys of a bound function whose row defaults are remembered."""
FARTHEST = timedelta(days=36525)


class BoundFunction(NamedTuple):
    """What all calls of a function share: database, declaration, row defaults.

    Attributes:
        unique_key: what makes two calls the same task; None = nothing does.
        settle: they are due together if they come within this time.
        keyed: the same with a unique key in the row defaults, by the key's text.
    """

    alias: str
    declaration: Declaration
    defaults: RowDefaults
    unique_key: UniqueKey | None = None
    settle: timedelta | None = None
    keyed: dict[str, BoundFunction] | None = None


Call: TypeAlias = tuple[BoundFunction, Sequence[Any], Mapping[str, Any]]
"""A bound function, and what it is to be called with."""
_NO_KWARGS: Mapping[str, Any] = MappingProxyType({})


def read_call(call: Sequence[Any], bound_functions: dict[int, tuple[Any, BoundFunction]]) -> Call:
    """Return what one call of ``enqueue_many`` wants.

    Args:
        bound_functions: functions found before, by ``id()``, which stays theirs; a new one is added.
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
            return with_key(known[1], args, kwargs), args, kwargs
    raise InvalidArguments(
        f"enqueue_many() got {str(call)[:200]}; each call is (function, args) or (function, args, kwargs), "
        "with a tuple or list and a dict."
    )


def bind(function: Any) -> BoundFunction:
    """Return what all calls of this function share, validated. No SQL is run before it is there."""
    bound = getattr(function, "_bound", None)
    if isinstance(bound, BoundFunction):  # a TaskFunction that was enqueued before
        _check_queue(bound.defaults.queue_name)
        return bound
    declaration = getattr(function, "declaration", None)
    if not isinstance(declaration, Declaration):
        raise NotATask(
            f"{function!r} is not a task function. Declare it with @task and pass the decorated name."
        )
    bound = _bound(declaration, function.options)
    if hasattr(function, "_bound"):
        function._bound = bound
    return bound


def _bound(declaration: Declaration, options: Options) -> BoundFunction:
    priority = declaration.priority if options.priority is None else options.priority
    check_priority(priority, declaration.name)
    defaults = RowDefaults(
        task_name=declaration.name,
        queue_name=_check_queue(options.queue_name or declaration.queue_name),
        priority=priority,
        run_after=_time(options.run_after, "run_after"),
        expires_at=_time(
            declaration.expires if options.expires is None else options.expires, "expires"
        ),
        on_crash=declaration.on_crash,
        **_limits(declaration, options),
        hooks=_hooks(declaration, options),
    )
    return BoundFunction(
        options.using or "default", declaration, defaults, *_uniqueness(declaration, options), {}
    )


def _uniqueness(
    declaration: Declaration, options: Options
) -> tuple[UniqueKey | None, timedelta | None]:
    key = declaration.unique_key if options.unique_key is None else options.unique_key
    try:
        check_unique_key(key, declaration.name)
        settle = settle_of(options.settle, declaration.name) or declaration.settle
    except InvalidDeclaration as error:
        raise InvalidOption(str(error)) from None
    if settle is not None and key is None:
        raise InvalidOption(
            f"{declaration.name} has settle= without unique_key=: say which of its tasks are the same."
        )
    if settle is not None and options.run_after is not None:
        raise InvalidOption(
            f"{declaration.name} has settle= and run_after=: settle says when it may run. Leave one of them out."
        )
    return key, settle


def with_key(bound: BoundFunction, args: Sequence[Any], kwargs: Mapping[str, Any]) -> BoundFunction:
    """Return the bound function with the unique key of this call in its row defaults, if calls have one.

    Raises:
        InvalidOption: the key's own function has failed, or has returned what is no key.
        InvalidArguments: the task function cannot be called like that.
    """
    ask = bound.unique_key
    if ask is None:
        return bound
    declaration = bound.declaration
    if not isinstance(ask, str):
        if kwargs or len(args) not in declaration.lengths:
            _check_call(declaration, args, kwargs)
        ask = _asked_key(declaration, ask, args, kwargs)
        if ask is None:
            return bound
    known = {} if bound.keyed is None else bound.keyed
    keyed = known.get(ask)
    if keyed is None or bound.settle is not None:
        if len(known) >= REMEMBERED_KEYS:
            known.clear()
        keyed = known[ask] = with_text(bound, ask)
    return keyed


def with_text(bound: BoundFunction, key: str) -> BoundFunction:
    """Return the bound function with this unique key in its row defaults.

    Raises:
        InvalidOption: it is no key.
    """
    try:
        if not isinstance(key, str):
            raise InvalidDeclaration(f"unique_key={key!r} is no text.")
        check_unique_key(key, bound.declaration.name)
    except InvalidDeclaration as error:
        raise InvalidOption(str(error)) from None
    defaults = bound.defaults
    digest = _digest(defaults.task_name, defaults.queue_name, key)
    more: dict[str, Any] = {}
    if bound.settle is not None:
        more["run_after"] = next_edge(digest, bound.settle, datetime.now(timezone.utc))
    return bound._replace(
        defaults=defaults._replace(unique_key=digest, unique_text=key, **more), keyed=None
    )


def _asked_key(
    declaration: Declaration, ask: Any, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> str | None:
    try:
        key = ask(*args, **kwargs)
    except Exception as error:
        raise InvalidOption(
            f"The function that makes the unique key of {declaration.name} has failed: "
            f"{type(error).__name__}: {error}. It gets the arguments of the task."
        ) from error
    if key is None:
        return None
    try:
        if callable(key):
            raise InvalidDeclaration(f"{declaration.name} has unique_key={key!r}; use text.")
        check_unique_key(key, declaration.name)
    except InvalidDeclaration as error:
        raise InvalidOption(str(error)) from None
    return str(key)


def _digest(task_name: str, queue_name: str, key: str) -> str:
    """Return a key as its column has it: databases differ in which texts they take for the same.

    It looks like a UUID of version 5, with 122 bits of SHA-256 instead of SHA-1: MariaDB refuses what is no UUID,
    and some of version 8, which the RFC would have for it.
    """
    digest = hashlib.sha256(json.dumps([task_name, queue_name, key]).encode()).digest()
    return uuid.UUID(int=int.from_bytes(digest[:16], "big") & ~_FIXED_BITS | _VERSION_5).hex


def next_edge(digest: str, settle: timedelta, now: datetime) -> datetime:
    """Return the next edge of a grid of this width, which is another one for each key.

    All that comes until then is due together, however often the key is asked for.

    Args:
        now: by this host's clock: those of others may have the edge a moment sooner or later, which is a run more.
    """
    tick = timedelta(microseconds=1)
    width = settle // tick
    since = ((now - _EPOCH) // tick - int(digest[:12], 16)) % width
    return now + (width - since) * tick


def _limits(declaration: Declaration, options: Options) -> dict[str, Any]:
    name = declaration.name
    limits: dict[str, Any] = {}
    try:
        for option in ("max_attempts", "max_crashes"):
            asked = getattr(options, option)
            if asked is not None:
                check_limit(option, asked, name)
            limits[option] = getattr(declaration, option) if asked is None else asked
        asked = seconds_of(options.timeout, name)
    except InvalidDeclaration as error:
        raise InvalidOption(str(error)) from None
    return {**limits, "timeout": declaration.timeout if asked is None else asked}


def _hooks(declaration: Declaration, options: Options) -> str:
    asked = {option: getattr(options, option) for option in HOOKS if getattr(options, option, None)}
    if not asked:
        return declaration.hooks_text
    try:
        specs = {
            option: spec_of_hook(hook, option, declaration.name) for option, hook in asked.items()
        }
    except InvalidDeclaration as error:
        raise InvalidOption(str(error)) from None
    return text_of_hooks({**declaration.hooks, **specs})


def to_row(call: Call) -> NewTask:
    """Return the validated row of one call."""
    bound, args, kwargs = call
    return _row(bound, args, kwargs, payload.encode(args, name="args"), new_id())


def to_rows(calls: Sequence[Call]) -> Iterator[NewTask]:
    """Yield the validated row of each of many calls; ids rise in the order of the calls."""
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
        _check_call(bound.declaration, args, kwargs)
    encoded_kwargs = payload.encode(dict(kwargs), name="kwargs") if kwargs else "{}"
    if len(encoded_args) + len(encoded_kwargs) > payload.MAX_BYTES:
        raise InvalidArguments(
            f"args and kwargs are more than {payload.MAX_BYTES:,} bytes of JSON together. "
            "Store the data in a model or a file and pass its id."
        )
    return NewTask(task_id, bound.defaults, encoded_args, encoded_kwargs)


def _check_call(declaration: Declaration, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
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


def _check_queue(name: str) -> str:
    queues = get_config().queues
    if name not in queues:
        raise UnknownQueue(
            f"Queue {name!r} is not served: TXTASKS['queues'] has {', '.join(map(repr, queues))}. "
            "Fix the name or add the queue."
        )
    return name


def _time(value: Any, name: str) -> datetime | timedelta | None:
    if value is None:
        return value
    value = from_now(value, name)
    if isinstance(value, timedelta):
        if abs(value) > FARTHEST:
            raise InvalidOption(f"{name} is {value}, more than 100 years away.")
        return value
    if not isinstance(value, datetime):
        raise InvalidOption(f"{name} is {value!r}; use an aware datetime, a timedelta, or seconds.")
    if value.utcoffset() is None:
        raise InvalidOption(
            f"{name} is the naive datetime {value}: in which time zone? Use django.utils.timezone.now() "
            "or make_aware(), or a timedelta."
        )
    if not 1970 <= value.year <= 9000:
        raise InvalidOption(f"{name} is {value}; it must be between the years 1970 and 9000.")
    return value
