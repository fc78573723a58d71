"""Reports on schedules in a cleaner's pass: late daily tasks, and schedules that differ from the code."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

from django_txtasks import signals
from django_txtasks.core.ground.wording import in_english
from django_txtasks.features.schedules import periodic as scheduling
from django_txtasks.features.schedules import ticks as schedules
from django_txtasks.features.schedules.status import differences, status_of_rows
from django_txtasks.models import DatabaseNow, Schedule

TOLD_AGAIN_SECONDS = 3600.0
MOST_TOLD = 10


class Told:
    """Logged texts, which are not repeated within an hour.

    Args:
        clock: monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._until: dict[str, float] = {}

    def is_new(self, text: str) -> bool:
        """Return True if the text was not logged in the last hour; otherwise each tick would log it."""
        now = self._clock()
        is_new = self._until.get(text, float("-inf")) < now
        if is_new:
            self._until[text] = now + TOLD_AGAIN_SECONDS
        return is_new


class ScheduleReports:
    """Steps of a pass. Each is a generator that yields once.

    Args:
        emit: emits a signal with its facts.
        clock: monotonic seconds.
    """

    def __init__(
        self, alias: str, *, emit: Callable[..., None], clock: Callable[[], float]
    ) -> None:
        self._alias, self._emit, self._told = alias, emit, Told(clock)

    def tell_of_unready(self) -> Iterator[Counter[str]]:
        """Report each daily task that was not done by its hour, once."""
        rows = Schedule.objects.using(self._alias).filter(enabled=True).exclude(ready_by="")
        with in_english():
            found = status_of_rows(self._alias, rows.annotate(now=DatabaseNow()))
        for status in found:
            row, tick = status.row, status.unready
            if tick is None or (row.told_at is not None and row.told_at >= tick):
                continue
            if schedules.tell_unready(self._alias, row.pk, tick):
                state = status.state if row.last_at == tick else "not there"
                if status.unsettled is not None:
                    with in_english():
                        state = f"done, but {status.unsettled}"
                facts: dict[str, Any] = {"schedule": row.pk, "ready_by": f"{row.ready_by} {row.tz}"}
                self._emit(
                    signals.schedule_not_ready,
                    **facts,
                    tick=f"{tick:%Y-%m-%d %H:%M} UTC",
                    state=state,
                )
        yield Counter()

    def tell_of_differences(self) -> Iterator[Counter[str]]:
        """Report once that the database's schedules differ from this code's."""
        declared = scheduling.declared(self._alias)
        if declared:
            found = differences(Schedule.objects.using(self._alias).all(), declared)
            text = ", ".join(found[:MOST_TOLD]) + (", …" if len(found) > MOST_TOLD else "")
            if found and self._told.is_new(text):
                self._emit(signals.schedules_differ, database=self._alias, differences=text)
        yield Counter()
