"""The passing of time in a test: the next time at which something is due, and the work of a cleaner."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from datetime import timedelta

from django.db import transaction

from django_txtasks import signals
from django_txtasks.conf import get_config
from django_txtasks.core.declaring import registry
from django_txtasks.core.rows import cleaning
from django_txtasks.core.rows.turn import Subscription
from django_txtasks.features.schedules import periodic as scheduling
from django_txtasks.features.schedules import ticks as schedules
from django_txtasks.features.schedules.rules import has_cron
from django_txtasks.features.schedules.ticks import AHEAD, Scope
from django_txtasks.models import DatabaseNow, Status, Task
from django_txtasks.testing.clock import Clock

ROUNDING = timedelta(milliseconds=1)
"""The resolution of SQLite's clock."""


class PassingTime:
    """Moves the clock of one database from one due time to the next.

    Args:
        span: how much more time may pass.
    """

    def __init__(self, alias: str, clock: Clock, span: timedelta) -> None:
        self._alias, self._clock = alias, clock
        self._end = clock.skipped + span
        self._skipped: set[str] = set()  # names of schedules whose ticks this code cannot write

    def shown(self) -> AbstractContextManager[None]:
        """Let ``timezone.now()`` return this time."""
        return self._clock.shown()

    def go_on(self, subscription: Subscription) -> bool:
        """Move to the next time at which something may be due; return False if nothing is due before the end."""
        if self._expire() or self._write_ticks(subscription):
            return True
        waits = [*self._until_task(subscription), *self._until_tick(subscription)]
        target = self._clock.skipped + min(waits, default=timedelta.max / 2)
        if target > self._end + ROUNDING:
            return False
        self._clock.skipped = max(target, self._clock.skipped)
        return True

    def _until_task(self, subscription: Subscription) -> Iterator[timedelta]:
        later = Task.objects.using(self._alias).filter(
            status=Status.PENDING, queue_name__in=subscription.queues,
            task_name__in=subscription.names, run_after__gt=DatabaseNow(),
        )  # fmt: skip
        times = later.annotate(now=DatabaseNow()).only("run_after")
        # With values_list(), Django would sort by its expression for the time in the SELECT, which no index has.
        for one in times.order_by("run_after")[:1]:
            yield max(one.run_after - one.now, timedelta(microseconds=1))  # type: ignore[attr-defined]

    def _until_tick(self, subscription: Subscription) -> Iterator[timedelta]:
        """Yield the time until the tick's task is written, which is before the tick; or until the tick passes."""
        wait, _ = schedules.next_tick(self._alias, self._scope(subscription))
        if wait is not None and wait > 0:
            yield timedelta(seconds=wait) - (
                AHEAD if wait > AHEAD.total_seconds() else timedelta(0)
            )

    def _write_ticks(self, subscription: Subscription) -> bool:
        scope = self._scope(subscription)
        wait, _ = schedules.next_tick(self._alias, scope)
        if wait is None or wait > AHEAD.total_seconds():
            return False
        written = schedules.write_ticks(self._alias, scope, scheduling.tasks_of, limit=None)
        for name, error in written.skipped:
            self._skipped.add(name)
            signals.schedule_not_written.emit(schedule=name, error=error)
        for name, error in written.broken:
            signals.schedule_disabled.emit(schedule=name, error=error)
        return bool(written.moved)

    def _expire(self) -> bool:
        with transaction.atomic(using=self._alias):
            removed = cleaning.expire(self._alias, keeps=get_config().keeps)
        for one in removed.rows:
            signal = signals.task_cancelled if one.was_asked else signals.task_expired
            signal.emit(task_id=one.id, task=one.name, queue=one.queue)
        return bool(removed.rows)

    def _scope(self, subscription: Subscription) -> Scope:
        names = tuple(registry.names())
        elsewhere = get_config().queues_elsewhere
        return Scope(names, subscription.queues, has_cron(), sorted(self._skipped), elsewhere)
