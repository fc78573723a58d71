"""From a message to a checked call, without the database.

Body: a JSON object with ``task``, the function's name, and its ``args`` and ``kwargs``. Property ``message_id``:
each id counts once for a function. Header ``perform_at``: the earliest start.
"""

from __future__ import annotations

import json
import re
from datetime import datetime, timezone
from decimal import Decimal
from typing import Any

from django.utils.dateparse import parse_datetime

from django_txtasks.core.declaring import registry
from django_txtasks.core.declaring.values import moment_of
from django_txtasks.core.enqueueing.calls import bind, read_call, to_row
from django_txtasks.core.ground.payload import MAX_BYTES, clean_text
from django_txtasks.exceptions import TxTasksError, UnknownTask
from django_txtasks.functions import TaskFunction
from django_txtasks.hints.broker.incoming import IncomingMessage

MAX_BODY_BYTES = 2 * MAX_BYTES
"""Longest body, in bytes. The arguments have their own limit, but JSON can be written with spaces and escapes."""
MAX_REASON_CHARACTERS = 1000
PERFORM_AT = "perform_at"
_SECONDS = re.compile(r"[0-9]{9,11}([.][0-9]+)?")
"""A Unix time as text. Fewer digits may be a date such as 20301231."""
KEYS = ("task", "args", "kwargs", "id", "enqueued_at")
"""Keys of a body. The last two are for people."""
MessageCall = tuple[TaskFunction[..., Any], list[Any], dict[str, Any]]
"""A call for ``enqueue_many``."""


class Refused(Exception):
    """The message can become no task; the text has the reason."""

    def __init__(self, reason: str) -> None:
        super().__init__(clean_text(reason, MAX_REASON_CHARACTERS))


def check_functions(alias: str) -> list[str]:
    """Return the names of the functions that messages may enqueue, sorted.

    Raises:
        UnknownTask: no function may be enqueued so.
        UnknownQueue, InvalidOption: a message for one of them could not be enqueued because of the settings.
    """
    found = [one for one in registry.declarations() if one.intake]
    if not found:
        raise UnknownTask(
            "No installed app declares a task function with @task(intake=True), so each message would be refused."
        )
    for declaration in found:
        bind(TaskFunction(declaration.function, declaration).using(using=alias))
    return [one.name for one in found]


def read(alias: str, message: IncomingMessage) -> MessageCall:
    """Return the call that a message asks for, after all checks that need no database.

    Raises:
        Refused: see the text.
    """
    if message.unreadable:
        raise Refused(f"its properties cannot be read: {message.unreadable}")
    wanted = _object(message.body)
    function = _function(wanted.get("task"))
    args, kwargs = wanted.get("args", []), wanted.get("kwargs", {})
    if not isinstance(args, list) or not isinstance(kwargs, dict):
        raise Refused(
            f"args is {type(args).__name__} and kwargs is {type(kwargs).__name__}; use a JSON array and a JSON "
            "object."
        )
    try:
        told = function.using(
            using=alias, once=_message_id(message.properties), run_after=_moment(message.properties)
        )
        to_row(read_call((told, args, kwargs), {}))
    except TxTasksError as error:
        raise Refused(str(error)) from None
    return told, args, kwargs


def _object(body: bytes) -> dict[str, Any]:
    if len(body) > MAX_BODY_BYTES:
        raise Refused(
            f"its body has {len(body):,} bytes, more than {MAX_BODY_BYTES:,}. Store the data elsewhere and send "
            "its id."
        )
    try:
        wanted = json.loads(body)
    except (
        ValueError,
        RecursionError,
    ) as error:  # ValueError: also no text, and an integer of 5,000 digits
        raise Refused(f"its body is not JSON: {type(error).__name__}: {error}") from None
    if not isinstance(wanted, dict):
        raise Refused(f"its body is a JSON {type(wanted).__name__}, not a JSON object.")
    for key in wanted:
        if key not in KEYS:
            raise Refused(
                f"its body has the unknown key {key[:100]!r}; known are {', '.join(KEYS)}."
            )
    return wanted


def _function(name: Any) -> TaskFunction[..., Any]:
    """Return the function. Only the registry is asked: no module is imported because a message names it."""
    if not isinstance(name, str):
        raise Refused("its body names no task: task must be the text module.function.")
    declaration = registry.find(name)
    if declaration is None:
        raise Refused(f"no installed app declares a task function {name[:200]!r}.")
    if not declaration.intake:
        raise Refused(
            f"{name} is not declared with @task(intake=True), so no message may enqueue it."
        )
    return TaskFunction(declaration.function, declaration)


def _message_id(properties: Any) -> str:
    found = properties.message_id
    if not isinstance(found, str) or not found:
        raise Refused(
            "it has no message_id. RabbitMQ may deliver a message twice, and without an id this would be a second "
            "task."
        )
    return found


def _moment(properties: Any) -> Any:
    """Return the earliest start; None: now.

    A time that has passed is now, by this machine's clock: otherwise the task would overtake all that wait.
    """
    moment = moment_of("the message", PERFORM_AT, _said(properties))
    is_past = isinstance(moment, datetime) and moment <= datetime.now(timezone.utc)
    return None if is_past else moment


def _said(properties: Any) -> Any:
    """Return the time in the header: ISO 8601 with an offset, a Unix time in seconds, or a timestamp of AMQP."""
    value: Any = (properties.headers or {}).get(PERFORM_AT)
    moment = value
    try:
        is_number = isinstance(value, (int, float, Decimal)) and not isinstance(value, bool)
        if is_number or (isinstance(value, str) and _SECONDS.fullmatch(value)):
            moment = datetime.fromtimestamp(float(value), timezone.utc)
        elif isinstance(value, str):
            moment = parse_datetime(value)
        elif isinstance(value, datetime) and value.tzinfo is None:  # pika before 1.4
            moment = value.replace(tzinfo=timezone.utc)
    except (ValueError, OverflowError, OSError):
        moment = None
    if value is not None and not isinstance(moment, datetime):
        raise Refused(
            f"its header {PERFORM_AT} is {value!r}; use ISO 8601 with an offset, such as 2026-12-01T08:00:00Z, or "
            "seconds since 1970 (not milliseconds)."
        )
    return moment
