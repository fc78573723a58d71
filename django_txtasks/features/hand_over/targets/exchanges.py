"""An exchange of RabbitMQ as a target: a message for each row, confirmed by RabbitMQ."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from django_txtasks.conf import Config
from django_txtasks.exceptions import Away
from django_txtasks.features.hand_over.rows import MESSAGE, Row
from django_txtasks.features.hand_over.target import OVERTAKEN, Answers
from django_txtasks.hints.broker.confirms import ConfirmedPublisher, Message

CONFIRM_SECONDS = 5.0
"""Longest time to wait for the confirms of one call."""
HIGHEST_PRIORITY = 255
"""Highest priority that a message can have."""


class ExchangeTarget:
    """Sends rows to an exchange of ``TXTASKS["broker_url"]``, with the task's name as routing key."""

    def __init__(self, config: Config, exchange: str) -> None:
        self._exchange = exchange
        self._publisher = ConfirmedPublisher(config, "Drain")

    def look_after(self) -> None:
        """Connect if necessary; see ``Target``."""
        try:
            self._publisher.look_after()
        except ConnectionError as error:
            raise Away(f"RabbitMQ: {error}") from error

    def send(self, rows: Sequence[Row], until: float) -> Answers:
        """Publish these rows, and wait for their confirms; see ``Target``."""
        until = min(until, time.monotonic() + CONFIRM_SECONDS)
        messages = [message_of(row) for row in rows]
        said = self._publisher.publish(self._exchange, messages, until)
        ids = {message.id: row.id for message, row in zip(messages, rows, strict=True)}
        is_there = ids.keys() == said.known | said.overtaken
        return Answers(
            taken={ids[one] for one in said.confirmed},
            postponed={
                **{ids[one]: why for one, why in said.returned.items()},
                **dict.fromkeys([ids[one] for one in said.overtaken], OVERTAKEN),
            },
            refused={ids[one]: why for one, why in said.unsendable.items()},
            broken=said.closed,
            away=f"RabbitMQ: {said.lost}" if said.lost and not is_there else "",
        )

    def close(self) -> None:
        """Close the connection."""
        self._publisher.close()


def message_of(row: Row) -> Message:
    """Return the message of a row. The headers of tracers, such as ``traceparent``, become its headers."""
    headers: dict[str, Any] = {}
    for name, sent in row.headers.items():
        if name != MESSAGE and isinstance(sent, Mapping):
            headers.update(sent)
    priority = min(max(row.priority, 0), HIGHEST_PRIORITY)
    return Message(str(row.id), row.task_name, row.body, priority, headers)
