"""The steps of a cleaner's pass: renotify, forget unused rows, sweep side tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import timedelta

from django_txtasks.core.cleaning.parts import StepContext, Sweeping
from django_txtasks.core.cleaning.renotifier import Renotifier
from django_txtasks.core.rows import cleaners, cleaning, workers
from django_txtasks.database.side_tables import side_tables

KEEP_LOST_WORKERS = timedelta(days=1)


class Upkeep:
    """The steps of a pass. Each is a generator that yields its counts after each bounded piece of work."""

    def __init__(self, context: StepContext) -> None:
        self._config, self._alias, self._clock = context.config, context.alias, context.clock
        self._context, notify = context, context.notify
        self._renotifier = None if notify is None else Renotifier(self._config, self._alias, notify)
        self._sweeping: dict[str, Sweeping] = {}  # by side table

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
