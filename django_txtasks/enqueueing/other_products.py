"""No rows are written into a product that only resembles PostgreSQL or MySQL."""

from __future__ import annotations

from django_txtasks.database.server_kind import refuse_other_product
from django_txtasks.enqueueing.parts import CallPart


class RefusesOtherProducts(CallPart):
    """Asks each server once for its version."""

    def check_database(self, alias: str) -> None:
        refuse_other_product(alias)


PARTS = (RefusesOtherProducts(),)
