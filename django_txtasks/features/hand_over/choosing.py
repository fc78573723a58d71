"""The rows of a pass: the highest priority first, then the row that has been due for longest."""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence, Set
from typing import Any, NamedTuple

from django.db import connections

from django_txtasks.core.rows.buckets import paused_queues, pending_priorities
from django_txtasks.core.rows.statements import AFTER_CURSOR
from django_txtasks.core.rows.turn import Cursor
from django_txtasks.database.execute import as_uuid, fetch, fetch_column
from django_txtasks.fast import ranges
from django_txtasks.features.hand_over import statements
from django_txtasks.features.hand_over.rows import Row
from django_txtasks.features.hand_over.sweeping import DueSweep, Seen

MOST_BYTES = 4_000_000
"""Bytes of arguments and headers in one pass; a bigger row goes alone."""
SLOW_SEARCH_SECONDS = 0.1
"""Seconds of a search from the head after which it is not repeated for each new row."""
PAUSE_PER_SECOND = 20
"""Pause in seconds per second of a search from the head: it takes at most 5 % of the time."""
MOST_PAUSE_SECONDS = 30.0
LATE_COMMIT = 10 * ranges.SECOND
"""Time before a sweep from which on the passes beside it read: a row may be committed later than others."""


class Place:
    """The place that the passes of one queue have reached, by priority.

    Rows that were handed over stay in the index until vacuum removes them, which an old snapshot may prevent for
    hours. Without a place, each pass would walk past all of them. If the database ends a search because it takes
    too long, sweeps replace it: they read in parts, over many passes. Meanwhile each pass reads new rows, too.

    Args:
        pause: seconds between two passes that begin at the head again, for rows that were written later with an
            older time, or were locked.
        is_ordered: each pass begins at the head, and waits for the drain that has locked the first row.

    Attributes:
        cursors: by priority, the row behind which the next pass begins.
        is_slow: the last search from the head took long. Then the searches in between read new rows only.
        is_swept: a search took too long, so that sweeps search from the head.
        sweep: the present one; None = none is due.
    """

    def __init__(self, pause: float, *, is_ordered: bool = False) -> None:
        self.is_ordered = is_ordered
        self._pause, self._next_head = pause, 0.0
        self.cursors: dict[int, Cursor] = {}
        self._before = self.cursors
        self._began = 0.0
        self.is_from_head, self.is_slow, self.is_swept = True, False, False
        self.sweep: DueSweep | None = None
        self._last_sweep: DueSweep | None = None
        self._was_sweep = False
        self._late = LATE_COMMIT

    def begin(self, alias: str, queue: str) -> None:
        """Begin a pass."""
        self._began, self._before = time.monotonic(), self.cursors
        is_due = self.is_ordered or not self.cursors or self._began >= self._next_head
        self.is_from_head = is_due and not self.is_swept
        if self.is_from_head:
            self.cursors = {}
        if is_due and self.is_swept and (self.is_ordered or self.sweep is None):
            self.sweep = DueSweep(alias, queue, self.cursors, self._last_sweep)
        self._was_sweep = self.sweep is not None

    def chosen(self, found: dict[int, Seen], *, is_all: bool) -> None:
        """Note the last row of each priority, once the rows were chosen.

        Args:
            is_all: no more rows are due behind them. Then the next pass begins at the head, unless that is slow.
        """
        if self.is_ordered:
            return
        if self.is_from_head:
            took = time.monotonic() - self._began
            self._note_cost(took, took)
            if self.is_slow:
                self.cursors = self._before
        self.cursors = {**self.cursors, **{one: seen.cursor for one, seen in found.items()}}
        if is_all and not (self.is_slow or self.is_swept):
            self.cursors = {}

    def swept(self, alias: str) -> None:
        """Note the progress of the sweep. The next passes also read the rows that become due later."""
        sweep = self.sweep
        if sweep is None:
            return
        if sweep.now and not self.is_ordered:
            start = ranges.cursor_at(alias, sweep.now - self._late)
            self.cursors = {**{one.priority: start for one in sweep.buckets}, **self.cursors}
        if sweep.is_over or self.is_ordered:
            self.sweep, self._last_sweep = None, sweep
            self._note_cost(sweep.spent, sweep.waste)
            self.is_swept = self.is_slow

    def go_back(self, *, too_long: bool = False) -> None:
        """Go back to where a pass began whose rows stay. If a statement took too long, sweep from now on."""
        self.cursors = self._before
        if too_long:  # beside a sweep: there are too many dead rows behind the cursors, too
            self._late = 0 if self.is_swept else LATE_COMMIT
            self.cursors = {} if self.is_swept else self.cursors
        if self.is_from_head or self._was_sweep:
            self._next_head = 0.0
        if self.sweep is not None:
            self.sweep.rolled_back()
        self.is_swept = self.is_swept or too_long

    def _note_cost(self, seconds: float, waste: float) -> None:
        """Choose the time of the next search from the head, from the seconds that this one took."""
        self.is_slow = waste > SLOW_SEARCH_SECONDS
        seldom = min(PAUSE_PER_SECOND * seconds, MOST_PAUSE_SECONDS)
        self._next_head = time.monotonic() + max(self._pause, seldom)


