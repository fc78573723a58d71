"""Hints: how workers hear of tasks that were committed, through RabbitMQ or from the database itself.

RabbitMQ is used wherever ``TXTASKS["broker_url"]`` names one: see ``broker``. Without it, and unless
``TXTASKS["database_hints"]`` is False:

* PostgreSQL: ``sender`` sends NOTIFY after the commit, ``listener`` receives it. ``channel`` has all their SQL,
  ``session`` opens what they send it through.
* SQLite: ``file_watcher`` notices that somebody has committed, and reads what is due; ``file_events`` tells it
  when to look.
* Elsewhere there is no message, and workers look more often while there is work: see ``worker.glances``.

A hint is worthless: where all of them are lost, workers scan every ``poll_interval``.
"""

from __future__ import annotations

import sys
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from django.db import connections

from django_txtasks import broker
from django_txtasks.conf import Config
from django_txtasks.lifecycle.turn import Subscription


def can_notify(config: Config, vendor: str) -> bool:
    """Say whether ``notify`` tells anybody of tasks in a database of this vendor."""
    if config.broker_url is not None:
        return True
    return vendor == "postgresql" and config.has_database_hints


def notify(config: Config, alias: str, of_queue: Mapping[str, Sequence[uuid.UUID]]) -> None:
    """Send hints of these ids, by queue, some time soon, where ``can_notify``.

    Takes microseconds, never waits and never raises: a hint that is lost costs only latency.
    """
    if config.broker_url is not None:
        broker.notify(config, alias, of_queue)
    else:
        from django_txtasks.hints.sender import of_process  # of a package it would take longer

        of_process(alias).notify(of_queue)


def flush() -> None:
    """Send the hints that still wait, if there are any: for a process that ends without its exit handlers."""
    broker.flush()
    if sender := sys.modules.get(f"{__name__}.sender"):
        sender.close_all()


def of_database(config: Config, subscription: Subscription, deliver: Callable[[Any], None]) -> Any:
    """Return a source of hints that come from the database itself; None = there is none.

    Args:
        subscription: of the worker that is told.
        deliver: called on the source's thread with each hint.
    """
    if not config.has_database_hints:
        return None
    connection: Any = connections[subscription.alias]
    if connection.vendor == "postgresql":
        from django_txtasks.hints.listener import HintListener

        return HintListener(subscription.alias, subscription.queues, deliver)
    if connection.vendor == "sqlite" and not connection.is_in_memory_db():
        from django_txtasks.hints.file_watcher import FileWatcher

        return FileWatcher(subscription, deliver)
    return None
