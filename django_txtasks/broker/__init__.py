"""RabbitMQ, which carries hints and is trusted with nothing: the only importers of pika.

Nothing here is imported where there is no broker, nor before a process first needs it: pika takes longer to import
than all the rest of this package.

* ``topology``: names, queues, and the form of a hint
* ``link``: a connection that comes back; ``failures``: why it does not; ``quiet``: pika's own log lines
* ``hint_queues``: queues that a connection has declared, and those that RabbitMQ refuses
* ``publisher``: sends hints from a thread of its own
* ``consumer``: receives them for a worker
* ``will``: a worker's last will, and how a cleaner hears of it
* ``exchange``: a message to somebody else's exchange
"""

from __future__ import annotations

import sys
import uuid
from collections.abc import Mapping, Sequence

from django_txtasks.conf import Config


def notify(config: Config, alias: str, of_queue: Mapping[str, Sequence[uuid.UUID]]) -> None:
    """Send hints of these ids, by queue, some time soon, if there is a broker.

    Takes microseconds, never waits and never raises: a hint that is lost costs only latency.
    """
    if config.broker_url is not None:
        from django_txtasks.broker.publisher import of_process  # of a package it would take longer

        of_process(config).notify(alias, of_queue)


def is_away(config: Config) -> bool:
    """Say whether this process has lost its broker, or has not reached it, and tries again."""
    from django_txtasks.broker.publisher import of_process

    return of_process(config).is_away


def flush() -> None:
    """Send the hints that still wait, if there are any: for a process that ends without its exit handlers."""
    publisher = sys.modules.get(f"{__name__}.publisher")
    if publisher is not None:
        publisher.close_all()
