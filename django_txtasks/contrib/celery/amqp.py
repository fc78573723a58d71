"""Messages by py-amqp's own channel, many at a time, with confirms: three times as fast as kombu's producer."""

from __future__ import annotations

import contextlib
import json
import struct
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

from amqp.exceptions import AMQPError, ChannelError, FrameSyntaxError

from django_txtasks.contrib.celery.messages import JSON, Message, event_of
from django_txtasks.database.errors import text_of
from django_txtasks.exceptions import Away
from django_txtasks.features.hand_over.target import OVERTAKEN, Answers

UNSENDABLE = (struct.error, FrameSyntaxError, ValueError, TypeError, OverflowError)
"""Errors of a message for which AMQP has no form. Nothing of it was sent."""
OPEN_SECONDS = 5.0
"""Longest time to open a channel."""
OF_MESSAGE = range(501, 506)
"""Codes with which RabbitMQ ends the connection because of a message, such as headers beyond a frame."""


class AmqpSender:
    """Publishes on one connection.

    Args:
        connection: an open connection of kombu, by py-amqp.

    Attributes:
        blocked: the reason why RabbitMQ takes nothing; empty: it takes messages. It takes
            earlier messages later, so the connection stays.
    """

    def __init__(self, app: Any, connection: Any) -> None:
        self._app, self._connection = app, connection
        self._declared: set[str] = set()
        self._channel: _Channel | None = None
        self.blocked = ""
        connection.connection.on_blocked = self._is_blocked
        connection.connection.on_unblocked = self._is_unblocked

    def look_after(self) -> None:
        """Send a heartbeat if it is time, and read what RabbitMQ has sent."""
        with self._until(time.monotonic() + OPEN_SECONDS):
            self._open()
        self._connection.heartbeat_check()
        with contextlib.suppress(TimeoutError):
            self._connection.drain_events(timeout=0)
        if self.blocked:
            raise Away(self.blocked)

    def send(self, messages: Sequence[Message], until: float) -> Answers:
        """Publish these messages, and wait until that time, by ``time.monotonic()``, for their confirms."""
        answers = Answers()
        try:
            with self._until(until):
                self._publish(messages, answers, until)
        except ChannelError as error:
            answers.broken = text_of(error)
            self._give_up_channel()
        except TimeoutError:
            if self._channel is None or not self._channel.is_overtaken():
                answers.away = "RabbitMQ does not answer"
        except (AMQPError, OSError) as error:
            cause = _of_message(error)
            if cause is not None:
                answers.broken = text_of(cause)
            else:
                answers.away = text_of(error)
        if not (answers.broken or answers.away):
            missing = sum(one.id not in answers.known for one in messages)
            answers.away = self.blocked or (missing and f"{missing} confirms are missing") or ""
        return answers

    def _publish(self, messages: Sequence[Message], answers: Answers, until: float) -> None:
        channel = self._open()
        channel.begin(answers)
        for one in messages:
            if self._is_declared(one, answers):
                channel.publish(one)
        while channel.is_waiting and not self.blocked:
            self._connection.drain_events(timeout=max(0.001, until - time.monotonic()))
        events = [event for one in messages if one.id in answers.taken for event in one.events]
        if events and not self.blocked:
            _publish_events(self._app, self._connection, events)

    def _until(self, end: float) -> AbstractContextManager[Any]:
        """Raise TimeoutError if RabbitMQ does not answer until that time."""
        seconds = max(0.001, end - time.monotonic())
        transport = self._connection.connection.transport
        return transport.having_timeout(seconds)  # type: ignore[no-any-return]

    def _is_blocked(self, reason: str) -> None:
        self.blocked = f"RabbitMQ takes no messages for now: {reason}"

    def _is_unblocked(self) -> None:
        self.blocked = ""

    def _open(self) -> _Channel:
        if self._channel is None:
            self._channel = _Channel(self._connection, self._declared.clear)
        return self._channel

    def _give_up_channel(self) -> None:
        """Close a channel that RabbitMQ has closed: py-amqp has opened it again, but without confirms."""
        channel, self._channel = self._channel, None
        if channel is not None:
            channel.close()

    def _is_declared(self, message: Message, answers: Answers) -> bool:
        """Declare the queues of a message; after an error, which closes the channel, postpone the message."""
        for name in message.queues:
            if name in self._declared:
                continue
            try:
                with self._connection.channel() as channel:
                    self._app.amqp.queues[name](channel).declare()
            except (ChannelError, KeyError, *UNSENDABLE) as error:
                # other arguments, no permission, unknown here, or with odd arguments
                answers.postponed[message.id] = f"queue {name!r}: {text_of(error)}"
                return False
            self._declared.add(name)
        return True


class _Channel:
    """A channel with confirms, which fills RabbitMQ's answers in.

    Args:
        unroutable: called when a message comes back, because its queue may have been deleted.

    Raises:
        TimeoutError, AMQPError, OSError: it cannot be opened.
    """

    def __init__(self, connection: Any, unroutable: Callable[[], None]) -> None:
        self._unroutable = unroutable
        self._answers = Answers()
        self._waiting: dict[int, uuid.UUID] = {}
        self._tag = self._latest = 0
        self._channel = connection.channel()
        self._channel.events["basic_ack"].add(self._acked)
        self._channel.events["basic_nack"].add(self._nacked)
        self._channel.events["basic_return"].add(self._returned)
        self._channel.confirm_select()

    @property
    def is_waiting(self) -> bool:
        """True if answers are missing."""
        return bool(self._waiting)

    def begin(self, answers: Answers) -> None:
        """Fill these answers from now on."""
        self._answers, self._waiting, self._latest = answers, {}, 0

    def publish(self, message: Message) -> None:
        """Send a message. If AMQP has no form for it, note so."""
        try:
            made = self._channel.prepare_message(
                message.body, message.priority, *JSON, message.headers,
                {**message.properties, "message_id": str(message.id)},
            )  # fmt: skip
            self._channel._basic_publish(
                made, message.exchange, message.routing_key, mandatory=True
            )
        except UNSENDABLE as error:
            # otherwise the message is made now, and the settings of the app may be corrected
            answers = self._answers
            (answers.refused if message.is_kept else answers.postponed)[message.id] = text_of(error)
            return
        self._tag += 1
        self._waiting[self._tag] = message.id

    def is_overtaken(self) -> bool:
        """Postpone messages without an answer that later ones have. Return True if no other answer is missing."""
        overtaken = {tag: one for tag, one in self._waiting.items() if tag < self._latest}
        for tag, message_id in overtaken.items():
            self._answers.postponed[message_id] = OVERTAKEN
            del self._waiting[tag]
        return bool(overtaken) and not self._waiting

    def close(self) -> None:
        """Close it, whatever its state."""
        with contextlib.suppress(AMQPError, OSError):
            self._channel.close()

    def _acked(self, tag: int, multiple: bool) -> None:
        for message_id in self._answered(tag, multiple):
            if message_id not in self._answers.postponed:
                self._answers.taken.add(message_id)
                self._latest = max(self._latest, tag)

    def _nacked(self, tag: int, multiple: bool) -> None:
        for message_id in self._answered(tag, multiple):
            self._answers.postponed[message_id] = "RabbitMQ refused it, as a full queue does"

    def _returned(self, error: Exception, exchange: str, routing_key: str, message: Any) -> None:
        """Note a message that comes back. Its ack follows."""
        self._unroutable()
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
