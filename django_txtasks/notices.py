"""Notices about dead tasks. Each notice is a task of its own, enqueued with the death.

So it survives an outage of the mail server or the broker: it is tried again for about a week.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from django.core.mail import send_mail
from django.db import transaction

from django_txtasks.conf import get_config
from django_txtasks.core.enqueueing.commit_hints import notify_on_commit
from django_txtasks.core.ground.wording import counted
from django_txtasks.core.rows import statements
from django_txtasks.database.execute import fetch_column
from django_txtasks.features.notices.of_rows import digest
from django_txtasks.functions import task

MAX_ATTEMPTS = 200
"""Attempts to send a notice: about six days, with waits of 45 minutes on average."""


MAX_COUNTED_TASKS = 100_000
"""Highest number of dead tasks that a digest counts."""
MAX_LISTED_NAMES = 50
OF_ONE_TASK = (
    "task_id", "task_name", "queue_name", "args", "kwargs", "attempt", "failures", "crashes", "result", "error",
)  # fmt: skip
"""Keys of the hook data about one task. A digest has the same keys, with None as their values."""


@task(idempotent=True, max_attempts=MAX_ATTEMPTS)
def digest_of_the_dead(database: str) -> None:
    """Send one digest of all dead tasks, counted by name, because there are too many for a notice each."""
    data = _digest(database)
    if data["count"]:  # else people have dealt with them
        with transaction.atomic(using=database):
            notify_on_commit(database, digest(database, data, get_config()))


def _digest(database: str) -> dict[str, Any]:
    counts = Counter(fetch_column(database, statements.NAMES_OF_DEAD, most=MAX_COUNTED_TASKS))
    return {
        "event": "digest",
        "database": database,
        "count": counts.total(),
        "dead": dict(counts.most_common(MAX_LISTED_NAMES)),
        **dict.fromkeys(OF_ONE_TASK),
    }


@task(idempotent=True, max_attempts=MAX_ATTEMPTS)
def mail_dead_notice(data: dict[str, Any]) -> None:
    """Mail a dead task and its error to ``TXTASKS["dead_notices"]["mail"]``."""
    recipients = list(get_config().dead_notices.mail)
    if not recipients:
        return
    if data["event"] == "digest":
        send_mail(f"Dead tasks: {_number(data)}", _text_of_digest(data), None, recipients)
    else:
        send_mail(f"Dead task: {data['task_name']}"[:200], _text(data), None, recipients)


@task(idempotent=True, max_attempts=MAX_ATTEMPTS)
def publish_dead_notice(data: dict[str, Any]) -> None:
    """Publish a dead task and its error to the exchange ``TXTASKS["dead_notices"]["exchange"]``."""
    config = get_config()
    if config.dead_notices.exchange and config.broker_url is not None:
        from django_txtasks.hints.broker import exchange  # imports pika

        key = data["queue_name"] or config.queues[0]  # a digest covers all queues
        exchange.publish(config, config.dead_notices.exchange, key, data)


def _number(data: dict[str, Any]) -> str:
    return (
        f"{MAX_COUNTED_TASKS} or more" if data["count"] >= MAX_COUNTED_TASKS else str(data["count"])
    )


def _text_of_digest(data: dict[str, Any]) -> str:
    names = "".join(f"{number:>8}  {name}\n" for name, number in data["dead"].items())
    return (
        f"Dead tasks in database {data['database']!r}: {_number(data)}. They died in such a short time that "
        f"most of them get no notice of their own:\n\n{names}\n"
        "Look at them in the admin: revive them once the cause is fixed, or discard them.\n"
    )


def _text(data: dict[str, Any]) -> str:
    error = data["error"] or {}
    return (
        f"Task {data['task_id']} ({data['task_name']}, queue {data['queue_name']}) is dead\n"
        f"after attempt {data['attempt']}, with {counted(data['failures'], 'failure')} and "
        f"{counted(data['crashes'], 'crash', 'crashes')} of its worker.\n\n"
        f"{error.get('type')}: {error.get('message')}\n\n"
        "Look at it in the admin: revive it once the cause is fixed, or discard it.\n"
    )