class Chosen(NamedTuple):
    """The chosen rows of a pass, locked except on SQLite.

    Attributes:
        is_all: this pass has seen no other due row.
    """

    rows: Sequence[Row]
    is_all: bool


def choose(alias: str, queue: str, limit: int, place: Place) -> Chosen:
    """Choose and lock the next rows of a queue, in the open transaction.

    Raises:
        DatabaseError: in an ordered queue, another drain is at work; or a search took too long. Then
            ``place.go_back`` lets the next pass read less.
    """
    if queue in paused_queues(alias):
        return Chosen([], True)
    place.begin(alias, queue)
    search = _Search(alias, queue, limit, place)
    if place.is_swept:
        is_all = _sweep(search, limit, place)
        place.swept(alias)
    else:
        is_cut = any(search.is_cut_in(priority) for priority in pending_priorities(alias, queue))
        place.chosen(search.last, is_all=not is_cut)
        is_all = not is_cut and (place.is_from_head or place.is_slow)
    return Chosen(_read(alias, list(search.found)), is_all)


def _sweep(search: _Search, limit: int, place: Place) -> bool:
    """Read a part of the due rows, and new rows. Return True if there are no others."""
    sweep = place.sweep
    if sweep is not None:
        sweep.go_on(search, limit)
        while place.is_ordered and not (search.found or sweep.is_over):
            sweep.go_on(search, limit)
    is_cut = any(search.is_cut_in(priority) for priority in sorted(place.cursors, reverse=True))
    place.chosen(search.last, is_all=not is_cut)
    return not is_cut and (sweep is None or sweep.is_over)


class _Search:
    """The search for the rows of one pass.

    Attributes:
        found: the rows by their ids, in their order.
        last: the last row that was seen, by priority.
    """

    def __init__(self, alias: str, queue: str, limit: int, place: Place) -> None:
        self._alias, self._queue, self._limit, self._place = alias, queue, limit, place
        self._vendor = connections[alias].vendor
        self._size = 0
        self.found: dict[uuid.UUID, Seen] = {}
        self.last: dict[int, Seen] = {}

    @property
    def count(self) -> int:
        """Number of rows that were found."""
        return len(self.found)

    def is_cut_in(self, priority: int) -> bool:
        """Add the due rows of this priority that fit. Return True if there may be more."""
        while (wanted := self._limit - self.count) > 0:
            seen = self._see(priority, wanted)
            is_locked = self._place.is_ordered or self._vendor != "mysql"
            done = self._add(seen, {one.id for one in seen} if is_locked else self._lock(seen))
            if done:
                self.last[priority] = seen[done - 1]
            if done < len(seen):
                return True
            if len(seen) < wanted:
                return False
        return True

    def take(self, seen: Sequence[Seen]) -> int:
        """Lock rows that were seen, and add the free ones: see ``Taker``."""
        return self._add(seen, self._lock(seen))

    def _add(self, seen: Sequence[Seen], free: Set[uuid.UUID]) -> int:
        """Add free rows, as long as they fit. Return the number of rows before the first that does not."""
        for place, one in enumerate(seen):
            if one.id in free and one.id not in self.found:
                if self.found and self._size + one.size > MOST_BYTES:
                    return place
                self._size += one.size
                self.found[one.id] = one
        return len(seen)

    def _see(self, priority: int, limit: int) -> list[Seen]:
        """Return due rows; on PostgreSQL, and in an ordered queue, lock them."""
        params: dict[str, Any] = {"queue": self._queue, "priority": priority, "limit": limit}
        sql = statements.SEE_DUE
        if self._place.is_ordered:
            sql = statements.LOCK_FIRST
        elif self._vendor == "postgresql":
            sql = statements.LOCK_DUE
        if cursor := self._cursor(priority):
            params.update(mark_time=cursor.due_at, mark_id=cursor.task_id)
        sql = sql.replace("{after}", AFTER_CURSOR if cursor else "")
        return [Seen.of(*row) for row in fetch(self._alias, sql, **params)]

    def _cursor(self, priority: int) -> Cursor | None:
        """Return the row behind which the search goes on."""
        if (seen := self.last.get(priority)) is not None:
            return seen.cursor
        return self._place.cursors.get(priority)

    def _lock(self, seen: Sequence[Seen]) -> set[uuid.UUID]:
        """Lock rows by their key. Return the ids of the locked ones; another drain may have the others."""
        ids = sorted(one.id for one in seen)
        if not ids:
            return set()
        sql = statements.LOCK_ALL_SEEN if self._place.is_ordered else statements.LOCK_SEEN
        return set(map(as_uuid, fetch_column(self._alias, sql, ids=ids)))


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
