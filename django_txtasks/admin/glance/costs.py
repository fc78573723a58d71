"""The cost of the queue for its database, on the page *At a glance*."""

from __future__ import annotations

from typing import NamedTuple

from django.utils.translation import gettext as _

from django_txtasks.core.ground.wording import decimal
from django_txtasks.insight.cost import over_budget
from django_txtasks.overview import Overview


class ShownCost(NamedTuple):
    """A number with its label, a note below it, and whether it is above its bound."""

    label: str
    number: str
    note: str = ""
    is_bad: bool = False


def costs(found: Overview) -> list[ShownCost]:
    """Return the numbers that are known."""
    cost = found.cost
    bad = {one.name for one in over_budget(cost)}
    shown = []
    if cost.transactions_per_second is not None:
        rate = _rate(cost.transactions_per_second, cost.transactions_per_task)
        is_bad = "transactions_per_second" in bad
        shown.append(ShownCost(_("Transactions"), *rate, is_bad=is_bad))
    if cost.rows_per_second is not None:
        rate = _rate(cost.rows_per_second, cost.rows_per_task)
        shown.append(ShownCost(_("Rows written"), *rate, is_bad="rows_per_second" in bad))
    if cost.sessions is not None:
        shown.append(
            ShownCost(_("Database sessions"), decimal(cost.sessions, 0), is_bad="sessions" in bad)
        )
    if cost.history_mb_per_day is not None:
        size = _("%(n)s MB/day") % {"n": decimal(cost.history_mb_per_day, 1)}
        shown.append(ShownCost(_("History"), size, is_bad="history_mb_per_day" in bad))
    return shown


def _rate(number: float, per_task: float | None) -> tuple[str, str]:
    """Return a number per second, and its note."""
    note = "" if per_task is None else _("%(n)s per task") % {"n": decimal(per_task, 1)}
    return _("%(n)s/s") % {"n": decimal(number, 1)}, note
