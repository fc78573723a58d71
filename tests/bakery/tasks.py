"""The task functions of a bakery's shop. Release ``b`` has a new price list, and other names for two functions."""

import threading
from datetime import timedelta

from django.conf import settings

from django_txtasks import periodic, task

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
