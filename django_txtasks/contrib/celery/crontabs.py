"""The crontabs of Celery as cron, which reads some of them otherwise."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from django_txtasks.exceptions import InvalidSchedule

FIELDS = {
    "minute": (0, 59),
    "hour": (0, 23),
    "day_of_month": (1, 31),
    "month_of_year": (1, 12),
    "day_of_week": (0, 6),
}
"""The fields of cron in their order, with the lowest and the highest value."""
_EACH = re.compile(r"\*/\d+")


def cron_of(crontab: Any) -> str:
    """Return cron's text for a row of beat's crontabs.

    Celery itself reads the row, because it knows whole names of days, and ranges such as FRI-MON.

    Raises:
        InvalidSchedule: it has days of the month and days of the week, or Celery cannot read it.
    """
    try:
        read = crontab.schedule
    except ValueError as error:
        raise InvalidSchedule(f"Celery cannot read its crontab: {error}") from None
    cron = {
        name: _field(getattr(crontab, name), set(getattr(read, name)), *limits)
        for name, limits in FIELDS.items()
    }
    if "*" not in (cron["day_of_month"], cron["day_of_week"]):
        raise InvalidSchedule(
            "its crontab has days of the month and days of the week. Celery wants both to fit, cron one of them. "
            "Use one of them, and look at the other in the task"
        )
    return " ".join(cron.values())


def _field(text: str, values: set[int], low: int, high: int) -> str:
    if values == set(range(low, high + 1)):
        return "*"
    if _EACH.fullmatch(text):
        return text
    return ",".join(
        f"{a}-{b}" if b > a + 1 else f"{a},{b}" if b > a else str(a) for a, b in _runs(values)
    )


def _runs(values: set[int]) -> Iterator[tuple[int, int]]:
    """Yield the first and the last of values that follow each other."""
    for first in sorted(values):
        if first - 1 not in values:
            last = first
            while last + 1 in values:
                last += 1
            yield first, last
