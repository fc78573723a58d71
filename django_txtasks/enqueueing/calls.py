"""A call that is to become a row: everything is validated here, before any SQL sees it."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Any, TypeAlias

from django_txtasks.conf import get_config
from django_txtasks.declarations.declaring import (
    HOOKS,
    ONCE_FOR,
    by_name,
    check_lane,
    check_limit,
    check_priority,
    check_text_of_call,
    check_unique_key,
    from_now,
    seconds_of,
    settle_of,
    span_of,
    spec_of_hook,
)
from django_txtasks.declarations.registry import Declaration, Options, TextOfCall, text_of_hooks
from django_txtasks.enqueueing.per_call import BoundFunction, as_option, check_call, of_call
from django_txtasks.exceptions import (
    InvalidArguments,
    InvalidOption,
    NotATask,
    UnknownQueue,
)
from django_txtasks.lifecycle.enqueueing import NewTask, RowDefaults, new_id, new_ids
from django_txtasks.rules import payload

TASKS_PER_ENCODING = 250
"""Tasks whose arguments are encoded in one go."""

FARTHEST = timedelta(days=36525)


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
            return of_call(known[1], args, kwargs), args, kwargs
    raise InvalidArguments(
        f"enqueue_many() got {str(call)[:200]}; each call is (function, args) or (function, args, kwargs), "
        "with a tuple or list and a dict."
    )


def bind(function: Any) -> BoundFunction:
    """Return what all calls of this function share, validated. No SQL is run before it is there."""
    bound = getattr(function, "_bound", None)
    if isinstance(bound, BoundFunction):  # a TaskFunction that was enqueued before
        check_queue(bound.defaults.queue_name)
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
        queue_name=check_queue(options.queue_name or declaration.queue_name),
        priority=priority,
        run_after=_time(options.run_after, "run_after"),
        expires_at=_time(
            declaration.expires if options.expires is None else options.expires, "expires"
        ),
        on_crash=declaration.on_crash,
        **_limits(declaration, options),
        hooks=_hooks(declaration, options),
    )
    lane = declaration.lane if options.lane is None else options.lane
    with as_option():
        check_lane(lane, declaration.name)
        lane = by_name(lane, declaration, "lane")
    return BoundFunction(
        options.using or "default",
        declaration,
        defaults,
        lane,
        *_uniqueness(declaration, options),
        *_once(declaration, options),
        {},
    )


def _uniqueness(
    declaration: Declaration, options: Options
) -> tuple[TextOfCall | None, timedelta | None]:
    key = declaration.unique_key if options.unique_key is None else options.unique_key
    with as_option():
        check_unique_key(key, declaration.name)
        key = by_name(key, declaration, "unique_key")
        settle = settle_of(options.settle, declaration.name) or declaration.settle
    if settle is not None and key is None:
        raise InvalidOption(
            f"{declaration.name} has settle= without unique_key=: say which of its tasks are the same."
        )
    if settle is not None and options.run_after is not None:
        raise InvalidOption(
            f"{declaration.name} has settle= and run_after=: settle says when it may run. Leave one of them out."
        )
    return key, settle


def _once(declaration: Declaration, options: Options) -> tuple[TextOfCall | None, timedelta]:
    once = declaration.once if options.once is None else options.once
    with as_option():
        check_text_of_call(once, declaration.name, "once")
        once = by_name(once, declaration, "once")
        span = span_of(options.once_for, declaration.name, "once_for") or declaration.once_for
    if span is not None and once is None:
        raise InvalidOption(
            f"{declaration.name} has once_for= without once=: say which calls are the same."
        )
    return once, span or ONCE_FOR


def _limits(declaration: Declaration, options: Options) -> dict[str, Any]:
    name = declaration.name
    limits: dict[str, Any] = {}
    with as_option():
        for option in ("max_attempts", "max_crashes"):
            asked = getattr(options, option)
            if asked is not None:
                check_limit(option, asked, name)
            limits[option] = getattr(declaration, option) if asked is None else asked
        asked = seconds_of(options.timeout, name)
    return {**limits, "timeout": declaration.timeout if asked is None else asked}


def _hooks(declaration: Declaration, options: Options) -> str:
    asked = {option: getattr(options, option) for option in HOOKS if getattr(options, option, None)}
    if not asked:
        return declaration.hooks_text
    with as_option():
        specs = {
            option: spec_of_hook(hook, option, declaration.name) for option, hook in asked.items()
        }
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
