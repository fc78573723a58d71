"""Pages of one row that leave empty fields out. Each field is computed once."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from django_txtasks.admin import shown

ALWAYS_SHOWN = {"priority", "arguments"}
_EMPTY = {"", shown.EMPTY, "<pre>{}</pre>"}


def without_empty(pages: Any, row: Any, fieldsets: Iterable[tuple[Any, Any]]) -> list[Any]:
    """Return fieldsets without empty fields. Methods of the page are replaced by functions with their values."""
    found = []
    for title, options in fieldsets:
        fields = [kept for one in options["fields"] if (kept := _kept(pages, row, one)) is not None]
        if fields:
            found.append((title, {**options, "fields": fields}))
    return found


def _kept(pages: Any, row: Any, field: Any) -> Any:
    """Return the field, or the function that replaces it; None = it is empty."""
    method = getattr(pages, field, None) if isinstance(field, str) else None
    if method is None:
        is_shown = not isinstance(field, str) or field in ALWAYS_SHOWN or getattr(row, field, True)
        return field if is_shown else None
    value = method(row)
    if field not in ALWAYS_SHOWN and value in _EMPTY:
        return None
    return _constant(field, method, value)


def _constant(name: str, method: Any, value: Any) -> Callable[[Any], Any]:
    def field(row: Any) -> Any:
        return value

    field.__name__ = name  # the class of its element
    field.short_description = getattr(method, "short_description", name)  # type: ignore[attr-defined]
    return field
