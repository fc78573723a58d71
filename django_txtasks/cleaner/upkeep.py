"""The steps of a cleaner's pass: renotify, forget unused rows, report long claims and unknown names."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta

from django_txtasks import signals
from django_txtasks.cleaner.parts import StepContext, Sweeping
from django_txtasks.cleaner.renotifier import Renotifier
from django_txtasks.database.side_tables import side_tables
from django_txtasks.lifecycle import cleaners, cleaning, names, workers
from django_txtasks.wording import in_english

KEEP_LOST_WORKERS = timedelta(days=1)


class Upkeep:
    """The steps of a pass. Each is a generator that yields its counts after each bounded piece of work."""

    def __init__(self, context: StepContext) -> None:
        self._config, self._alias, self._clock = context.config, context.alias, context.clock
        self._context, self._emit, notify = context, context.emit, context.notify
        self._renotifier = None if notify is None else Renotifier(self._config, self._alias, notify)
        self._running_long: set[tuple[uuid.UUID, int]] = set()
        self._sweeping: dict[str, Sweeping] = {}  # by side table
        # by queue and name: the passes in a row that have seen it
        self._undeclared: dict[tuple[str, str], int] = {}

    def renotify(self) -> Iterator[Counter[str]]:
        """Send hints again for tasks that have been due for two intervals."""
        if self._renotifier is not None:
            for count in self._renotifier.pages():
                yield Counter(renotified=count)

    def forget(self) -> Iterator[Counter[str]]:
        """Delete rows of lost workers and of ended cleaners."""
        with self._context.transaction():
            cleaning.forget_lost_workers(self._alias, KEEP_LOST_WORKERS)
        kept = self._config.retention.longest
        if kept is not None:  # as long as tasks that name them
            workers.forget_ended(self._alias, max(kept, KEEP_LOST_WORKERS))
        cleaners.forget_gone(self._alias)
        yield Counter()

    def sweep(self) -> Iterator[Counter[str]]:
        """Let the apps that have side tables bring their rows up to date."""
        end = self._context.interval_from_now()
        for table in side_tables(self._alias):
            if table.sweep is not None:
                sweeping = Sweeping(self._context, table.sweep)
                yield from self._sweeping.setdefault(table.name, sweeping).looks(end)
        yield Counter()

    def tell_of_long_claims(self) -> Iterator[Counter[str]]:
        """Report each claim without a time limit that a living worker has held for too long, once."""
        with self._context.transaction():
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
