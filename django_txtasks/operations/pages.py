"""Reads chosen tasks page by page. Each statement reads a bounded part of one index, by ``run_after`` and ``id``.

Python compares the rows with the filters, so a filter that matches nothing makes no statement longer.
"""

from __future__ import annotations

import functools
import math
import time
import uuid
from collections.abc import Iterator
from contextlib import nullcontext
from datetime import datetime, timedelta
from itertools import groupby, takewhile
from operator import attrgetter
from typing import Any, NamedTuple

from django.db import connections

from django_txtasks.core.rows import buckets, statements
from django_txtasks.core.rows.attempts import read_entries
from django_txtasks.database.execute import as_uuid, fetch, fetch_value
from django_txtasks.database.transactions import only_reading
from django_txtasks.features.lanes import buckets as lane_buckets
from django_txtasks.models import Status
from django_txtasks.operations.choice import Choice
from django_txtasks.operations.rows import Click, Place, Row
from django_txtasks.operations.watcher import Watcher

ROWS_PER_PAGE = 1_000
MOST_BUCKETS = 100_000
"""Number of queues and priorities of one lane whose pending tasks are read."""
MAX_ROWS_WITH_ERRORS = 10_000
"""Rows whose errors are read for the filter ``error``. Errors are large."""
LANES_SECONDS = 1.0
"""Time for one part of the search for lanes."""
STATEMENT_TIMEOUT = timedelta(seconds=20)

CLICK = "SELECT CAST({now} AS {text}), CAST({later} AS {text})"
# C, who revives, reads a row that dies again after its revival only if it is due until the click. A revived row is
# due after the click, even if the clock has been set back. So C takes no row twice, and stops although workers
# bury rows as fast as C revives them.
_PAGE = """
    SELECT id, queue_name, task_name, lane, cause, CAST(run_after AS {text}) AS due_at, status, <known>, <errors>,
           priority
      FROM txtasks_task <index>
     WHERE <place> <since> <until> {sound_id} <after>
     ORDER BY <order> run_after, id LIMIT %(limit)s
"""
_STOPPED = "{failed_status} IN ('dead', 'held') AND {failed_status} = %(status)s"
_OF_CAUSE = (
    "{is_failed} AND {failed_status} = %(status)s AND queue_name = %(queue)s AND cause = %(cause)s"
)
_BUCKET = (
    "status = 'pending' AND lane = %(lane)s AND queue_name = %(queue)s AND priority = %(priority)s"
)
# PostgreSQL leaves a condition out that the index itself has, and would then search the index from its start. So
# the place in the index is a comparison of whole rows. A page may go beyond the bucket: Python leaves these rows
# out.
_FROM_BUCKET = "status = 'pending'"
_FIRST_IN_BUCKET = """
    AND (status, lane, queue_name, priority, run_after)
        >= ('pending', %(lane)s, %(queue)s, %(priority)s, <begin>)
"""
_BEGIN = "COALESCE(CAST(%(since)s AS timestamptz), '-infinity')"
_BEGIN_LATER = "GREATEST(CAST(%(since)s AS timestamptz), CAST(%(end)s AS timestamptz))"
_AFTER_IN_BUCKET = """
    AND (status, lane, queue_name, priority, run_after, id)
        > ('pending', %(lane)s, %(queue)s, %(priority)s, %(mark_time)s, %(mark_id)s)
"""
_RUNNING = "status = 'claimed' AND worker IS NOT NULL"
_OF_IDS = """
    SELECT id, queue_name, task_name, lane, cause, CAST(run_after AS {text}), TRIM(status), TRUE, '', 0
      FROM txtasks_task WHERE id {in_ids}
"""
_ENDED_OF_IDS = """
    SELECT id, queue_name, task_name, '', NULL, '', outcome, TRUE, '', 0
      FROM txtasks_finishedtask WHERE id {in_ids}
"""


BULK = "django_txtasks.bulk"
"""Name of the task that changes many tasks for a person. Filters leave it out, unless they name it: otherwise the
change of one person would end that of another."""


def click_of(alias: str, seconds: float) -> Click:
    """Return the moment of this call."""
    ((at, end),) = fetch(alias, CLICK, delay=seconds)
    return Click(at, end)


