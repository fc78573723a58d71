"""The rows of links, written in the transaction of the task."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any

from django.db import connections
from django.db.models import Model

from django_txtasks.core.rows.enqueueing import LEAST_ROWS_FOR_COPY, ROWS_PER_STATEMENT
from django_txtasks.database.dialect import dialect_of
from django_txtasks.features.links.subjects import Subject, subject_of

_COLUMNS = "txtasks_link (task_id, subject_type, subject_id)"
# A second attempt of a task links the same object again.
INSERT = f"{{insert_new}} INTO {_COLUMNS} VALUES <rows> {{or_leave}}"
COPY = f"COPY {_COLUMNS} FROM STDIN"


def link(alias: str, task_id: uuid.UUID, subject: Model, where: str) -> None:
    """Link a task to a business object.

    Args:
        where: the start of an error, such as "shop.tasks.pack has called ctx.link()".

    Raises:
        InvalidOption: not a saved object, or an object in another database.
    """
    add(alias, [(task_id, subject_of(subject, alias, where))])


def add(alias: str, links: Sequence[tuple[uuid.UUID, Subject]]) -> None:
    """Write links, in the open transaction or in one of their own. A link that is there already stays."""
    connection = connections[alias]
    if connection.vendor == "postgresql" and len(links) >= LEAST_ROWS_FOR_COPY:
        _copy(connection, links)
        return
    pieces = dialect_of(connection)._asdict()
    for start in range(0, len(links), ROWS_PER_STATEMENT):
        some = links[start : start + ROWS_PER_STATEMENT]
        sql = INSERT.replace("<rows>", ", ".join(["(%s, %s, %s)"] * len(some)))
        with connection.cursor() as cursor:
            cursor.execute(
                sql.format(**pieces),
                [text for task_id, subject in some for text in (task_id.hex, *subject)],
            )


def _copy(connection: Any, links: Sequence[tuple[uuid.UUID, Subject]]) -> None:
    """Stream the rows of tasks that are new, so none of these rows is there."""
    connection.validate_no_broken_transaction()
    with (
        connection.cursor() as cursor,
        connection.wrap_database_errors,
        cursor.copy(COPY) as copy,
    ):
        for task_id, subject in links:
            copy.write_row((task_id.hex, *subject))
