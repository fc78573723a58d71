"""manage.py approvals"""

from argparse import ArgumentParser
from typing import Any

from django.contrib.auth import get_user_model
from django.contrib.auth.models import Permission
from django.core.management.base import BaseCommand
from django.db import transaction

from approvals.models import Purchase
from approvals.tasks import decide

CUSTOMERS = ("Brown", "Miller", "Okafor", "Sato", "Lindgren", "Costa", "Haddad", "Novak")
TOTALS = (1_800, 7_500, 2_600, 400, 4_900)
LATE = (1, 4)
"""Places of the orders whose approval is due a second after the question is asked."""


class Command(BaseCommand):
    """Writes orders, some of which wait for people, and the people."""

    help = (
        "Writes orders with their tasks, and a manager (ada), a colleague (bob) and a clerk (cy)."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--orders", type=int, default=20)
        parser.add_argument("--password", default="demo", help="Of each user.")

    def handle(self, *args: Any, **options: Any) -> None:
        with transaction.atomic():
            clerk = _people(options["password"])
            for place in range(options["orders"]):
                total = TOTALS[place % len(TOTALS)] + place
                customer = CUSTOMERS[place % len(CUSTOMERS)]
                purchase = Purchase.objects.create(customer=customer, total=total, author=clerk)
                decide.using(subject=purchase).enqueue(purchase.pk, 1.0 if place in LATE else None)
        self.stdout.write(f"{options['orders']} orders are written.")


def _people(password: str) -> Any:
    """Write the people who do not exist yet, and return the clerk."""
    users = get_user_model().objects
    made = {}
    for name, full, is_staff in (("ada", "Ada", True), ("bob", "Bob", False), ("cy", "Cy", False)):
        columns = {"is_staff": is_staff, "first_name": full}
        made[name], is_new = users.get_or_create(username=name, defaults=columns)
        if is_new:
            made[name].set_password(password)
            made[name].save()
    may = {
        "ada": ("approve_purchase", "assign_question", "view_purchase"),
        "bob": ("approve_purchase",),
    }
    for name, codenames in may.items():
        found = Permission.objects.filter(codename__in=codenames)
        made[name].user_permissions.add(*found)
    return made["cy"]
