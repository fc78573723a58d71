"""The shop's task functions."""

import time

from django_txtasks import TaskContext, task
from orders.models import Order, Receipt


@task(atomic=True, takes_context=True)
def send_receipt(ctx: TaskContext, order_id: int) -> int:
    """Record that the receipt was sent: once for each order, whatever dies in between."""
    return Receipt.objects.create(order=Order.objects.get(pk=order_id), attempt=ctx.attempt).pk


@task(idempotent=True, takes_context=True)
def print_receipt(ctx: TaskContext, order_id: int, seconds: float = 0.0) -> int:
    """The same by a printer that is slow at first, after the effect: a second attempt is safe."""
    receipt, _ = Receipt.objects.get_or_create(order_id=order_id, defaults={"attempt": ctx.attempt})
    if ctx.attempt == 1:
        time.sleep(seconds)
    return receipt.pk


@task(max_attempts=3)
def charge_card(number: str) -> None:
    """A task that can only fail: the demo's poison."""
    raise ValueError(f"no bank knows the card {number}")
