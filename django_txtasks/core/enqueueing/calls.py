"""From a call to a validated row; everything is checked here, before any SQL.

``bind`` checks a task function with its options, once for all calls. ``of_call`` adds the values that depend on
the arguments, which the parts of features know. ``to_row`` encodes the arguments.
"""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias

from django_txtasks.core.declaring.arguments import check_call
from django_txtasks.core.declaring.hooks import HOOKS
from django_txtasks.core.declaring.registry import Declaration, text_of_hooks
from django_txtasks.core.declaring.table import OPTIONS, checked, columns_of
from django_txtasks.core.declaring.values import TextOfCall, moment_of
from django_txtasks.core.enqueueing import parts
from django_txtasks.core.enqueueing.parts import CallPart
from django_txtasks.core.ground import payload
from django_txtasks.core.ground.config import get_config
from django_txtasks.core.rows.enqueueing import NewTask, RowDefaults, new_id, new_ids
from django_txtasks.exceptions import (
    InvalidArguments,
    InvalidDeclaration,
    InvalidOption,
    NotATask,
    UnknownQueue,
)

TASKS_PER_ENCODING = 250
"""Tasks whose arguments are encoded together."""
REMEMBERED = 1000
"""Tuples of texts of a bound function whose row defaults are remembered."""
_FIXED_BITS = 0xF << 76 | 0x3 << 62
_VERSION_5 = 0x5 << 76 | 0x2 << 62
_NO_KWARGS: Mapping[str, Any] = MappingProxyType({})
NO_VALUES: Mapping[str, Any] = MappingProxyType({})


class Asked(NamedTuple):
    """An option whose text each call has: the text, or a function that makes it of the task's arguments.

    Attributes:
        title: the name of the text in errors.
    """

    option: str
    ask: TextOfCall
    title: str


class BoundFunction(NamedTuple):
    """A task function with its options, checked once for many calls.

    Attributes:
        defaults: values of the row that all calls share.
        values: the options of features, by name, as the parts of these features read them.
        asked: the options that decide values of the row by a text of each call.
        known: the bound function of each tuple of texts that was called before; None: nothing is remembered.
        is_external: the code of the task is in another system.
        task_id: the id of one call, if something has it already; None: a new one.
        parts: what features add to the writing of the calls.
        of_each: parts that add a value to each call.
    """

    alias: str
    declaration: Declaration
    defaults: RowDefaults
    values: Mapping[str, Any] = NO_VALUES
    asked: tuple[Asked, ...] = ()
    known: dict[tuple[str | None, ...], BoundFunction] | None = None
    is_external: bool = False
    task_id: uuid.UUID | None = None
    parts: tuple[CallPart, ...] = ()
    of_each: tuple[CallPart, ...] = ()

    def having(self, **values: Any) -> BoundFunction:
        """Return this function with further values of features."""
        return self._replace(values={**self.values, **values})


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
    if (base := getattr(function, "base", None)) is not None:
        function._bound = _with_options(bind(base), function.own_options)
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
    bound = BoundFunction(said.get("using") or "default", declaration, defaults, known={})
    for bind_part in parts.parts().binds:
        bound = bind_part(bound, said)
    return _with_parts(bound)


def _with_options(bound: BoundFunction, options: Mapping[str, Any]) -> BoundFunction:
    """Return a bound function with options that only one call has. It remembers nothing of other calls."""
    said = checked(bound.declaration.name, OPTIONS.whole.of_using, options)
    bound = bound._replace(known=None)
    for part in parts.parts().of_calls:
        if not said.keys().isdisjoint(part.options):
            bound = part.bind(bound, said)
    return _with_parts(bound)


def _with_parts(bound: BoundFunction) -> BoundFunction:
    found = parts.of_function(bound)
    each = tuple(one for one in found if type(one).of_call is not CallPart.of_call)
    return bound._replace(parts=found, of_each=each)


def option_of(bound: BoundFunction, said: Mapping[str, Any], option: str) -> Any:
    """Return the value of an option of ``using()``, or else of ``@task``, in the form that calls read."""
    value = said.get(option) or getattr(bound.declaration, option)
    entry = OPTIONS.whole.of_using[option]
    if entry.of_call is None:
        return value
    with as_option():
        return entry.of_call(value, bound.declaration, option)


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
    """Return the bound function with what depends on the arguments of this call.

    Raises:
        InvalidOption: a function that makes a text raised, or returned a value that is neither text nor None.
        UnknownLane: the settings have no rule for the lane.
        InvalidArguments: the task function does not take these arguments.
    """
    if bound.asked:
        texts = [text_of(bound, one, args, kwargs) for one in bound.asked]
        bound = _with_texts_known(bound, tuple(texts))
    for part in bound.of_each:
        bound = part.of_call(bound, args, kwargs)
    return bound


def _with_texts_known(bound: BoundFunction, texts: tuple[str | None, ...]) -> BoundFunction:
    known = bound.known
    found = None if known is None else known.get(texts)
    if found is None:
        options = [one.option for one in bound.asked]
        found = with_texts(bound, dict(zip(options, texts, strict=True)))
        if known is not None:
            if len(known) >= REMEMBERED:
                known.clear()
            known[texts] = found
    return found


def with_texts(bound: BoundFunction, texts: Mapping[str, str | None]) -> BoundFunction:
    """Return the bound function with the values of the row that these texts of options decide.

    Raises:
        InvalidOption, UnknownLane: see ``of_call``.
    """
    changes: dict[str, Any] = {}
    for columns in parts.parts().columns:
        changes.update(columns(bound, texts))
    return bound._replace(defaults=bound.defaults._replace(**changes), known=None)


def checked_text(bound: BoundFunction, option: str, text: Any) -> str:
    """Return the text of an option, checked.

    Raises:
        InvalidOption: no text, or text that the option cannot have.
    """
    name = bound.declaration.name
    with as_option():
        if callable(text):
            raise InvalidDeclaration(f"{name} has {option}={text!r}; use text.")
        return str(OPTIONS.whole.of_using[option].check(name, option, text))


def text_of(
    bound: BoundFunction, asked: Asked, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> str | None:
    """Return an option's text for one call; its function is called with the arguments."""
    option, ask, title = asked
    if isinstance(ask, str):
        return ask
    declaration = bound.declaration
    if kwargs or len(args) not in declaration.lengths:
        check_call(declaration, args, kwargs)
    try:
        text = ask(args, kwargs)
    except Exception as error:
        raise InvalidOption(
            f"The function that makes the {title} of {declaration.name} has failed: "
            f"{type(error).__name__}: {error}. It gets the task's arguments by name."
        ) from error
    if text is not None and not isinstance(text, str):
        raise InvalidOption(f"{declaration.name} has {option}={text!r}; use text.")
    return text


def digest_of(*texts: str) -> str:
    """Return a digest of texts, because databases differ in which texts they call equal.

    It has the form of a UUID of version 5, with 122 bits of SHA-256 instead of SHA-1. RFC 9562 has version 8 for
    this, but MariaDB refuses some UUIDs of version 8, as it refuses text that is no UUID.
    """
    digest = hashlib.sha256(json.dumps(texts).encode()).digest()
    return uuid.UUID(int=int.from_bytes(digest[:16], "big") & ~_FIXED_BITS | _VERSION_5).hex


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
