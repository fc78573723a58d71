"""Announces the life of workers and the death of tasks to programs that subscribe to a RabbitMQ exchange.

Off unless ``TXTASKS["lifecycle_exchange"]`` names an exchange. Announcements may be lost, as a log line may be. A
notice that must arrive is a task: see ``notices``.
"""

from __future__ import annotations

import os
from typing import Any

from django_txtasks import signals
from django_txtasks.conf import get_config
from django_txtasks.core.rows.workers import host_name

STARTED, ENDED, LOST, DEAD = "worker.started", "worker.ended", "worker.lost", "task.dead"
"""The events, which are the routing keys."""
MOST_CHARACTERS = 1_000
"""Length of a text in a message. Longer ones, such as the text of an error, are cut."""
_FACTS = (
    "worker",
    "queue",
    "queues",
    "threads",
    "host",
    "pid",
    "reason",
    "task_id",
    "task",
    "attempt",
    "error",
)
_EVENTS = {
    signals.worker_started: STARTED,
    signals.worker_stopped: ENDED,
    signals.worker_cut_short: ENDED,
    signals.worker_recycled: ENDED,
    signals.worker_lost: LOST,
    signals.task_died: DEAD,
}
_living: set[str] = set()
"""Workers of this process whose start was announced and whose end was not: several signals may report one end."""


def announce(*, signal: signals.LogSignal, **facts: Any) -> None:
    """Receive a signal, and let a thread publish it."""
    config = get_config()
    if not config.lifecycle_exchange or config.broker_url is None:
        return
    event, data = _EVENTS[signal], _data_of(facts)
    if event == STARTED:
        _living.add(data["worker"])
    elif event == ENDED:
        if data["worker"] not in _living:
            return
        _living.remove(data["worker"])
    if event in (STARTED, ENDED):
        data |= {"host": host_name(), "pid": os.getpid()}
    from django_txtasks.hints.broker import announcing  # imports pika

    announcing.announce(config, config.lifecycle_exchange, event, {"event": event, **data})


def _data_of(facts: dict[str, Any]) -> dict[str, Any]:
    known = {name: facts[name] for name in _FACTS if name in facts}
    return {
        name: value if isinstance(value, int) else str(value)[:MOST_CHARACTERS]
        for name, value in known.items()
    }


for one in _EVENTS:
    one.connect(announce, dispatch_uid="django_txtasks.features.announcements.announcements")
