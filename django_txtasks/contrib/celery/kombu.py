"""Messages by kombu's producer, one after the other, for transports such as Redis, SQS and a directory."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from typing import Any

from django_txtasks.contrib.celery.messages import JSON, Message, event_of
from django_txtasks.database.errors import text_of
from django_txtasks.features.hand_over.target import Answers


class KombuSender:
    """Publishes on one connection. When ``publish`` returns, the broker has the message.

    It refuses no row: each transport has its own errors, and most of them are about a setting of the site.

    Args:
        connection: an open connection of kombu.
    """

    blocked = ""

    def __init__(self, app: Any, connection: Any) -> None:
        self._app, self._connection = app, connection
        self._producer = app.amqp.Producer(connection, auto_declare=False)
        self._lost = (*connection.connection_errors, OSError)

    def look_after(self) -> None:
        """Do nothing: these transports have no heartbeats."""

    def send(self, messages: Sequence[Message], until: float) -> Answers:
        """Publish these messages until that time, by ``time.monotonic()``."""
        answers = Answers()
        for one in messages:
            if time.monotonic() >= until:
                break
            try:
                self._publish(one)
            except self._lost as error:
                answers.away = text_of(error)
                break
            except Exception as error:
                answers.postponed[one.id] = text_of(error)
            else:
                answers.taken.add(one.id)
                with contextlib.suppress(Exception):  # events may be lost
                    self._publish_events(one)
        return answers

    def _publish(self, message: Message) -> None:
        content_type, content_encoding = JSON
        self._producer.publish(
            message.body,
            content_type=content_type,
            content_encoding=content_encoding,
            headers=message.headers,
            priority=message.priority,
            exchange=message.exchange,
            routing_key=message.routing_key,
            declare=[self._app.amqp.queues[name] for name in message.queues],
            **message.properties,
        )

    def _publish_events(self, message: Message) -> None:
        for event in message.events:
            exchange, routing_key, headers = event_of(self._app, event)
            self._producer.publish(
                event, routing_key, exchange=exchange.name, headers=headers, declare=[exchange]
            )
