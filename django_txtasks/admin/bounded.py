"""Lists that read at most ``MAX_ROWS`` rows, whatever the table's size, filters or search text.

Each list takes the first rows of one index, and filters, counts and sorts only these. The shape of the
statement guarantees this (``FROM (SELECT … ORDER BY <index> LIMIT n)``); it does not depend on the
planner's statistics.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.contrib.admin.options import IncorrectLookupParameters
from django.contrib.admin.views.main import ChangeList
from django.core.paginator import InvalidPage, Paginator
from django.db.models import QuerySet
from django.db.models.sql.datastructures import BaseTable
from django.http import HttpRequest
from django.utils.translation import gettext_lazy as _

from django_txtasks.database.dialect import dialect_of
from django_txtasks.database.transactions import only_reading
from django_txtasks.models import Status

if TYPE_CHECKING:
    from django.utils.functional import _StrOrPromise

MAX_ROWS = 10_000
"""Highest number of rows that one list reads."""
BY_KEY = "twice"
"""The filter that names the rows by their keys, so that no index has to be walked."""
STATEMENT_TIMEOUT = timedelta(seconds=20)


@dataclass(frozen=True)
class ReadOrder:
    """An index, and the direction in which a list reads it.

    Attributes:
        index: its name; PRIMARY is the primary key's.
        order: its columns for ORDER BY, without columns that have one value (MariaDB would sort otherwise).
        where: the index's condition in SQL, without parameters; names in braces are pieces of the dialect.
        queue: only rows of this queue and lane: the index begins with ``(status, lane, queue_name)``.
        lane: only rows of this lane; empty = rows without a lane.
        note: which rows are read first, for people.
        list_order: order of the list, if it differs from the index.
    """

    index: str
    order: tuple[str, ...]
    note: _StrOrPromise
    where: str = ""
    queue: str | None = None
    lane: str | None = None
    list_order: tuple[str, ...] = ()

    def as_sql(
        self, connection: Any, table: str, columns: str, limit: int
    ) -> tuple[str, list[Any]]:
        """Return the SELECT of at most ``limit`` rows."""
        conditions, params = self._conditions(connection)
        order = ", ".join(
            f"{name.lstrip('-')} DESC" if name.startswith("-") else name for name in self.order
        )
        forced = f" FORCE INDEX ({self.index})" if connection.vendor == "mysql" else ""
        sql = f"SELECT {columns} FROM {table}{forced}{conditions} ORDER BY {order} LIMIT {limit}"  # noqa: S608
        return sql, params

    def leaves_out(self, alias: str) -> bool:
        """Return True if rows may be left out, although fewer than the limit were read."""
        return False

    def _conditions(self, connection: Any) -> tuple[str, list[Any]]:
        where = self.where.format(**dialect_of(connection)._asdict())
        parts: list[str] = [where] if where else []
        params: list[Any] = []
        of = {"lane": self.lane, "queue_name": self.queue}
        prefix = {name: value for name, value in of.items() if value is not None}
        parts += [f"{name} = %s" for name in prefix]
        params += prefix.values()
        if prefix and connection.vendor == "postgresql":
            # PostgreSQL drops ``status = 'pending'`` from the index condition if the partial index says the
            # same. It would then walk the whole index. With a comparison of whole rows it reads only from
            # the first to the last entry.
            values = ", %s" * len(prefix)
            pair = f"(status, {', '.join(prefix)}) {{}} ('pending'{values})"
            parts += [pair.format(">="), pair.format("<=")]
            params += [*prefix.values()] * 2
        return (f" WHERE {' AND '.join(parts)}" if parts else ""), params


_PENDING: tuple[str, ...] = ("lane", "queue_name", "priority", "run_after", "id")
NEWEST = ReadOrder("PRIMARY", ("-id",), _("the newest"))
# No index has the time of the enqueue: PostgreSQL would write an index entry at each insert, claim and
# retry.
NEWEST_TASKS = ReadOrder(
    "PRIMARY", ("-id",),
    _("those with the highest ids, which are the newest unless raw SQL chose ids at random"),
    list_order=("-enqueued_at", "-id"),
)  # fmt: skip
LAST_FINISHED = ReadOrder("txtasks_finished_at", ("-finished_at",), _("the last to finish"))
CLAIMED = ReadOrder(
    "txtasks_claimed", ("worker",), _("those of the first workers"),
    where="status = 'claimed' AND worker IS NOT NULL",
)  # fmt: skip
STOPPED = {
    status: ReadOrder(
        "txtasks_stopped", ("-run_after",), _("those that were due last"),
        where=f"{{failed_status}} IN ('dead', 'held') AND {{failed_status}} = '{status}'",
    )
    for status in (Status.DEAD.value, Status.HELD.value)
}  # fmt: skip


def order_of_tasks(chosen: Mapping[str, Any]) -> ReadOrder:
    """Return the order in which live tasks are read, by the filters *state*, *due*, *running* and *queue*."""
    state = chosen.get("state")
    if state in STOPPED:
        return STOPPED[state]
    if state == Status.CLAIMED or chosen.get("running"):
        return CLAIMED
    if state == Status.PENDING or chosen.get("due"):
        return _order_of_pending(chosen)
    return NEWEST_TASKS


def _order_of_pending(chosen: Mapping[str, Any]) -> ReadOrder:
    queue, lane = chosen.get("queue"), chosen.get("lane")
    queue = queue if queue and "@" not in queue else None
    if queue is not None and lane is None:
        lane = ""
    where = "status = 'pending'"
    order = _PENDING[(lane is not None) + (queue is not None) :]
    note = _("those due first, of the first queue by name")
    if chosen.get("due") == "later":
        order = tuple(f"-{name}" for name in order)
        note = _("those due latest, of the last queue by name")
    return ReadOrder("txtasks_pending", order, note, where, queue, lane)


class _Rows(BaseTable):
    """The first rows of a table in an order, which replaces the table in FROM under its name."""

    def __init__(
        self, table_name: str, alias: str, order: ReadOrder, columns: str, limit: int
    ) -> None:
        super().__init__(table_name, alias)
        self._order, self._columns, self._limit = order, columns, limit

    def as_sql(self, compiler: Any, connection: Any) -> tuple[str, tuple[Any, ...]]:
        sql, params = self._order.as_sql(connection, self.table_name, self._columns, self._limit)
        return f"({sql}) {connection.ops.quote_name(self.table_alias)}", tuple(params)


# columns that filters and orders name; for other tables the id
COLUMNS = {
    "txtasks_task": (
        "id, task_name, queue_name, lane, priority, status, enqueued_at, run_after, started_at, timeout, "
        "worker, cause"
    ),
    "txtasks_finishedtask": "id, task_name, queue_name, outcome, finished_at",
    "txtasks_worker": "id, host, pid",
    "txtasks_cleaner": "id, host, pid",
}


def first_rows(
    queryset: QuerySet[Any], order: ReadOrder, limit: int | None = None
) -> QuerySet[Any]:
    """Return the ids of a queryset's rows among the first ``limit`` rows in an order (``MAX_ROWS`` by default)."""
    keys = order.list_order or order.order
    keys = keys if "id" in keys[-1] else (*keys, "-id")
    ids: QuerySet[Any] = queryset.order_by(*keys).values_list("pk", flat=True)
    table = ids.model._meta.db_table
    alias = ids.query.get_initial_alias()
    columns = COLUMNS.get(table, "id")
    ids.query.alias_map[alias] = _Rows(table, alias, order, columns, limit or MAX_ROWS)
    return ids


