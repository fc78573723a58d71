"""RabbitMQ, which carries hints. No guarantee depends on it. Only this package imports pika.

Its modules are imported only if there is a broker, and only when a process first needs them, because pika takes
longer to import than the rest of django_txtasks.

* ``topology``: names, queues, and the form of a last will
* ``link``: a connection that reconnects; ``failures``: the reason if it cannot; ``quiet``: pika's own log lines
* ``hint_queues``: queues that a connection has declared, and those that RabbitMQ refuses
* ``publisher``: sends hints, with a thread of its own
* ``consumer``: receives hints for a worker
* ``will``: a worker's last will, and its delivery to a cleaner
* ``exchange``: a message to an exchange of another application
* ``incoming``: receives the messages of other applications for an intake
* ``dead_letters``: the place to which an intake sends messages that it refuses
* ``announcing``: transient messages to such an exchange, with a thread of its own
"""

from __future__ import annotations

import sys
import uuid
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # ``conf`` has the settings of hints, and imports this folder
    from django_txtasks.conf import Config


def notify(config: Config, alias: str, of_queue: Mapping[str, Sequence[uuid.UUID]]) -> None:
    """Send hints of these ids, by queue, soon, if there is a broker.

    Takes microseconds, never waits and never raises, because a lost hint costs only latency.
    """
    if config.broker_url is not None:
        # Quicker than from the package.
        from django_txtasks.hints.broker.publisher import notify

        notify(config, alias, of_queue)


def is_away(config: Config) -> bool:
    """Return True if this process has lost its broker, or has not reached it, and keeps trying."""
    from django_txtasks.hints.broker.publisher import of_process

    return of_process(config).is_away


def flush() -> None:
    """Send waiting hints and announcements now. Needed by a process that ends without its exit handlers."""
    for name in ("publisher", "announcing"):
        if (module := sys.modules.get(f"{__name__}.{name}")) is not None:
            module.close_all()
