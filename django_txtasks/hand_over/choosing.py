"""The rows of a pass: the highest priority first, then the row that has been due for longest."""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence
from typing import Any, NamedTuple

from django.db import connections

from django_txtasks.database.execute import as_uuid, fetch, fetch_column
from django_txtasks.hand_over import statements
from django_txtasks.hand_over.rows import Row
from django_txtasks.lifecycle.buckets import paused_queues, pending_priorities
from django_txtasks.lifecycle.statements import AFTER_CURSOR

MOST_BYTES = 4_000_000
"""Bytes of arguments and headers in one pass; a bigger row goes alone."""
SLOW_SEARCH_SECONDS = 0.1
"""Seconds of a search from the head after which it is not repeated for each new row."""
PAUSE_PER_SECOND = 20
"""Pause in seconds per second of a search from the head: it takes at most 5 % of the time."""
MOST_PAUSE_SECONDS = 30.0


class _Seen(NamedTuple):
    id: uuid.UUID
    due_at: str
    size: int


class Place:
    """The place that the passes of one queue have reached, by priority.

    Rows that were handed over stay in the index until vacuum removes them, which an old snapshot may prevent for
    hours. Without a place, each pass would walk past all of them.

    Args:
        pause: seconds between two passes that begin at the head again, for rows that were written later with an
            older time, or were locked.

    Attributes:
        is_slow: the last search from the head took long. Then the searches in between read new rows only.
    """

    def __init__(self, pause: float) -> None:
        self._pause, self._next_head = pause, 0.0
        self.cursors: dict[int, tuple[str, uuid.UUID]] = {}
        self._before = self.cursors
        self._began = 0.0
        self.is_from_head, self.is_slow = True, False

    def begin(self) -> None:
        """Begin a pass."""
        self._began = time.monotonic()
        self.is_from_head = not self.cursors or self._began >= self._next_head
        if self.is_from_head:
            self._before, self.cursors = self.cursors, {}

    def chosen(self, found: dict[int, _Seen], *, is_all: bool) -> None:
        """Note the last row of each priority, once the rows were chosen.

        Args:
            is_all: no more rows are due behind them. Then the next pass begins at the head, unless that is slow.
        """
        now = time.monotonic()
        if self.is_from_head:
            took = now - self._began
            self.is_slow = took > SLOW_SEARCH_SECONDS
            self._next_head = now + max(
                self._pause, min(PAUSE_PER_SECOND * took, MOST_PAUSE_SECONDS)
            )
            if self.is_slow:
                self.cursors = self._before
        self.cursors.update({one: (seen.due_at, seen.id) for one, seen in found.items()})
        if is_all and not self.is_slow:
            self.cursors = {}


class Chosen(NamedTuple):
    """The chosen rows of a pass, locked except on SQLite.

    Attributes:
        is_all: this pass has seen no other due row.
    """

    rows: Sequence[Row]
    is_all: bool


def choose(alias: str, queue: str, limit: int, place: Place | None) -> Chosen:
    """Choose and lock the next rows of a queue, in the open transaction.

    Args:
        place: None: the queue is ordered, so this waits for the drain that has locked the first row.

    Raises:
        DatabaseError: in an ordered queue, another drain is at work.
    """
    if queue in paused_queues(alias):
        return Chosen([], True)
    if place is not None:
        place.begin()
    search = _Search(alias, queue, limit, place)
    is_cut = any(search.is_cut_in(priority) for priority in pending_priorities(alias, queue))
    if place is not None:
        place.chosen(search.last, is_all=not is_cut)
    is_all = not is_cut and (place is None or place.is_from_head or place.is_slow)
    return Chosen(_read(alias, search.found), is_all)


class _Search:
    """The search for the rows of one pass.

    Attributes:
        found: the ids of the rows, in their order.
        last: the last row that was seen, by priority.
    """

    def __init__(self, alias: str, queue: str, limit: int, place: Place | None) -> None:
        self._alias, self._queue, self._limit, self._place = alias, queue, limit, place
        self._vendor = connections[alias].vendor
        self._size = 0
        self.found: list[uuid.UUID] = []
        self.last: dict[int, _Seen] = {}

    def is_cut_in(self, priority: int) -> bool:
        """Add the due rows of this priority that fit. Return True if there may be more."""
        while (wanted := self._limit - len(self.found)) > 0:
            seen = self._see(priority, wanted)
            free = self._lock(seen)
            for one in seen:
                if one.id in free:
                    if self.found and self._size + one.size > MOST_BYTES:
                        return True
                    self._size += one.size
                    self.found.append(one.id)
                self.last[priority] = one
            if len(seen) < wanted:
                return False
        return True

    def _see(self, priority: int, limit: int) -> list[_Seen]:
        """Return due rows; on PostgreSQL, and in an ordered queue, lock them."""
        params: dict[str, Any] = {"queue": self._queue, "priority": priority, "limit": limit}
        sql = statements.SEE_DUE
        if self._place is None:
            sql = statements.LOCK_FIRST
        elif self._vendor == "postgresql":
            sql = statements.LOCK_DUE
        if cursor := self._cursor(priority):
            params.update(mark_time=cursor[0], mark_id=cursor[1])
        sql = sql.replace("{after}", AFTER_CURSOR if cursor else "")
        rows = fetch(self._alias, sql, **params)
        return [_Seen(as_uuid(task_id), due_at, size) for task_id, due_at, size in rows]

    def _cursor(self, priority: int) -> tuple[str, uuid.UUID] | None:
        """Return the row behind which the search goes on."""
        if (seen := self.last.get(priority)) is not None:
            return seen.due_at, seen.id
        return None if self._place is None else self._place.cursors.get(priority)

    def _lock(self, seen: Sequence[_Seen]) -> set[uuid.UUID]:
        """Return the ids of the rows that this drain has, after locking them where this was not done before."""
        ids = sorted(one.id for one in seen)
        if not ids or self._place is None or self._vendor != "mysql":
            return set(ids)
        return set(map(as_uuid, fetch_column(self._alias, statements.LOCK_SEEN, ids=ids)))


def _read(alias: str, ids: Sequence[uuid.UUID]) -> list[Row]:
    """Return these rows, in this order."""
    if not ids:
        return []
    rows = {as_uuid(one[0]): one[1:] for one in fetch(alias, statements.READ, ids=list(ids))}
    return [_row(task_id, *rows[task_id]) for task_id in ids if task_id in rows]


def _row(task_id: uuid.UUID, *values: Any) -> Row:  # in the order of ``statements.READ``
    name, queue, priority, args, kwargs, enqueued_at, headers, snoozes, errors, ended = values
    at = f"{enqueued_at[:10]}T{enqueued_at[11:]}+00:00"
    return Row(
        task_id, name, queue, priority, args, kwargs, at, headers, snoozes, errors, bool(ended)
    )
