"""The steps of a cleaner's pass: renotify, end batches, forget unused rows, report long claims."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

from django.db import DatabaseError, connections

from django_txtasks import signals
from django_txtasks.cleaner.renotifier import Notify, Renotifier
from django_txtasks.conf import Config
from django_txtasks.database.errors import is_repeatable, took_too_long
from django_txtasks.database.side_tables import Sweep, side_tables
from django_txtasks.database.transactions import own_transaction
from django_txtasks.enqueueing import once
from django_txtasks.lanes import claiming as lanes
from django_txtasks.lifecycle import batches, cleaners, cleaning, names, workers
from django_txtasks.stacks import answers as stacks
from django_txtasks.steps import rows as steps
from django_txtasks.wording import in_english

KEEP_LOST_WORKERS = timedelta(days=1)
KEEP_UNUSED_LANES = timedelta(days=7)
LOOKS_AT_STEPS = 20
"""Looks of one pass at tasks with steps that all still exist: 10,000 tasks."""
KEEP_BATCHES = timedelta(days=3)
"""Shortest time for which ended batches are kept, even if finished tasks are kept for less.

A schedule reads the batches of a tick for up to two days after the tick: its ``ready_by`` may come almost a
day after the tick, and counts until the same hour of the next day.
"""

Emit = Callable[..., None]


class Upkeep:
    """The steps of a pass. Each is a generator that yields its counts after each bounded piece of work.

    Args:
        notify: sends hints for (id, queue) pairs; None = hints are off.
        emit: emits a signal with its facts.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        config: Config,
        alias: str,
        *,
        notify: Notify | None,
        emit: Emit,
        clock: Callable[[], float],
    ) -> None:
        self._config, self._alias, self._clock = config, alias, clock
        self._emit, self._notify = emit, notify
        self._renotifier = None if notify is None else Renotifier(config, alias, notify)
        self._running_long: set[tuple[uuid.UUID, int]] = set()
        self._last_with_steps = steps.FIRST_TASK  # the last task whose steps were read
        self._swept: dict[str, Any] = {}  # by side table: the place where its sweep goes on
        # by queue and name: the passes in a row that have seen it
        self._undeclared: dict[tuple[str, str], int] = {}

    def renotify(self) -> Iterator[Counter[str]]:
        """Send hints again for tasks that have been due for two intervals."""
        if self._renotifier is not None:
            for count in self._renotifier.pages():
                yield Counter(renotified=count)

    def forget(self) -> Iterator[Counter[str]]:
        """Delete rows of lost workers, ended cleaners, unused lanes, and old requests for stacks."""
        with self._transaction():
            cleaning.forget_lost_workers(self._alias, KEEP_LOST_WORKERS)
            stacks.forget(self._alias)
        kept = self._config.retention.longest
        if kept is not None:  # as long as tasks that name them
            workers.forget_ended(self._alias, max(kept, KEEP_LOST_WORKERS))
        cleaners.forget_gone(self._alias)
        yield Counter()
        _, behind = lanes.forget(self._alias, KEEP_UNUSED_LANES, self._config.lanes)
        while behind:
            yield Counter()
            _, behind = lanes.forget(self._alias, KEEP_UNUSED_LANES, self._config.lanes, behind)
        yield Counter()

    def forget_keys(self) -> Iterator[Counter[str]]:
        """Delete expired keys of ``once``, for an interval at most."""
        end, count = (
            self._clock() + self._config.clean_interval.total_seconds(),
            once.KEYS_PER_TRANSACTION,
        )
        while count == once.KEYS_PER_TRANSACTION and self._clock() <= end:
            with self._transaction():
                count = once.forget(self._alias)
            yield Counter()

    def forget_steps(self) -> Iterator[Counter[str]]:
        """Delete rows of side tables, such as steps, whose task no longer exists.

        The next pass continues behind the last one. ``remove`` has deleted these rows of finished tasks that were
        kept. These belong to tasks that were not kept.
        """
        end, looks = self._clock() + self._config.clean_interval.total_seconds(), LOOKS_AT_STEPS
        while looks and self._clock() <= end:
            with self._transaction():
                gone, self._last_with_steps = steps.forget(self._alias, self._last_with_steps)
            looks = 0 if self._last_with_steps == steps.FIRST_TASK else looks - (not gone)
            yield Counter()

    def sweep(self) -> Iterator[Counter[str]]:
        """Let the apps that have side tables bring their rows up to date.

        The next pass continues behind the last row.
        """
        end = self._clock() + self._config.clean_interval.total_seconds()
        for table in side_tables(self._alias):
            if table.sweep is not None:
                yield from self._sweep(table.name, table.sweep, end)
        yield Counter()

    def _sweep(self, name: str, sweep: Sweep, end: float) -> Iterator[Counter[str]]:
        looks = LOOKS_AT_STEPS
        while looks and self._clock() <= end:
            with self._transaction():
                changed, place = sweep(self._alias, self._swept.get(name))
            self._swept[name] = place
            looks = 0 if place is None else looks - (not changed)
            yield Counter()

    def end_batches(self) -> Iterator[Counter[str]]:
        """End batches whose last member ended without a look at the batch; delete batches that ended long ago."""
        after: uuid.UUID | None = batches.FIRST_ID
        while after is not None:
            with self._transaction():
                over, after = batches.without_live_member(self._alias, after)
            for batch in over:
                self._end_batch(batch)
                yield Counter()
            yield Counter()
        kept = self._config.retention.longest
        if kept is not None:
            age = max(kept, KEEP_BATCHES).total_seconds()
            with self._transaction():
                batches.forget(self._alias, age)
            yield Counter()

    def _end_batch(self, batch: uuid.UUID) -> None:
        try:
            follow_ups = batches.look(self._alias, batch).follow_ups
        except DatabaseError as error:
            is_locked = took_too_long(error) or is_repeatable(error)
            if not is_locked or connections[self._alias].vendor == "sqlite":
                raise
            return  # a session has locked it: skip it until the next pass, so that the others do not wait
        if follow_ups and self._notify is not None:
            self._notify(follow_ups)

    def tell_of_long_claims(self) -> Iterator[Counter[str]]:
        """Report each claim without a time limit that a living worker has held for too long, once."""
        with self._transaction():
            found = cleaning.long_claimed(self._alias, self._config.long_running_after)
        for attempt, where in found:
            if (attempt.task_id, attempt.number) not in self._running_long:
                self._emit(signals.task_running_long, **attempt.facts, where=where)
        self._running_long = {(attempt.task_id, attempt.number) for attempt, _ in found}
        yield Counter()

    def tell_of_undeclared_names(self) -> Iterator[Counter[str]]:
        """Report names that no worker of their queue declares: in the second pass, because it may be a deploy."""
        found = names.undeclared(self._alias, self._config.queues)
        seen = [(queue, name) for queue, counts in found.items() for name in counts]
        self._undeclared = {one: self._undeclared.get(one, 0) + 1 for one in seen}
        new: names.Found = {}
        for (queue, name), passes in self._undeclared.items():
            if passes == 2:
                new.setdefault(queue, {})[name] = found[queue][name]
        if new:
            with in_english():
                text = names.listed(new)
            self._emit(signals.names_undeclared, names=text)
        yield Counter()

    def _transaction(self) -> Any:
        return own_transaction(self._alias, limit=self._config.lease / 2, in_order=True)
