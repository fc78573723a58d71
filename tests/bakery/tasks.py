"""The task functions of a bakery's shop. Release ``b`` has a new price list, and other names for two functions."""

import os
import signal
import threading
import time
from datetime import timedelta

from django.conf import settings

from django_txtasks import TaskContext, external, periodic, task

IS_OLD = settings.TXTASKS["release"] == "a"
PRICES = {"roll": 1, "rye bread": 4} if IS_OLD else {"roll": 1, "sourdough": 5}


@task
def take_order(number: int) -> None:
    """Take an order, which always succeeds."""


@task(queue_name="mail")
def send_mail(number: int) -> None:
    """Send a mail, which always succeeds."""


@task(max_attempts=1)
def charge_card(number: int, article: str) -> int:
    """Charge a card with the price of an article, which must be in the price list."""
    return PRICES[article]


@task(queue_name="reports", lane="printer")
def print_label(number: int, out_of_paper: bool = False) -> None:
    """Print a label. Without paper the printer never answers."""
    if out_of_paper:
        threading.Event().wait()


@task(queue_name="reports")
def rebuild_search_index() -> None:
    """Wait for a search engine that never answers."""
    threading.Event().wait()


@task
def keep_receipt(text: str) -> None:
    """Keep the text of a receipt in the task's arguments."""


@task(idempotent=True)
def resize_photo(number: int) -> None:
    """End the process, as a library of C with a fault does."""
    os.kill(os.getpid(), signal.SIGKILL)


@task
def ask_bank(number: int) -> None:
    """Wait for a bank that answers after ten minutes."""
    time.sleep(600)


@task
async def note_visit(page: str) -> None:
    """Note a visit, which always succeeds."""


@task(idempotent=True)
def add_up_sales(day: str) -> str:
    """Mail the sum of a day's sales, then count for some seconds what is left in the shop."""
    time.sleep(8)
    return f"the sum of {day} was mailed"


@task(max_attempts=1)
def print_receipt(number: int) -> None:
    """Print a receipt at a printer that has no cable."""
    raise OSError("receipt printer: no such device")


@task(max_attempts=20)
def tell_partner(number: int) -> None:
    """Tell a partner, who answers 503."""
    raise ConnectionError("partner.example answered 503 Service Unavailable")


@task
def ship_order(number: int, street: str = "") -> str:
    """Ship an order, which needs an address."""
    if not street:
        raise ValueError(f"order {number} has no street")
    return f"order {number} was shipped to {street}"


@task(idempotent=True, takes_context=True)
def ship_when_paid(ctx: TaskContext, number: int) -> str:
    """Wait for the payment of an order, then ship the order."""
    paid = ctx.wait_for("payment", timeout=timedelta(days=30))
    return f"order {number} was shipped after the payment {paid}"


publish_order = external("bakery.order", queue_name="events")


if IS_OLD:

    @task
    def send_bill(number: int) -> None:
        """Send a bill, which always succeeds."""

    @periodic(every=timedelta(hours=1), name="stock")
    @task
    def count_stock() -> None:
        """Count the stock, which always succeeds."""

else:

    @task
    def send_invoice(number: int) -> None:
        """Send a bill, which always succeeds."""