def has_more_rows(queryset: QuerySet[Any], order: ReadOrder) -> bool:
    """Return True if the queryset has, or may have, rows beyond the first ``MAX_ROWS`` in an order."""
    return (
        order.leaves_out(queryset.db)
        or first_rows(queryset, order, MAX_ROWS + 1).order_by().count() > MAX_ROWS
    )


def following_indexes(alias: str) -> AbstractContextManager[None]:
    """Make PostgreSQL read in index order, whatever its statistics; the setting ends with the block."""
    return only_reading(alias, STATEMENT_TIMEOUT)


class CappedCount(int):
    """A number of rows that means "at least this many"."""

    def __str__(self) -> str:
        # Django's thousand separators would count the plus as a digit: 100,00+.
        return f"{int(self)}" if settings.USE_THOUSAND_SEPARATOR else f"{int(self)}+"


class BoundedPaginator(Paginator):  # type: ignore[type-arg]
    """Pages of ids, of the rows that were read; the table may have more."""

    def __init__(self, ids: QuerySet[Any], per_page: int, *, is_cut: bool = False) -> None:
        super().__init__(ids, per_page)
        self.ids, self.is_cut = ids, is_cut

    @cached_property
    def count(self) -> int:
        """Number of rows found; a CappedCount if not all rows were read."""
        found = self.ids.count()
        return CappedCount(found) if self.is_cut else found


