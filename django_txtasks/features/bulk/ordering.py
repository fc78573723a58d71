"""Enqueues the task ``django_txtasks.bulk``, in a queue where a worker runs it."""

from __future__ import annotations

from django_txtasks.conf import get_config
from django_txtasks.core.rows.buckets import paused_queues
from django_txtasks.features.bulk import NAME, bulk
from django_txtasks.features.reports import names
from django_txtasks.handles import TaskHandle
from django_txtasks.operations.choice import seconds_of
from django_txtasks.operations.slices import Order

PRIORITY = 100
"""The highest priority: a person waits for the task, often in a queue with a backlog."""


def enqueue(order: Order, queue: str, total: int | None) -> TaskHandle:
    """Enqueue the task for an order by filters, in the current transaction. The click is the moment of this call.

    Args:
        queue: from ``queue_for``.
    """
    function = bulk.using(queue_name=queue, priority=PRIORITY, using=order.alias)
    return function.enqueue(
        verb=order.name, status=order.status, filters=order.choice.filters, click=list(order.click),
        spread=seconds_of(order.spread), by=str(order.by), total=total,
    )  # fmt: skip


def queue_for(alias: str, wanted: str | None) -> str | None:
    """Return a queue in which a living worker runs the task, the wanted one if possible; None = no worker does."""
    paused, served = paused_queues(alias), names.declared(alias)
    able = [
        queue
        for queue in get_config().queues
        if queue not in paused and NAME in (served.get(queue) or ())
    ]
    return wanted if wanted in able else next(iter(able), None)
