"""The message that Celery would publish for one call, kept instead of published."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from kombu import Exchange, Queue
from kombu.entity import maybe_delivery_mode
from kombu.serialization import registry

from django_txtasks.exceptions import InvalidOption

JSON = "application/json"
ON_ITS_OWN = (
    "exchange_type",
    "retry",
    "retry_policy",
    "timeout",
    "confirm_timeout",
    "mandatory",
    "immediate",
)
"""Arguments of ``Producer.publish`` about the way of sending. The drain has a way of its own."""


class Outgoing(NamedTuple):
    """One message of Celery, before its arguments become text.

    Attributes:
        args, kwargs: the arguments of the task.
        embed: links, chain and chord, as Celery has them in the body of the message.
        queues: names of the queues to declare before it is published.
        properties: what AMQP calls the properties of a message.
        events: the events that Celery publishes about the message, such as ``task-sent``.
    """

    args: Sequence[Any]
    kwargs: Mapping[str, Any]
    embed: Mapping[str, Any]
    headers: Mapping[str, Any]
    properties: Mapping[str, Any]
    exchange: str
    routing_key: str
    queues: Sequence[str] = ()
    compression: str = ""
    events: Sequence[Mapping[str, Any]] = ()


class Publisher:
    """Takes the place of a producer of kombu, and keeps the messages that Celery gives it to publish."""

    def __init__(self, app: Any) -> None:
        self._app = app
        self._published: list[tuple[Any, dict[str, Any]]] = []
        self.connection = _Connection()

    def publish(self, body: Any, **options: Any) -> None:
        """Keep one message: the task's first, then events about it."""
        self._published.append((body, options))

    def outgoing(self) -> Outgoing:
        """Return the kept message.

        Raises:
            InvalidOption: the message cannot be kept in a row.
        """
        (body, options), *events = self._published
        name = options["headers"].get("task", "?")
        _refuse_what_is_not_json(name, body, options.pop("serializer", None))
        queues = self._names_of(name, options.pop("declare", None) or ())
        headers, exchange = options.pop("headers"), options.pop("exchange", "")
        routing_key = options.pop("routing_key", None) or ""
        compression = options.pop("compression", None) or ""
        for key in ON_ITS_OWN:
            options.pop(key, None)
        args, kwargs, embed = body
        options["delivery_mode"] = maybe_delivery_mode(options.get("delivery_mode"))
        return Outgoing(
            args, kwargs, embed, headers, options, _name_of(exchange), routing_key, queues, compression,
            [event for event, _ in events],
        )  # fmt: skip

    def _names_of(self, name: str, declared: Sequence[Any]) -> list[str]:
        """Return the names of queues that Celery would declare. Another process finds them by their names."""
        known = self._app.amqp.queues
        for one in declared:
            is_known = isinstance(one, Queue) and one.name in known and known[one.name] == one
            if not is_known:
                raise InvalidOption(
                    f"{name} is sent with {one!r}, which only this process knows. Add it to Celery's "
                    "task_queues, and send with its name: queue='…'."
                )
        return [one.name for one in declared]


class _Connection:
    """The part of a connection that Celery asks for while it sends."""

    @contextmanager
    def _reraise_as_library_errors(self) -> Iterator[None]:
        yield


class BackendAtRest:
    """A result backend that hears nothing of a new task, and is otherwise itself."""

    def __init__(self, backend: Any) -> None:
        self._backend = backend

    def on_task_call(self, producer: Any, task_id: str) -> None:
        """Do nothing. Redis and RPC would subscribe to the result."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._backend, name)


def _refuse_what_is_not_json(name: str, body: Any, serializer: str | None) -> None:
    kind = registry.name_to_type.get(serializer, serializer)
    if kind != JSON:
        raise InvalidOption(
            f"{name} is sent as {kind!r}, and a row keeps JSON only. Set task_serializer = 'json', or send "
            "this task outside the transaction."
        )
    if not isinstance(body, tuple):
        raise InvalidOption(f"{name} is sent by Celery's protocol 1. Set task_protocol = 2.")


def _name_of(exchange: Any) -> str:
    return exchange.name if isinstance(exchange, Exchange) else str(exchange or "")
