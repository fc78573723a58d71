"""The search of a drain where one statement would take too long, as behind millions of dead rows: in parts."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, Protocol

from django_txtasks.core.declaring import registry
from django_txtasks.core.rows.engines.portable import RowsClaimed
from django_txtasks.core.rows.turn import Bucket, Capacity, Cursor, Subscription
from django_txtasks.database.execute import as_uuid
from django_txtasks.fast.sweep import Sweep
from django_txtasks.features.hand_over import statements

LONGEST_PART_SECONDS = 5.0
"""Limit for the statement of one part, if no smaller part is possible."""
NOBODY = uuid.UUID(int=0)


class Seen(NamedTuple):
    """A due row, by its place in the order of its priority, and its size in bytes."""

    id: uuid.UUID
    due_at: str
    size: int

    @classmethod
    def of(cls, task_id: Any, due_at: str, size: int) -> Seen:
        """Return a row of ``statements.SEE_DUE``."""
        return cls(as_uuid(task_id), due_at, size)

    @property
    def cursor(self) -> Cursor:
        """The place of this row."""
        return Cursor(self.due_at, self.id)


class Taker(Protocol):
    """Takes rows that were seen."""

    @property
    def count(self) -> int:
        """Number of rows that it has."""

    def take(self, seen: Sequence[Seen]) -> int:
        """Lock rows, and take the free ones. Return the number of rows before the first that does not fit."""


class DueSweep(Sweep):
    """A worker's sweep that reads all due rows of a queue, whatever their name, for a ``Taker``.

    Args:
        priorities: the priorities of earlier rows. To find others takes long if they have many dead rows.
        last: the sweep before, which knows how large a part may be.
    """

    sql, kind = statements.SEE_DUE, Seen.of

    def __init__(
        self, alias: str, queue: str, priorities: Iterable[int], last: DueSweep | None
    ) -> None:
        known = {0, *priorities, *(one.priority for one in registry.declarations())}
        super().__init__(
            Subscription(alias, (queue,), ()),
            {Bucket(one, queue) for one in known} | (last.buckets if last else set()),
            longest=LONGEST_PART_SECONDS,
            before=last.parts if last else {},
        )
        self._taker: Taker | None = None

    def go_on(self, taker: Taker, limit: int) -> None:
        """Read for a short time, and let at most ``limit`` rows be taken."""
        self._taker = taker
        self.claim(NOBODY, Capacity(limit))

    def _take(self, worker: uuid.UUID, candidates: Sequence[Any], rest: Capacity) -> RowsClaimed:
        taker = self._taker
        if taker is None:
            raise TypeError("go_on() names the taker")
        before = taker.count
        done = taker.take(candidates)
        is_cut = done < len(candidates)
        left = 0 if is_cut else rest.width - (taker.count - before)
        return RowsClaimed([], Capacity(left), None, passed=done, is_cut_short=is_cut)
