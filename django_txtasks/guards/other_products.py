"""No rows are written into a product that only resembles PostgreSQL or MySQL."""

from __future__ import annotations

from django_txtasks.core.enqueueing.parts import CallPart
from django_txtasks.guards.server_kind import refuse_other_product


class RefusesOtherProducts(CallPart):
    """Asks each server once for its version."""

    def check_database(self, alias: str) -> None:
        refuse_other_product(alias)


PARTS = (RefusesOtherProducts(),)