class BoundedList(ChangeList):
    """A list in the admin that reads at most ``MAX_ROWS`` rows."""

    note: _StrOrPromise = ""
    searched: int | None = None

    @property
    def most(self) -> int:
        """Number of rows that were read, for the note."""
        return MAX_ROWS

    def get_queryset(self, request: HttpRequest, *args: Any, **kwargs: Any) -> QuerySet[Any]:
        """Return the rows; set ``searched`` if arguments and errors were searched for a text."""
        found: QuerySet[Any] = super().get_queryset(request, *args, **kwargs)
        self.searched = getattr(request, "txtasks_searched", None)
        return found

    def get_results(self, request: HttpRequest) -> None:
        """Read and count one page; set ``note`` if the table has rows that were not read."""
        with following_indexes(self.queryset.db):
            paginator = self._paginator()
            self.result_count = paginator.count
            self.can_show_all = self.result_count <= self.list_max_show_all
            self.multi_page = self.result_count > self.list_per_page
            self.result_list = self._rows(self._ids(paginator))
        self.paginator = paginator
        self.show_full_result_count, self.full_result_count = False, None
        self.show_admin_actions = True

    def _paginator(self) -> BoundedPaginator:
        pages: Any = self.model_admin
        chosen = self._chosen()
        if pages.is_id(self.query) or chosen.get(BY_KEY):
            ids = self.queryset.order_by("-pk").values_list("pk", flat=True)
            return BoundedPaginator(ids, self.list_per_page)
        order = pages.read_order(chosen)
        is_cut = has_more_rows(self.root_queryset, order)
        self.note = order.note if is_cut else ""
        return BoundedPaginator(first_rows(self.queryset, order), self.list_per_page, is_cut=is_cut)

    def _chosen(self) -> dict[str, Any]:
        """Return the filters' values by their URL parameters."""
        specs: list[Any] = [spec for spec in self.filter_specs if hasattr(spec, "parameter_name")]
        return {spec.parameter_name: spec.value() for spec in specs}

    def _ids(self, paginator: BoundedPaginator) -> list[Any]:
        if not self.multi_page or (self.show_all and self.can_show_all):
            return list(paginator.ids[:MAX_ROWS])
        try:
            return list(paginator.page(self.page_num).object_list)
        except InvalidPage:
            raise IncorrectLookupParameters from None

    def _rows(self, ids: list[Any]) -> list[Any]:
        """Read whole rows by key, without ORDER BY, so that the database does not choose that order's index."""
        rows = {row.pk: row for row in self.root_queryset.filter(pk__in=ids).order_by()}
        return [rows[one] for one in ids if one in rows]
