"""The search for a text in arguments and errors, in a bounded number of rows of a list.

Python compares the text with what the pages show, so a search finds no value that the pages redact.
"""

from __future__ import annotations

import time
import uuid
from itertools import islice
from typing import Any, NamedTuple

from django.db.models import QuerySet

from django_txtasks.admin import shown
from django_txtasks.admin.bounded import ReadOrder, first_rows, following_indexes
from django_txtasks.admin.columns import MAX_LISTED_JSON_CHARACTERS, LastError, json_text

MAX_ROWS_SEARCHED = 2_000
ROWS_PER_READ = 200
MAX_SECONDS = 2.0
"""Time after which a search ends, with the rows that it has read."""


class Found(NamedTuple):
    """Rows that have the text in their arguments or in their last error, and the number of rows that were read."""

    ids: list[uuid.UUID]
    rows: int


def search(rows: QuerySet[Any], order: ReadOrder, text: str) -> Found:
    """Search the first rows of a list."""
    wanted, end = text.casefold(), time.monotonic() + MAX_SECONDS
    found, number = [], 0
    model = rows.model._default_manager.using(rows.db)
    with following_indexes(rows.db):
        ids = iter(list(first_rows(rows, order)[:MAX_ROWS_SEARCHED]))
        while (chunk := list(islice(ids, ROWS_PER_READ))) and time.monotonic() < end:
            texts = model.filter(pk__in=chunk).values_list(
                "pk", "task_name", LastError("errors"),
                json_text("args", MAX_LISTED_JSON_CHARACTERS),
                json_text("kwargs", MAX_LISTED_JSON_CHARACTERS),
            )  # fmt: skip
            found += [pk for pk, *row in texts if wanted in _text(*row).casefold()]
            number += len(chunk)
    return Found(found, number)


def _text(name: str, error: str | None, args: str | None, kwargs: str | None) -> str:
    call = shown.listed_call(args, kwargs, name, shown.MAX_SHOWN_CHARACTERS)
    return f"{call}\n{shown.error_text(error)}"
