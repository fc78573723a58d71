"""The removal of old rows in a cleaner's pass: expired tasks, and finished tasks that were kept long enough."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from datetime import timedelta
from functools import partial
from typing import Any

from django.db import DatabaseError

from django_txtasks import signals
from django_txtasks.cleaner.removal import Removal
from django_txtasks.conf import Config, Pruned
from django_txtasks.database.errors import text_of
from django_txtasks.database.transactions import own_transaction
from django_txtasks.lifecycle import cleaning
from django_txtasks.lifecycle.cleaning import Expired, Place, Removed

Count = Callable[[Iterable[Any]], Counter[str]]
"""Counts removed rows by the kind of removal."""


class OldRows:
    """Removes old rows, each kind by a ``Removal`` of its own.

    Args:
        emit: emits a signal with its facts.
        skip: called with the facts of a row that cannot be moved.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        config: Config,
        alias: str,
        *,
        emit: Callable[..., None],
        skip: Callable[[uuid.UUID, Exception], None],
        clock: Callable[[], float],
    ) -> None:
        self._config, self._alias, self._clock = config, alias, clock
        self._emit, self._skip = emit, skip
        self._removals = [self._removal("expired", _unstarted, self._expire, self._lately)]
        for what in config.pruned:
            prune, lately = partial(self._prune, what), partial(self._lately, what.age)
            self._removals.append(self._removal("pruned", _pruned, prune, lately))

    def remove(self) -> Iterator[Counter[str]]:
        """Cancel expired tasks, and delete finished tasks that were kept long enough.

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

    def _removal(
        self,
        name: str,
        count: Count,
        remove: Callable[[Place | None], Removed],
        recent: Callable[[], Place],
    ) -> tuple[Count, Removal]:
        def tell(error: DatabaseError) -> None:
            what = f"looking for the oldest rows ({name}): {text_of(error)}"
            self._emit(signals.step_put_off, database=self._alias, error=what)

        return count, Removal(remove, recent, self._clock, tell)

    def _expire(self, since: Place | None) -> Removed:
        with self._transaction():
            removed = cleaning.expire(self._alias, keep=self._config.keeps_finished, since=since)
        for one in removed.rows:
            signal = signals.task_cancelled if one.was_asked else signals.task_expired
            self._emit(signal, task_id=one.id, task=one.name, queue=one.queue)
        for task_id, error in removed.stuck:
            self._skip(task_id, error)
        return removed

    def _prune(self, what: Pruned, since: Place | None) -> Removed:
        with self._transaction():
            return cleaning.prune(self._alias, what, since=since)

    def _lately(self, age: timedelta = timedelta(0)) -> Place:
        """Return the place behind which rows have come of age during the last two passes."""
        return cleaning.place_of_age(self._alias, age + 2 * self._config.clean_interval)

    def _transaction(self) -> Any:
        return own_transaction(self._alias, limit=self._config.lease / 2, in_order=True)


def _unstarted(rows: Iterable[Expired]) -> Counter[str]:
    return Counter("cancelled" if row.was_asked else "expired" for row in rows)


def _pruned(rows: Iterable[Any]) -> Counter[str]:
    return Counter(pruned=len(list(rows)))
