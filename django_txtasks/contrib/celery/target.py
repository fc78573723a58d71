"""A Celery app as the target of a queue: its rows become Celery's messages again."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

from django_txtasks.contrib.celery.amqp import AmqpSender
from django_txtasks.contrib.celery.kombu import KombuSender
from django_txtasks.contrib.celery.messages import Message, Template, decode
from django_txtasks.database.errors import text_of
from django_txtasks.exceptions import Away, Refused
from django_txtasks.features.hand_over.rows import Row
from django_txtasks.features.hand_over.target import Answers

if TYPE_CHECKING:
    from django_txtasks.contrib.celery.app import Celery

CONFIRM_SECONDS = 5.0
"""Longest time to wait for the confirms of one call."""
CLOSE_SECONDS = 2.0
"""Longest time for the broker to confirm the end of a connection."""
HEARTBEAT_SECONDS = 30
"""Interval of AMQP's heartbeats."""
BY_BATCHES = "py-amqp"
"""The driver whose channel tells the confirms of many messages."""


class Sender(Protocol):
    """Publishes messages on one connection.

    Attributes:
        blocked: the reason why the broker takes nothing for now, although the connection is good; empty: it does.
    """

    blocked: str

    def look_after(self) -> None:
        """Answer to the broker; called about once a second."""

    def send(self, messages: Sequence[Message], until: float) -> Answers:
        """Publish the messages, and return the answers that are known at that time."""


class CeleryTarget:
    """Publishes rows with the settings of a Celery app, on a connection of its own.

    Receivers of Celery's signals run while it sends, which may use the database, and a transport may wait for a
    silent broker without end. So a ``CalledTarget`` calls it.
    """

    def __init__(self, app: Celery) -> None:
        self._app = app
        self._connection: Any = None
        self._sender: Sender | None = None
        for name in app.loader.default_modules:  # the options of tasks route rows without a message
            app.loader.import_task_module(name)
        app.finalize(auto=True)
        self._template = Template.of(app)

    def look_after(self) -> None:
        """Connect if necessary; see ``Target``."""
        try:
            self._open().look_after()
        except Away as error:
            raise Away(f"Celery's broker: {error}") from None
        except Exception as error:  # each transport has its own
            self._cut()
            raise Away(f"Celery's broker: {text_of(error)}") from error

    def send(self, rows: Sequence[Row], until: float) -> Answers:
        """Publish these rows, and wait for the answers; see ``Target``."""
        until = min(until, time.monotonic() + CONFIRM_SECONDS)
        answers = Answers()
        messages = [one for one in (self._message(row, answers) for row in rows) if one is not None]
        answers.add(self._send(messages, until))
        return answers

    def close(self) -> None:
        """End the connection in good order."""
        connection = self._forget()
        with contextlib.suppress(Exception):  # each transport has its own
            if connection.transport.driver_name == BY_BATCHES:
                connection.connection.sock.settimeout(CLOSE_SECONDS)
            connection.release()

    def _cut(self) -> None:
        """End the connection without a word, because the broker may be silent."""
        connection = self._forget()
        if connection is not None:
            connection.collect()

    @property
    def _is_connected(self) -> bool:
        return self._connection is not None and bool(self._connection.connected)

    def _forget(self) -> Any:
        connection, self._connection, self._sender = self._connection, None, None
        return connection

    def _open(self) -> Sender:
        if self._sender is None:
            connection = self._app.connection_for_write(heartbeat=HEARTBEAT_SECONDS)
            self._connection = connection
            # without a limit it would wait for a silent Redis for ever
            if connection.transport.driver_type == "redis":
                connection.transport_options.setdefault("socket_timeout", CONFIRM_SECONDS)
            connection.ensure_connection(max_retries=1, interval_start=0)
            is_fast = connection.transport.driver_name == BY_BATCHES
            self._sender = (AmqpSender if is_fast else KombuSender)(self._app, connection)
        return self._sender

    def _message(self, row: Row, answers: Answers) -> Message | None:
        """Return the message of a row; None = it cannot be made."""
        try:
            return decode(self._app, row, self._template)
        except Refused as error:
            answers.refused[row.id] = str(error)
        except Exception as error:  # of a setting, or of a library
            answers.postponed[row.id] = text_of(error)
        return None

    def _send(self, messages: Sequence[Message], until: float) -> Answers:
        try:
            answers = self._open().send(messages, until)
        except Exception as error:  # while it connects
            answers = Answers(away=text_of(error))
        is_blocked = self._sender is not None and self._sender.blocked
        if (answers.away and not is_blocked) or not self._is_connected:
            self._cut()
        if answers.away:
            answers.away = f"Celery's broker: {answers.away}"
        return answers
