"""Hints tell workers of committed tasks, through RabbitMQ or from the database itself.

If ``TXTASKS["broker_url"]`` names a RabbitMQ, it is used: see ``broker``. Otherwise, unless
``TXTASKS["database_hints"]`` is False:

* PostgreSQL: ``sender`` sends NOTIFY after the commit, ``listener`` receives it. ``channel`` has all their SQL,
  ``session`` opens their sessions.
* SQLite: ``file_watcher`` notices commits and reads due tasks; ``file_changes`` tells it when to look.
* PostgreSQL, while RabbitMQ is away: ``reserve`` uses NOTIFY meanwhile.
* Other databases send no messages, so workers look more often while there is work: see ``fast.glances``.

No guarantee depends on a hint: if all hints are lost, workers scan every ``poll_interval``.
"""

from __future__ import annotations

import sys
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

from django.db import connections

from django_txtasks.hints import broker
from django_txtasks.hints.sending.buffer import BUFFER_IDS as BUFFER_IDS

if TYPE_CHECKING:  # ``conf`` has the settings of hints, and imports this folder
    from django_txtasks.conf import Config
    from django_txtasks.core.rows.turn import Subscription


def can_notify(config: Config, vendor: str) -> bool:
    """Return True if ``notify`` reaches workers through a database of this vendor."""
    if config.broker_url is not None:
        return True
    return vendor == "postgresql" and config.has_database_hints


def notify(config: Config, alias: str, of_queue: Mapping[str, Sequence[uuid.UUID]]) -> None:
    """Send hints of these ids, by queue, soon, if ``can_notify``.

    Takes microseconds, never waits and never raises, because a lost hint costs only latency.
    """
    is_away = config.broker_url is None or (broker.is_away(config) and _has_reserve(config, alias))
    if not is_away:
        broker.notify(config, alias, of_queue)
    else:
        # Quicker than from the package.
        from django_txtasks.hints.sender import of_process

        of_process(alias).notify(of_queue)


def flush() -> None:
    """Send waiting hints now. Needed by a process that ends without its exit handlers."""
    broker.flush()
    if sender := sys.modules.get(f"{__name__}.sender"):
        sender.close_all()


def import_modules(config: Config, aliases: Iterable[str]) -> None:
    """Import the modules that send and receive the hints of workers, and the last will.

    A process calls it before it forks. Its children then share these modules, and need no time to import them.
    """
    vendors, names = {connections[alias].vendor for alias in aliases}, []
    if config.broker_url is not None:
        names += ["hints.broker.consumer", "hints.broker.publisher", "hints.broker.will"]
    if config.may_hint_by_database and "postgresql" in vendors:
        names += ["hints.listener", "hints.sender"]
        names += ["hints.reserve"] * (config.broker_url is not None)
    if config.has_database_hints and "sqlite" in vendors:
        names += ["hints.file_watcher"]
    for name in names:
        import_module(f"django_txtasks.{name}")


def source(config: Config, subscription: Subscription, deliver: Callable[[Any], None]) -> Any:
    """Return a worker's source of hints, not started yet; None = no source. Arguments as of
    ``of_database``.
    """
    if config.broker_url is None:
        return of_database(config, subscription, deliver)
    from django_txtasks.hints.broker.consumer import HintConsumer  # imports pika

    alias, queues = subscription.alias, subscription.hint_queues
    consumer = HintConsumer(config, alias, queues, deliver)
    if not _has_reserve(config, alias):
        return consumer
    from django_txtasks.hints.listener import HintListener
    from django_txtasks.hints.reserve import WithReserve

    return WithReserve(consumer, lambda: HintListener(alias, queues, deliver))


def _has_reserve(config: Config, alias: str) -> bool:
    return config.may_hint_by_database and connections[alias].vendor == "postgresql"


def of_database(config: Config, subscription: Subscription, deliver: Callable[[Any], None]) -> Any:
    """Return a source of hints from the database itself; None = no source.

    Args:
        subscription: of the worker that gets the hints.
        deliver: called in the source's thread with each hint.
    """
    if not config.has_database_hints:
        return None
    connection: Any = connections[subscription.alias]
    if connection.vendor == "postgresql":
        from django_txtasks.hints.listener import HintListener

        return HintListener(subscription.alias, subscription.hint_queues, deliver)
    if connection.vendor == "sqlite" and not connection.is_in_memory_db():
        from django_txtasks.hints.file_watcher import FileWatcher

        return FileWatcher(subscription, deliver)
    return None
