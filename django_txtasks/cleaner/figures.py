"""The step of a pass that adds up the figures of workers, and notes the backlog of each queue."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

from django_txtasks.conf import Config
from django_txtasks.counts import adding_up
from django_txtasks.database.transactions import own_transaction
from django_txtasks.lifecycle.backlog import backlog


class Figures:
    """Adds up while no other cleaner does, for an interval at most.

    Args:
        clock: monotonic seconds.
    """

    def __init__(self, config: Config, alias: str, clock: Callable[[], float]) -> None:
        self._config, self._alias, self._clock = config, alias, clock

    def add_up(self) -> Iterator[Counter[str]]:
        """Add up the appended rows in slices, then note the backlog and delete old rows."""
        if not self._config.stats:
            return
        end = self._clock() + self._config.clean_interval.total_seconds()
        has_more = True
        while has_more and self._clock() <= end:
            has_more = self._add_slice()
            yield Counter()
        due = self._backlog()
        yield Counter()
        self._note(due)
        yield Counter()

    def _add_slice(self) -> bool:
        with own_transaction(self._alias, limit=self._config.lease / 2):
            return adding_up.enter(self._alias) and adding_up.add_up(self._alias)

    def _backlog(self) -> dict[str, tuple[int, float]]:
        with own_transaction(self._alias, limit=self._config.lease / 2, in_order=True):
            return backlog(self._alias, self._config.queues)

    def _note(self, due: dict[str, tuple[int, float]]) -> None:
        with own_transaction(self._alias, limit=self._config.lease / 2):
            if adding_up.enter(self._alias):
                adding_up.note_backlog(self._alias, due)
                adding_up.forget_old(self._alias)
