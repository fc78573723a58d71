"""Wording of texts that people read."""

from __future__ import annotations

from datetime import datetime, timedelta

from django.utils.translation import gettext as _


def counted(number: int, one: str, several: str = "") -> str:
    """Return a number with its noun: ``1 task``, ``2,000 tasks``.

    Args:
        several: the plural, if it is not the singular with an s.
    """
    return f"{number:,} {one if number == 1 else several or f'{one}s'}"


def time_text(moment: datetime | None) -> str:
    """Return a time to the second, in UTC.

    Args:
        moment: None = the column has a value that Python cannot read as a time.
    """
    return "a time that cannot be read" if moment is None else f"{moment:%Y-%m-%d %H:%M:%S} UTC"


def span(duration: timedelta) -> str:
    """Return a duration in its two largest units, in the reader's language: ``3 min 12 s``."""
    seconds = abs(int(duration.total_seconds()))
    parts: list[tuple[int, str]] = []
    for name, size in ((_("d"), 86_400), (_("h"), 3_600), (_("min"), 60), (_("s"), 1)):
        number, seconds = divmod(seconds, size)
        if number or parts:
            parts.append((number, name))
    return " ".join(f"{number} {name}" for number, name in parts[:2] if number) or _("0 s")
