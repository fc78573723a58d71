"""Tells people of dead tasks. Each notice is a task of its own, enqueued with the death: it survives
an outage of the mail server or the broker by being tried again for about a week."""

from __future__ import annotations

from typing import Any

from django.core.mail import send_mail

from django_txtasks.conf import get_config
from django_txtasks.functions import task

ATTEMPTS = 200
"""With waits of up to an hour each, on average three quarters of it."""


@task(idempotent=True, max_attempts=ATTEMPTS)
def mail_dead_notice(event: dict[str, Any]) -> None:
    """Mail what died, and why, to ``TXTASKS["dead_notices"]["mail"]``."""
    recipients = list(get_config().dead_notices.mail)
    if recipients:
        send_mail(f"Dead task: {event['task_name']}"[:200], _text(event), None, recipients)


@task(idempotent=True, max_attempts=ATTEMPTS)
def publish_dead_notice(event: dict[str, Any]) -> None:
    """Publish what died, and why, to the exchange ``TXTASKS["dead_notices"]["exchange"]``."""
    config = get_config()
    if config.dead_notices.exchange and config.broker_url is not None:
        from django_txtasks.broker import exchange  # it imports pika

        exchange.publish(config, config.dead_notices.exchange, event["queue_name"], event)


def _text(event: dict[str, Any]) -> str:
    error = event["error"] or {}
    return (
        f"Task {event['task_id']} ({event['task_name']}, queue {event['queue_name']}) is dead\n"
        f"after attempt {event['attempt']}, with {event['failures']} failures and "
        f"{event['crashes']} crashes of its worker.\n\n"
        f"{error.get('type')}: {error.get('message')}\n\n"
        "Look at it in the admin: revive it once the cause is mended, or discard it.\n"
    )
