"""Messages by py-amqp's own channel, many at a time, with confirms: three times as fast as kombu's producer."""

from __future__ import annotations

import contextlib
import json
import struct
import time
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from amqp.exceptions import AMQPError, ChannelError, FrameSyntaxError

from django_txtasks.contrib.celery.messages import JSON, Message, event_of
from django_txtasks.database.errors import text_of
from django_txtasks.exceptions import Away
from django_txtasks.hand_over.target import Answers

UNSENDABLE = (struct.error, FrameSyntaxError, ValueError, TypeError, OverflowError)
"""Errors of a message for which AMQP has no form. Nothing of it was sent."""
OF_MESSAGE = range(501, 506)
"""Codes with which RabbitMQ ends the connection because of a message, such as headers beyond a frame."""


class AmqpSender:
    """Publishes on one connection, and collects the answers of RabbitMQ.

    Args:
        connection: an open connection of kombu, by py-amqp.

    Attributes:
        blocked: the reason why RabbitMQ takes nothing; empty: it takes messages. It takes
            earlier messages later, so the connection stays.
    """

    def __init__(self, app: Any, connection: Any) -> None:
        self._app, self._connection = app, connection
        self._declared: set[str] = set()
        self._tag = 0
        self._waiting: dict[int, uuid.UUID] = {}
        self._answers = Answers()
        self._channel: Any = None
        self.blocked = ""
        connection.connection.on_blocked = self._is_blocked
        connection.connection.on_unblocked = self._is_unblocked

    def look_after(self) -> None:
        """Send a heartbeat if it is time, and read what RabbitMQ has sent."""
        self._open()
        self._connection.heartbeat_check()
        with contextlib.suppress(TimeoutError):
            self._connection.drain_events(timeout=0)
        if self.blocked:
            raise Away(self.blocked)

    def send(self, messages: Sequence[Message], until: float) -> Answers:
        """Publish these messages, and wait until that time, by ``time.monotonic()``, for their confirms."""
        self._answers, self._waiting = Answers(), {}
        answers = self._answers
        try:
            self._open()
            seconds = max(0.001, until - time.monotonic())
            with self._connection.connection.transport.having_timeout(seconds):
                for one in messages:
                    if self._is_declared(one):
                        self._publish(one)
            while self._waiting and not self.blocked and (seconds := until - time.monotonic()) > 0:
                self._connection.drain_events(timeout=seconds)
            events = [event for one in messages if one.id in answers.taken for event in one.events]
            if events and not self.blocked:
                _publish_events(self._app, self._connection, events)
        except ChannelError as error:
            answers.broken = text_of(error)
            self._give_up_channel()
        except TimeoutError:
            pass
        except (AMQPError, OSError) as error:
            cause = _of_message(error)
            if cause is not None:
                answers.broken = text_of(cause)
            else:
                answers.away = text_of(error)
        if self.blocked and not (answers.broken or answers.away):
            answers.away = self.blocked
        elif self._waiting and not (answers.broken or answers.away):
            answers.away = (
                f"{len(self._waiting)} confirms are missing, because RabbitMQ does not answer"
            )
        return answers

    def _is_blocked(self, reason: str) -> None:
        self.blocked = f"RabbitMQ takes no messages for now: {reason}"

    def _is_unblocked(self) -> None:
        self.blocked = ""

    def _open(self) -> None:
        """Open a channel with confirms, unless one is open."""
        if self._channel is not None:
            return
        channel = self._channel = self._connection.channel()
        channel.events["basic_ack"].add(self._acked)
        channel.events["basic_nack"].add(self._nacked)
        channel.events["basic_return"].add(self._returned)
        channel.confirm_select()
        self._tag = 0

    def _give_up_channel(self) -> None:
        """Close a channel that RabbitMQ has closed: py-amqp has opened it again, but without confirms."""
        channel, self._channel = self._channel, None
        with contextlib.suppress(AMQPError, OSError):
            channel.close()

    def _is_declared(self, message: Message) -> bool:
        """Declare the queues of a message; after an error, which closes the channel, postpone the message."""
        for name in message.queues:
            if name in self._declared:
                continue
            try:
                with self._connection.channel() as channel:
                    self._app.amqp.queues[name](channel).declare()
            except ChannelError as error:
                self._answers.postponed[message.id] = f"queue {name!r}: {text_of(error)}"
                return False
            except (KeyError, *UNSENDABLE) as error:  # unknown here, or with odd arguments
                self._answers.postponed[message.id] = f"queue {name!r}: {text_of(error)}"
                return False
            self._declared.add(name)
        return True

    def _publish(self, message: Message) -> None:
        channel = self._channel
        try:
            made = channel.prepare_message(
                message.body, message.priority, *JSON, message.headers,
                {**message.properties, "message_id": str(message.id)},
            )  # fmt: skip
            channel._basic_publish(made, message.exchange, message.routing_key, mandatory=True)
        except UNSENDABLE as error:
            self._answers.refused[message.id] = text_of(error)
            return
        self._tag += 1
        self._waiting[self._tag] = message.id

    def _acked(self, tag: int, multiple: bool) -> None:
        for message_id in self._answered(tag, multiple):
            if message_id not in self._answers.postponed:
                self._answers.taken.add(message_id)

    def _nacked(self, tag: int, multiple: bool) -> None:
        for message_id in self._answered(tag, multiple):
            self._answers.postponed[message_id] = "RabbitMQ refused it, as a full queue does"

    def _returned(self, error: Exception, exchange: str, routing_key: str, message: Any) -> None:
        """Note a message that comes back. Its ack follows."""
        self._declared.clear()  # its queue may have been deleted
        message_id = uuid.UUID(message.properties["message_id"])
        self._answers.postponed[message_id] = f"no queue takes it: {text_of(error)}"

    def _answered(self, tag: int, multiple: bool) -> list[uuid.UUID]:
        tags = [one for one in self._waiting if one <= tag] if multiple else [tag]
        return [self._waiting.pop(one) for one in tags if one in self._waiting]


def _publish_events(app: Any, connection: Any, events: Sequence[Mapping[str, Any]]) -> None:
    """Publish the events of messages that RabbitMQ has. They may be lost, and have a channel of their own.

    An exchange of events that RabbitMQ refuses would close the channel of the messages, and they would be sent
    again.
    """
    declared: set[str] = set()
    with contextlib.suppress(ChannelError), connection.channel() as channel:
        for event in events:
            exchange, routing_key, headers = event_of(app, event)
            if exchange.name not in declared:
                exchange(channel).declare()
                declared.add(exchange.name)
            made = channel.prepare_message(json.dumps(event), None, *JSON, headers)
            channel._basic_publish(made, exchange.name, routing_key)


def _of_message(error: BaseException | None) -> BaseException | None:
    """Return the error with which RabbitMQ ended the connection because of a message; None: it has another reason.

    The error of the closed socket can come after it.
    """
    while error is not None and getattr(error, "code", 0) not in OF_MESSAGE:
        error = error.__context__
    return error
