"""The step of a pass that adds up the figures of workers, and notes the backlog of each queue."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

from django.db import DatabaseError

from django_txtasks import signals
from django_txtasks.database.transactions import own_transaction
from django_txtasks.features.figures import adding_up
from django_txtasks.features.figures.appending import append_cost
from django_txtasks.features.figures.options import FigureConfig
from django_txtasks.insight.load.backlog import backlog

MORE_ROWS = 10
"""Rows by which a slice is larger than the one before that got through."""
MAX_SHOWN = 5
"""Invalid rows that one log line names."""


class Figures:
    """Adds up while no other cleaner does, for an interval at most.

    If a slice does not get through, as on a slow server, the next one is half as large. After a slice that gets
    through, the next one is a little larger.

    Args:
        emit: emits a signal with its facts.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        config: FigureConfig,
        alias: str,
        *,
        emit: Callable[..., None],
        clock: Callable[[], float],
    ) -> None:
        self._config, self._alias, self._emit, self._clock = config, alias, emit, clock
        self._rows = adding_up.MAX_ROWS

    def add_up(self) -> Iterator[Counter[str]]:
        """Add up the appended rows in slices, then note the backlog and delete old rows.

        Without figures in this cleaner's settings, add up what others have appended, and no more.
        """
        if not (self._config.stats or adding_up.has_rows(self._alias)):
            return
        end = self._clock() + self._config.clean_interval.total_seconds()
        has_more, is_first = True, self._config.stats
        while has_more and self._clock() <= end:
            has_more, is_first = self._add_slice(with_cost=is_first), False
            yield Counter()
        if self._config.stats:
            due = self._backlog()
            yield Counter()
            self._note(due)
            yield Counter()

    def _add_slice(self, *, with_cost: bool) -> bool:
        try:
            with own_transaction(self._alias, limit=self._config.lease / 2):
                if with_cost:
                    append_cost(self._alias)
                if not adding_up.enter(self._alias):
                    return False
                added = adding_up.add_up(self._alias, self._rows)
        except DatabaseError:
            self._rows = max(1, self._rows // 2)
            raise
        self._rows = min(self._rows + MORE_ROWS, adding_up.MAX_ROWS)
        if added.invalid:
            shown = ", ".join(added.invalid[:MAX_SHOWN])
            self._emit(
                signals.figures_dropped,
                database=self._alias, number=len(added.invalid), rows=shown,
            )  # fmt: skip
        return added.has_more

    def _backlog(self) -> dict[str, tuple[int, float]]:
        with own_transaction(self._alias, limit=self._config.lease / 2, in_order=True):
            return backlog(self._alias, self._config.queues)

    def _note(self, due: dict[str, tuple[int, float]]) -> None:
        with own_transaction(self._alias, limit=self._config.lease / 2):
            if adding_up.enter(self._alias):
                adding_up.note_backlog(self._alias, due)
                adding_up.forget_old(self._alias)
