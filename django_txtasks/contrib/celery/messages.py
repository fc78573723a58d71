"""Celery's message in a row, and out of it again.

The row's columns ``args`` and ``kwargs`` have the arguments, as Celery's JSON. All else is in the column
``headers``, without the values that every message has.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from kombu.compression import compress
from kombu.utils import json as celery_json

from django_txtasks.contrib.celery.outgoing import Outgoing
from django_txtasks.core.declaring import registry
from django_txtasks.core.ground import payload
from django_txtasks.database.errors import text_of
from django_txtasks.exceptions import InvalidArguments, Refused
from django_txtasks.features.hand_over.rows import MESSAGE, Row

if TYPE_CHECKING:
    from django_txtasks.contrib.celery.app import Celery

EMBED = "embed"
"""Key of links, chain and chord as text, because a canvas may be nested more deeply than a JSON column allows."""
BODY = "body"
"""Key of a whole body as text, for arguments that a JSON column cannot keep, such as a nested chord or NaN."""
ALSO: dict[str, Any] = {"exchange": "", "routing_key": "", "queues": (), "events": ()}
"""Other keys of a message, with the values that are left out."""
COMPRESSION = "compression"
JSON = ("application/json", "utf-8")
"""Content type and encoding of every message."""
REPRESENTATIONS = {"argsrepr", "kwargsrepr"}
"""Headers with the arguments as people read them."""
NO_ARGUMENTS = ("[]", "{}")
PERSISTENT = 2
"""AMQP's delivery mode of a message that survives a restart of the broker."""


class Template(NamedTuple):
    """The parts that every message of Celery has. Rows leave them out, which halves the column."""

    headers: dict[str, Any]
    embed: dict[str, Any]
    embed_text: str

    @classmethod
    def of(cls, app: Any) -> Template:
        """Return the template of this release of Celery."""
        message = app.amqp.as_task_v2("", "", (), {})
        del message.headers["origin"]  # the process that sends
        embed = message.body[2]
        return cls(message.headers, embed, json.dumps(embed))


def encode(outgoing: Outgoing, template: Template) -> tuple[str, str, dict[str, Any]]:
    """Return the JSON text of the columns ``args`` and ``kwargs``, and the message, which is plain JSON."""
    task_id, name = outgoing.headers["id"], outgoing.headers["task"]
    headers = _beyond(_headers(template, task_id, name), outgoing.headers)
    for key in REPRESENTATIONS & headers.keys():
        headers[key] = payload.clean_text(headers[key])
    message: dict[str, Any] = {
        "id": task_id,
        "headers": headers,
        "properties": _beyond(_properties(task_id), outgoing.properties),
        **{key: getattr(outgoing, key) for key in (*ALSO, COMPRESSION) if getattr(outgoing, key)},
    }
    try:
        args, kwargs = _text(outgoing.args, "args"), _text(outgoing.kwargs, "kwargs")
        if embed := _beyond(template.embed, outgoing.embed):
            message[EMBED] = celery_json.dumps(embed)
    except InvalidArguments:
        args, kwargs = NO_ARGUMENTS
        message[BODY] = celery_json.dumps((outgoing.args, outgoing.kwargs, outgoing.embed))
    return args, kwargs, _plain(message)


class Message(NamedTuple):
    """A message as a broker gets it.

    Attributes:
        id: the id of the row.
        properties: of AMQP, beside headers, priority and the kind of content.
        queues: names of the queues to declare.
        events: the events about it.
        is_kept: the row has it since it was enqueued. Otherwise it is made now, with the app's present settings.
    """

    id: uuid.UUID
    body: bytes
    headers: dict[str, Any]
    properties: dict[str, Any]
    priority: int | None
    exchange: str
    routing_key: str
    queues: Sequence[str]
    events: Sequence[dict[str, Any]]
    is_kept: bool = False


def decode(app: Celery, row: Row, template: Template) -> Message:
    """Return the message of a row. A row that was written without Celery gets one now.

    Raises:
        Refused: the row has a message that cannot be one of Celery, because it was written by hand. Or the row has
            no message, and ``@task`` declares its function, which Celery does not know.
        Exception: the message of this row cannot be made for now; the settings of the app may be the cause.
    """
    args, kwargs, kept = row.args_text, row.kwargs_text, row.headers.get(MESSAGE)
    if kept is None:
        _check_name(app, row.task_name)
        outgoing = app.message_for(row.task_name, row.args, row.kwargs, row.id)
        args, kwargs, message = encode(outgoing, template)
        return _compressed(_message(row, args, kwargs, message, template), message)
    try:
        made = _message(row, args, kwargs, kept, template)
    except Exception as error:
        raise Refused(text_of(error)) from None
    return _compressed(made._replace(is_kept=True), kept)


def _check_name(app: Celery, name: str) -> None:
    """Refuse a function of ``@task`` that Celery does not know: Celery's worker would drop the message."""
    if registry.find(name) is not None and name not in app.tasks:
        raise Refused(
            f"{name} is declared by @task, and Celery does not know it, so Celery's worker would drop the "
            "message. Enqueue it in a queue of runworkers. If a schedule enqueues it, change the queue of the "
            "schedule."
        )


def _message(
    row: Row, args: str, kwargs: str, message: Mapping[str, Any], template: Template
) -> Message:
    task_id, body = message["id"], message.get(BODY)
    if body is None:
        embed = template.embed_text
        if EMBED in message:
            embed = json.dumps({**template.embed, **json.loads(message[EMBED])})
        body = f"[{args},{kwargs},{embed}]"
    headers = {**_headers(template, task_id, row.task_name), **message["headers"]}
    properties = {**_properties(task_id), **message["properties"]}
    if (seconds := properties.get("expiration")) is not None:
        properties["expiration"] = str(int(seconds * 1000))
    return Message(
        row.id, body.encode(), headers, properties, properties.pop("priority", 0),
        *(message.get(key, empty) for key, empty in ALSO.items()),
    )  # fmt: skip


def _compressed(made: Message, message: Mapping[str, Any]) -> Message:
    """Return the message with its body compressed, if it asks for that. The library may be missing here."""
    if COMPRESSION not in message:
        return made
    body, name = compress(made.body, message[COMPRESSION])
    return made._replace(body=body, headers={**made.headers, "compression": name})


def event_of(app: Celery, event: Mapping[str, Any]) -> tuple[Any, str, dict[str, Any]]:
    """Return exchange, routing key and headers of an event, as Celery's dispatcher has them."""
    dispatcher = app.amqp._event_dispatcher
    return dispatcher.exchange, event["type"].replace("-", "."), dispatcher.headers


def _headers(template: Template, task_id: str, name: str) -> dict[str, Any]:
    return {**template.headers, "task": name, "id": task_id, "root_id": task_id}


def _properties(task_id: str) -> dict[str, Any]:
    return {"correlation_id": task_id, "reply_to": "", "delivery_mode": PERSISTENT}


def _beyond(usual: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values that are not the usual ones."""
    return {key: value for key, value in values.items() if key not in usual or usual[key] != value}


def _text(value: Any, name: str) -> str:
    """Return arguments as the JSON text of a column, with Celery's own marks of types."""
    return payload.encode(_plain(value), name=name)


def _plain(value: Any) -> Any:
    return json.loads(celery_json.dumps(value))