def rows_of_ids(alias: str, ids: list[uuid.UUID]) -> list[Row]:
    """Return the live and the finished rows of these ids."""
    live = [_row(*one) for one in fetch(alias, _OF_IDS, ids=sorted(ids))]
    rest = sorted(set(ids) - {row.id for row in live})
    ended = fetch(alias, _ENDED_OF_IDS, ids=rest) if rest else []
    return [*live, *(_row(*one) for one in ended)]


class Bound(NamedTuple):
    """The end of a walk whose caller waits for it: after this number of rows, or of seconds."""

    rows: int
    seconds: float


class _Budget:
    """The rows, the time and the buckets that a walk may use. Errors are read for few rows only."""

    def __init__(self, bound: Bound | None, *, reads_errors: bool) -> None:
        most = MAX_ROWS_WITH_ERRORS if reads_errors else math.inf
        self.rows = min(most, math.inf if bound is None else bound.rows)
        self.buckets = MOST_BUCKETS if bound is None else lane_buckets.BUCKETS_OF_LANE
        self._end = math.inf if bound is None else time.monotonic() + bound.seconds

    def allows(self, rows: int) -> bool:
        """Return True if a walk that has read these rows may go on."""
        return rows < self.rows and time.monotonic() < self._end

    def in_time(self, queues: Iterator[str]) -> Iterator[str]:
        """Yield queues until the time is over."""
        return takewhile(lambda _: time.monotonic() < self._end, queues)


