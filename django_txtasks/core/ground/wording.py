"""Wording of texts that people read."""

from __future__ import annotations

from contextlib import AbstractContextManager
from datetime import datetime, timedelta

from django.utils import translation
from django.utils.formats import date_format, number_format
from django.utils.translation import gettext as _


def in_english() -> AbstractContextManager[None]:
    """Leave texts untranslated within the block: for log lines and the output of commands."""
    return translation.override(None)


def counted(number: int, one: str, several: str = "") -> str:
    """Return a number with its noun: ``1 task``, ``2,000 tasks``. The text is not translated.

    Args:
        several: the plural, if it is not the singular with an s.
    """
    return f"{number:,} {one if number == 1 else several or f'{one}s'}"


def whole(number: int) -> str:
    """Return a whole number with the separators of the reader's language: ``2,000``."""
    return str(number_format(number, force_grouping=True))


def decimal(number: float, places: int) -> str:
    """Return a number with its decimal places, as the reader's language writes it."""
    return str(number_format(f"{number:.{places}f}"))


def time_text(moment: datetime | None) -> str:
    """Return a time to the second, in UTC.

    Args:
        moment: None = the column has a value that Python cannot read as a time.
    """
    if moment is None:
        return _("a time that cannot be read")
    # a format of Django, which a translation may change
    return f"{date_format(moment, _('Y-m-d H:i:s'))} UTC"


def seconds(number: float, places: int = 0) -> str:
    """Return a number of seconds: ``2 s``."""
    return _("%(n)s s") % {"n": decimal(number, places)}


def span(duration: timedelta) -> str:
    """Return a duration in its two largest units, in the reader's language: ``3 min 12 s``."""
    left = abs(int(duration.total_seconds()))
    parts: list[tuple[int, str]] = []
    units = ((_("%(n)s d"), 86_400), (_("%(n)s h"), 3_600), (_("%(n)s min"), 60), (_("%(n)s s"), 1))
    for text, size in units:
        number, left = divmod(left, size)
        if number or parts:
            parts.append((number, text))
    shown = [text % {"n": whole(number)} for number, text in parts[:2] if number]
    return " ".join(shown) or seconds(0)
