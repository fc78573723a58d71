"""The removal of old rows in a cleaner's pass: expired, finished and dead tasks that were kept long enough."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from datetime import timedelta
from functools import partial
from typing import Any

from django.db import DatabaseError

from django_txtasks import signals
from django_txtasks.core.cleaning.removal import DailyRemoval, Removal
from django_txtasks.core.ground.config import CoreConfig
from django_txtasks.core.ground.retention import Horizon, horizons_of_dead
from django_txtasks.core.rows import cleaning
from django_txtasks.core.rows.cleaning import Expired, Place, Removed
from django_txtasks.database.errors import text_of
from django_txtasks.database.transactions import own_transaction
from django_txtasks.models import Outcome

DAY = timedelta(days=1)
Remove = Callable[[Place | None], Removed]
Count = Callable[[Iterable[Any]], Counter[str]]
"""Counts removed rows by the kind of removal."""


class OldRows:
    """Removes old rows: expired tasks, and for each distinct time the rows that are kept for this time.

    Each has a ``Removal`` of its own. If rows of other kinds stay for longer, the ``Removal`` begins a day
    before the horizon, and a ``DailyRemoval`` walks from the oldest row.

    Args:
        emit: emits a signal with its facts.
        skip: called with the facts of a row that cannot be moved.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        config: CoreConfig,
        alias: str,
        *,
        emit: Callable[..., None],
        skip: Callable[[uuid.UUID, Exception], None],
        clock: Callable[[], float],
    ) -> None:
        self._config, self._alias, self._clock = config, alias, clock
        self._emit, self._skip = emit, skip
        self._removals: list[tuple[Count, Removal | DailyRemoval]] = []
        expired = Removal(self._expire, self._lately, clock, partial(self._put_off, "expired"))
        self._removals.append((_unstarted, expired))
        for horizon in config.retention.horizons:
            self._add("pruned", horizon, partial(self._prune, horizon))
        for horizon in horizons_of_dead(config.discard_dead_after):
            self._add("discarded", horizon, partial(self._discard, horizon))

    def remove(self) -> Iterator[Counter[str]]:
        """Cancel expired tasks, delete finished tasks and discard dead tasks that were kept long enough.

        The removals take turns for an interval at most, so that they do not wait for each other.
        """
        end = self._clock() + self._config.clean_interval.total_seconds()
        for _, removal in self._removals:
            removal.begin()
        busy = self._removals
        while busy and self._clock() <= end:
            left = []
            for count, removal in busy:
                rows, more = removal.chunk()
                if more:
                    left.append((count, removal))
                yield count(rows)
            busy = left

    def _add(self, name: str, horizon: Horizon, remove: Remove) -> None:
        count, tell = partial(_counted, name), partial(self._put_off, name)
        lately = partial(self._lately, horizon.age)
        if not horizon.kinds:  # each row of this age may go
            self._removals.append((count, Removal(remove, lately, self._clock, tell)))
            return
        day_before = partial(cleaning.place_of_age, self._alias, horizon.age + DAY)
        recent = Removal(remove, lately, self._clock, tell, begin_at=day_before, patience=0.0)
        self._removals.append((count, recent))
        self._removals.append((count, DailyRemoval(remove, self._clock, tell)))

    def _put_off(self, name: str, error: DatabaseError) -> None:
        what = f"looking for the oldest rows ({name}): {text_of(error)}"
        self._emit(signals.step_put_off, database=self._alias, error=what)

    def _expire(self, since: Place | None) -> Removed:
        with self._transaction():
            removed = cleaning.expire(self._alias, keeps=self._config.keeps, since=since)
        for one in removed.rows:
            signal = signals.task_cancelled if one.was_asked else signals.task_expired
            self._emit(signal, task_id=one.id, task=one.name, queue=one.queue)
        for task_id, error in removed.stuck:
            self._skip(task_id, error)
        return removed

    def _prune(self, horizon: Horizon, since: Place | None) -> Removed:
        with self._transaction():
            return cleaning.prune(self._alias, horizon, since=since)

    def _discard(self, horizon: Horizon, since: Place | None) -> Removed:
        keep = self._config.keeps(Outcome.DISCARDED)
        with self._transaction():
            removed = cleaning.discard_dead(self._alias, horizon, keep=keep, since=since)
        for task_id, name, queue in removed.rows:
            self._emit(signals.task_discarded, task_id=task_id, task=name, queue=queue)
        return removed

    def _lately(self, age: timedelta = timedelta(0)) -> Place:
        """Return the place behind which rows have come of age during the last two passes."""
        return cleaning.place_of_age(self._alias, age + 2 * self._config.clean_interval)

    def _transaction(self) -> Any:
        return own_transaction(self._alias, limit=self._config.lease / 2, in_order=True)


def _unstarted(rows: Iterable[Expired]) -> Counter[str]:
    return Counter("cancelled" if row.was_asked else "expired" for row in rows)


def _counted(name: str, rows: Iterable[Any]) -> Counter[str]:
    return Counter({name: len(list(rows))})
