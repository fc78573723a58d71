"""One effect for each task, and the same effects by one call for many tasks."""

import os
import smtplib

import records

from bench.models import Row
from django_txtasks import Item, Reject, task

SERVER = os.environ["BENCHMARK_SMTP"].split(":")
TEXT = "Subject: receipt {key}\r\n\r\nThank you for order {key}.\r\n"


@task(idempotent=True)
def index_one(key: int) -> None:
    """Write one row."""
    Row.objects.create(key=key)
    records.write(key)


@task(many=100, idempotent=True)
def index_many(items: list[Item[int]]) -> None:
    """Write the rows of all items by one INSERT."""
    Row.objects.bulk_create(Row(key=item.value) for item in items)
    for item in items:
        records.write(item.value)


@task(many=100, idempotent=True, max_attempts=5)
def index_but_three(items: list[Item[int]]) -> None:
    """Write the rows of all items but those of three of each hundred, which the index refuses."""
    good = [item for item in items if item.value % 100 not in (10, 20, 30)]
    Row.objects.bulk_create(Row(key=item.value) for item in good)
    for item in items:
        records.write(item.value)
        if item not in good:
            item.fail(Reject("the index has refused it"))


@task(idempotent=True)
def mail_one(key: int) -> None:
    """Send one mail by a session of its own."""
    with smtplib.SMTP(SERVER[0], int(SERVER[1])) as session:
        _send(session, key)


@task(many=100, idempotent=True)
def mail_many(items: list[Item[int]]) -> None:
    """Send the mails of all items by one session."""
    with smtplib.SMTP(SERVER[0], int(SERVER[1])) as session:
        for item in items:
            with item:
                _send(session, item.value)


def _send(session: smtplib.SMTP, key: int) -> None:
    session.sendmail("shop@example.org", [f"{key}@example.org"], TEXT.format(key=key))
    records.write(key)
