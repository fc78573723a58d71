"""Wording of texts that people read."""

from __future__ import annotations

from datetime import datetime


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
