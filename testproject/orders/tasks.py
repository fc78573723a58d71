"""The shop's task functions."""

import os
import signal
import time

from django_txtasks import Reject, Retry, TaskContext, task
from orders.models import Order, Receipt


@task(atomic=True, takes_context=True)
def send_receipt(ctx: TaskContext, order_id: int) -> int:
    """Record that the receipt was sent: once for each order, whatever dies in between."""
    return Receipt.objects.create(order=Order.objects.get(pk=order_id), attempt=ctx.attempt).pk
