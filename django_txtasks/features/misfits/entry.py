"""Calls that did not fit their function, as the errors of a row have them."""

from __future__ import annotations

from typing import Any

from django_txtasks.core.rows.attempts import read_entries
from django_txtasks.exceptions import ArgumentsDoNotFit


def misfit_of_last(text: str, attempt: int) -> dict[str, Any] | None:
    """Return the entry of the last attempt in a row's errors, if the function could not be called; else None."""
    *_, last = read_entries(text) or [{}]
    is_misfit = last.get("type") == ArgumentsDoNotFit.__name__
    return last if is_misfit and last.get("attempt") == attempt else None
