"""Words of texts that people read."""

from __future__ import annotations


def counted(number: int, one: str, several: str = "") -> str:
    """Return a number with its noun: ``1 task``, ``2,000 tasks``.

    Args:
        several: the plural, if it is not the singular with an s.
    """
    return f"{number:,} {one if number == 1 else several or f'{one}s'}"
