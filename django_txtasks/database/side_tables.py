"""Side tables: tables with rows that belong to a task, and that are deleted when the last row of the task is.

The core has steps, waits and links. Another app adds its table with ``add()`` when it is loaded.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any, NamedTuple

from django_txtasks.database.execute import as_uuid, execute, fetch_column

Sweep = Callable[[str, Any], tuple[int, Any]]
"""Brings some rows up to date, in the open transaction.

It takes the alias and the place where the last call ended (None: begin), and returns the number of changed rows
and the place where it ended (None: all rows were read).
"""


class SideTable(NamedTuple):
    """A table whose column ``task_id`` names the task of each row.

    Attributes:
        is_in: returns True if the database of this alias has the table.
        sweep: called by the cleaner in each pass, until all rows were read or the pass is over.
        page: name of its list in the admin, without the app's label, which takes ``?task=<id>``; empty: none.
        label: the text of the link to this page.
        of_wait: returns a sentence about what a wait of a task waits for, and the remedy; None: nothing is known.
        for_people: returns the number of rows that wait for a person.
    """

    name: str
    is_in: Callable[[str], bool]
    sweep: Sweep | None = None
    page: str = ""
    label: Any = ""
    of_wait: Callable[[str, uuid.UUID, str], tuple[str, str] | None] | None = None
    for_people: Callable[[str], int] | None = None


_tables = [
    SideTable("txtasks_step", is_in=lambda _: True),
    SideTable("txtasks_wait", is_in=lambda _: True),
    SideTable("txtasks_link", is_in=lambda _: True),
]
_NEXT_TASKS = (
    "SELECT DISTINCT task_id FROM {table} WHERE task_id > %(last)s ORDER BY task_id LIMIT %(limit)s"
)


def add(table: SideTable) -> None:
    """Add a table of another app. A table of the same name is replaced."""
    _tables[:] = [one for one in _tables if one.name != table.name]
    _tables.append(table)


def side_tables(alias: str) -> list[SideTable]:
    """Return the side tables of this database."""
    return [one for one in _tables if one.is_in(alias)]


def shown_beside(alias: str, task_id: uuid.UUID) -> list[SideTable]:
    """Return the side tables with a page in the admin that have rows of this task."""
    sql = "SELECT 1 FROM {} WHERE task_id = %(id)s LIMIT 1"
    with_page = [one for one in side_tables(alias) if one.page]
    return [one for one in with_page if fetch_column(alias, sql.format(one.name), id=task_id)]


def of_wait(alias: str, task_id: uuid.UUID, name: str) -> tuple[str, str] | None:
    """Return what another app knows of a task's wait: a sentence and the remedy; None: nothing."""
    tables = (one.of_wait for one in side_tables(alias) if one.of_wait)
    return next(filter(None, (ask(alias, task_id, name) for ask in tables)), None)


def waiting_for_people(alias: str) -> int:
    """Return the number of rows that wait for a person, such as questions. Each app's count has a limit."""
    return sum(one.for_people(alias) for one in side_tables(alias) if one.for_people)


def tasks_with_rows(alias: str, last: uuid.UUID, limit: int) -> list[uuid.UUID]:
    """Return the next ids after ``last`` that side tables name, in order."""
    parts = [
        f"SELECT task_id FROM ({_NEXT_TASKS.format(table=one.name)}) of_{one.name}"
        for one in side_tables(alias)
    ]
    sql = f"{' UNION '.join(parts)} ORDER BY task_id LIMIT %(limit)s"
    return [as_uuid(one) for one in fetch_column(alias, sql, last=last, limit=limit)]


def forget(alias: str, ids: list[uuid.UUID]) -> None:
    """Delete the rows of these tasks from each side table."""
    for one in side_tables(alias):
        execute(alias, f"DELETE FROM {one.name} WHERE task_id {{in_ids}}", ids=ids)