class Walk:
    """The rows in some states that match the filters.

    Attributes:
        is_cut: True after a walk that has stopped before the end, because it reads no more: see ``_Budget``.
    """

    def __init__(
        self,
        alias: str,
        choice: Choice,
        states: tuple[Status, ...],
        click: Click,
        *,
        later: bool,
        watcher: Watcher,
        bound: Bound | None = None,
    ) -> None:
        """Walk behind the watcher's place; with ``later``, only tasks that are due after the end of ``spread``."""
        self._alias, self._choice, self._states, self._click = alias, choice, states, click
        self._since = None if choice.since is None else since_of(alias, choice.since)
        self._later, self._read, self.is_cut = later, 0, False
        self._watcher = watcher
        self._begin: Place | None = None  # in the present state
        self._vendor = connections[alias].vendor
        self._budget = _Budget(bound, reads_errors=choice.error is not None)

    def rows(self) -> Iterator[Row]:
        """Yield the matching rows, each once."""
        begin = self._watcher.place
        first = 0 if begin is None else self._states.index(Status(begin.status))
        for status in self._states[first:]:
            self._begin = begin if begin is not None and status == begin.status else None
            for place, index, values in self._parts(status):
                for row in self._part(status, place, index, values):
                    if self._matches(row):
                        yield row
                if self.is_cut:
                    return

    def _parts(self, status: Status) -> Iterator[tuple[str, str, dict[str, Any]]]:
        """Yield the parts of an index that have the rows: condition, name of the index, values."""
        cause = self._choice.cause
        if status == Status.CLAIMED:
            yield _RUNNING, "txtasks_claimed", {}
        elif cause is not None:
            for queue in self._failed_queues(status):
                yield _OF_CAUSE, "txtasks_cause", {"queue": queue, "cause": cause}
        elif status == Status.PENDING:
            place = _FROM_BUCKET if self._vendor == "postgresql" else _BUCKET
            for one in self._buckets():
                values = {"lane": one.lane, "queue": one.queue_name, "priority": one.priority}
                yield place, "txtasks_pending", values
        else:
            yield _STOPPED, "txtasks_stopped", {}

    def _failed_queues(self, status: Status) -> list[str]:
        if self._choice.queue is not None:
            return [self._choice.queue]
        with only_reading(self._alias, STATEMENT_TIMEOUT):
            found = sorted(self._budget.in_time(buckets.failed_queues(self._alias, status)))
        return [queue for queue in found if self._begin is None or queue >= self._begin.queue]

    def _buckets(self) -> Iterator[lane_buckets.LaneBucket]:
        """Yield the buckets lane by lane, in the database's order of lanes, which may differ from Python's."""
        lane, begin = self._choice.lane, self._begin
        behind = lane if lane is not None else begin.lane if begin is not None else ""
        found = lane_buckets.buckets_of(self._alias, behind, self._budget.buckets)
        if begin is not None:
            place = (begin.queue, begin.priority)
            found = [one for one in found if (one.queue_name, one.priority) >= place]
        is_last = lane is not None
        while True:
            for _, whole_lane in groupby(found, key=attrgetter("lane")):
                for one in sorted(whole_lane, key=attrgetter("queue_name", "priority")):
                    if self._choice.queue in (None, one.queue_name):
                        yield one
            if is_last:
                return
            found, behind = lane_buckets.look(self._alias, behind, LANES_SECONDS)
            self._watcher.looked(self._read)
            self.is_cut = not self._budget.allows(self._read)
            is_last = not behind or self.is_cut

    def _part(
        self, status: Status, place: str, index: str, values: dict[str, Any]
    ) -> Iterator[Row]:
        sql, values = self._statement(status, place, index), {**values, "status": status.value}
        is_bucket = place == _FROM_BUCKET
        after = _AFTER_IN_BUCKET if is_bucket else statements.AFTER_CURSOR
        begin = _BEGIN_LATER if self._later else _BEGIN
        first = _FIRST_IN_BUCKET.replace("<begin>", begin) if is_bucket else ""
        if self._begin is not None and self._begin.is_in(values):
            page = self._page(status, sql, after, {**values, **_mark(self._begin)})
        else:
            page = self._page(status, sql, first, values)
        while page and not self.is_cut:
            yield from (row for row in page if not is_bucket or row.place.is_in(values))
            if is_bucket and not page[-1].place.is_in(values):
                return
            page = self._page(status, sql, after, {**values, **_mark(page[-1])})

    def _matches(self, row: Row) -> bool:
        choice = self._choice
        return (
            row.is_known
            and choice.queue in (None, row.queue)
            and (row.task != BULK if choice.task is None else row.task == choice.task)
            and choice.cause in (None, row.cause)
            and choice.lane in (None, row.lane)
            and (choice.error is None or has_error(row.errors, choice.error))
        )

    def _statement(self, status: Status, place: str, index: str) -> str:
        known = {
            Status.PENDING: "enqueued_at <= %(click)s",
            Status.CLAIMED: "claimed_at <= %(click)s",
        }
        since = "AND run_after >= %(since)s" if self._since is not None else ""
        since += " AND run_after > %(end)s" * self._later
        is_place = place == _FROM_BUCKET
        pieces = {
            "<known>": known.get(status, "TRUE"),
            "<errors>": "CAST(errors AS {text})" if self._choice.error is not None else "''",
            "<index>": f"FORCE INDEX ({index})" if self._vendor == "mysql" else "",
            "<place>": place,
            "<order>": "status, lane, queue_name, priority," if is_place else "",
            "<since>": "" if is_place else since,
            "<until>": "AND run_after <= %(click)s" if status == Status.DEAD else "",
        }
        return functools.reduce(lambda sql, piece: sql.replace(*piece), pieces.items(), _PAGE)

    def _page(self, status: Status, sql: str, after: str, values: dict[str, Any]) -> list[Row]:
        self.is_cut = not self._budget.allows(self._read)
        if self.is_cut:
            return []
        limit = int(min(ROWS_PER_PAGE, self._budget.rows - self._read))
        # a running task's index has another order, so these few rows must be sorted
        follows = status != Status.CLAIMED
        with only_reading(self._alias, STATEMENT_TIMEOUT) if follows else nullcontext():
            page = fetch(
                self._alias, sql.replace("<after>", after), click=self._click.at, end=self._click.end,
                since=self._since, limit=limit, **values,
            )  # fmt: skip
        self._read += len(page)
        self._watcher.looked(self._read)
        return [_row(*one) for one in page]


def has_error(errors: str, text: str) -> bool:
    """Return True if class or message of the last error contains a text, in any case of letters."""
    entries = read_entries(errors)
    last = entries[-1] if entries else {}
    return text.lower() in f"{last.get('type') or ''}: {last.get('message') or ''}".lower()


def since_of(alias: str, since: datetime | timedelta) -> Any:
    """Return a time as a value of this database. A timedelta is a time in the past."""
    if isinstance(since, timedelta):
        return fetch_value(alias, statements.TIME_AGO, age=since.total_seconds())
    return connections[alias].ops.adapt_datetimefield_value(since)


def _mark(last: Row | Place) -> dict[str, Any]:
    """Return the place from which the next page begins."""
    return {"mark_time": last.due_at, "mark_id": last.id}


def _row(task_id: Any, *values: Any) -> Row:
    row = Row(as_uuid(task_id), *values)
    return row._replace(is_known=bool(row.is_known), errors=str(row.errors))
