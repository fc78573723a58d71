"""Fields and columns that show one attribute of a row, in place of a method of the page."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.contrib import admin

from django_txtasks.admin import shown

Field = Callable[[Any, Any], str]
"""A method of a page, which returns the text of a row."""


def line(title: Any, name: str) -> Field:
    """Show a text as one line."""
    return _field(title, lambda row: shown.line(getattr(row, name) or shown.EMPTY))


def age(title: Any, name: str) -> Field:
    """Show how long ago, or in how long, a time is. The row has the database's clock."""
    return _field(title, lambda row: shown.age(getattr(row, name), row.now))


def moment(title: Any, name: str) -> Field:
    """Show a time, followed by how long ago it was."""
    return _field(title, lambda row: shown.moment(getattr(row, name), row.now))


def text(title: Any, column: str, show: Callable[[str | None], str]) -> Field:
    """Show a JSON column, which the page of a row has as text, by this function."""
    return _field(title, lambda row: show(row.texts.get(column)))


def _field(title: Any, show: Callable[[Any], str]) -> Field:
    @admin.display(description=title)
    def field(pages: Any, row: Any) -> str:
        return show(row)

    return field
