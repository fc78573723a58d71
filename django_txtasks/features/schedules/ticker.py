"""Ticks of schedules: a cleaner sleeps until a few seconds before the next tick, and writes its task."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from django.db import DatabaseError

from django_txtasks import signals
from django_txtasks.conf import Config
from django_txtasks.core.cleaning.parts import Beside
from django_txtasks.core.cleaning.renotifier import Notify
from django_txtasks.core.declaring import registry
from django_txtasks.core.ground.wording import in_english, time_text
from django_txtasks.core.rows import workers
from django_txtasks.database.errors import is_repeatable, text_of
from django_txtasks.features.schedules import periodic as scheduling
from django_txtasks.features.schedules import ticks as schedules
from django_txtasks.features.schedules.reports import Told
from django_txtasks.features.schedules.rules import has_cron
from django_txtasks.features.schedules.status import ticks_between
from django_txtasks.features.schedules.ticks import AHEAD, Scope, Written
from django_txtasks.guards.clock_changes import ClockChange, ClockChanges

LOOK_SECONDS = 1.0
"""Seconds between looks for schedules that were added in the meantime."""
SOON_SECONDS = 0.2
"""Seconds until the next try after a conflict with another transaction."""
LOCKED_SECONDS = 0.05
"""Seconds until the next look at due schedules that another cleaner has locked."""
SKIP_SECONDS = 30.0
"""Seconds until the next try of a schedule that this code cannot write, or after a database error."""


class Ticker(Beside):
    """Writes ticks of all schedules whose functions and queues this process knows. Several may run at once.

    Args:
        notify: sends hints for (id, queue) pairs; None = hints are off.
        emit: emits a signal with its facts.
        clock: monotonic seconds.
    """

    counted = ("scheduled",)

    def __init__(
        self,
        config: Config,
        alias: str,
        *,
        notify: Notify | None,
        emit: Callable[..., None],
        clock: Callable[[], float],
    ) -> None:
        self._config, self._alias, self._notify = config, alias, notify
        self._emit, self._clock = emit, clock
        self._next_look = float("-inf")
        self._skipped: dict[str, float] = {}  # names of schedules, and until when each is skipped
        self._told = Told(clock)
        self._may_bring = config.syncs_schedules
        self._clock_changes = ClockChanges()

    def pause(self) -> float:
        return max(0.0, self._next_look - self._clock())

    def work(self, end: float) -> Counter[str]:
        """Write the due ticks until ``end``, if a look is due; return the number of tasks."""
        counts: Counter[str] = Counter()
        if self._clock() < self._next_look:
            return counts
        try:
            counts["scheduled"] = self._write(end)
            self.error = ""
        except DatabaseError as error:
            if is_repeatable(error):
                self._look_in(SOON_SECONDS)
                return counts
            if not workers.can_write(self._alias, error):
                raise
            why = f"schedules: {text_of(error)}"
            if why != self.error:
                self._emit(signals.step_failed, database=self._alias, error=why)
            self.error = why
            self._look_in(SKIP_SECONDS)
        return counts

    def _write(self, end: float) -> int:
        """Write chunks while there are more; set the time of the next look."""
        self._bring_new()
        count, is_full = 0, True
        while is_full:
            scope = self._scope()
            wait = self._look(scope)
            if wait is None or wait > AHEAD.total_seconds():
                until = LOOK_SECONDS if wait is None else wait - AHEAD.total_seconds()
                self._look_in(min(LOOK_SECONDS, until))
                return count
            written = schedules.write_ticks(
                self._alias, scope, scheduling.tasks_of,
                limit=self._config.lease / 2, set_forward=self._clock_changes.forward,
            )  # fmt: skip
            self._tell(written)
            count += len(written.tasks)
            is_full = written.moved > 0 and self._clock() < end
            # the previous task still waits: look again at the tick, or soon if the tick has passed
            soon = min(LOOK_SECONDS, wait) if wait > 0 else LOCKED_SECONDS
            self._look_in(0.0 if written.moved else soon)
        return count

    def _look(self, scope: Scope) -> float | None:
        """Return the seconds until the next tick; report a change of the database's clock."""
        sent = self._clock_changes.sent()
        wait, now = schedules.next_tick(self._alias, scope)
        change = self._clock_changes.seen(now, sent)
        if change is not None:
            self._tell_change(scope, change)
        return wait

    def _tell_change(self, scope: Scope, change: ClockChange) -> None:
        between = sorted([change.right, change.end])
        with in_english():
            times = {name: time_text(getattr(change, name)) for name in ("begin", "end", "right")}
        self._emit(
            signals.clock_set_forward if change.forward else signals.clock_set_back,
            database=self._alias,
            seconds=change.seconds,
            ticks=ticks_between(self._alias, scope, *between),
            **times,
        )

    def _bring_new(self) -> None:
        """Add the schedules of this code that the database lacks, once, when the cleaner starts."""
        if self._may_bring:
            done = scheduling.bring(self._alias, only_new=True)
            self._may_bring = False
            if done:
                self._emit(signals.schedules_synchronised, database=self._alias, done=done)

    def _scope(self) -> Scope:
        now = self._clock()
        self._skipped = {name: until for name, until in self._skipped.items() if until > now}
        names = tuple(registry.names())
        elsewhere = self._config.queues_elsewhere
        return Scope(names, self._config.queues, has_cron(), sorted(self._skipped), elsewhere)

    def _tell(self, written: Written) -> None:
        if written.tasks and self._notify is not None:
            self._notify(written.tasks)
        for name in written.passed:
            self._emit_once(signals.schedule_passed, name, "")
        for name, error in written.broken:
            self._emit(signals.schedule_disabled, schedule=name, error=error)
        for name, error in written.skipped:
            self._skipped[name] = self._clock() + SKIP_SECONDS
            self._emit_once(signals.schedule_not_written, name, error)

    def _emit_once(self, signal: signals.LogSignal, name: str, error: str) -> None:
        if self._told.is_new(f"{signal.sentence}{name}{error}"):
            self._emit(signal, schedule=name, **({"error": error} if error else {}))

    def _look_in(self, seconds: float) -> None:
        self._next_look = self._clock() + seconds
