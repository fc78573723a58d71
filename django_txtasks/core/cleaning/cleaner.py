"""The loop of a cleaner: checks the workers, and works on a pass in between."""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Callable, Iterable
from datetime import timedelta
from functools import partial
from operator import itemgetter
from typing import Any

from django.db import DatabaseError, InterfaceError, connections, reset_queries

from django_txtasks import signals
from django_txtasks.core.cleaning.failure_detector import FailureDetector, LastWills
from django_txtasks.core.cleaning.old_rows import OldRows
from django_txtasks.core.cleaning.parts import Place, StepContext, parts_of
from django_txtasks.core.cleaning.passes import Passes, Step
from django_txtasks.core.cleaning.record import Record
from django_txtasks.core.cleaning.renotifier import Notify
from django_txtasks.core.cleaning.rescue import Rescue
from django_txtasks.core.cleaning.upkeep import Upkeep
from django_txtasks.core.ground.config import CoreConfig
from django_txtasks.core.ground.retry import backoff
from django_txtasks.core.ground.surroundings import SignsOfLife
from django_txtasks.core.rows import cleaning
from django_txtasks.core.rows.cleaning import LivingWorker
from django_txtasks.database import sessions
from django_txtasks.database.errors import (
    is_refusal,
    is_repeatable,
    message_of,
    text_of,
    took_too_long,
)
from django_txtasks.database.transactions import own_transaction, repeated
from django_txtasks.signals.outage import Outage

NAMES = (
    "lost", "retried", "buried", "expired", "cancelled", "renotified", "pruned", "discarded",
)  # fmt: skip
PIECE_SECONDS = 0.25
"""Longest time on a pass before the cleaner checks the workers again."""


class Cleaner:
    """Checks workers every beat and at each last will; makes a pass over the tasks every clean interval.

    A pass is left out if another cleaner has made one within the interval, but not for ever: see ``passes``.

    Args:
        notify: sends hints for (id, queue) pairs; None = hints are off.
        wills: the last wills that RabbitMQ delivers; None = no broker, so leases decide.
        liveness: receives the signs of life.
        quiet: emit no signals, because the work will be rolled back.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        config: CoreConfig,
        alias: str = "default",
        *,
        notify: Notify | None = None,
        wills: LastWills | None = None,
        liveness: SignsOfLife | None = None,
        quiet: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.config, self.alias, self.notify, self.quiet = config, alias, notify, quiet
        self.clock, self.liveness = clock, liveness or SignsOfLife()
        self.workers = FailureDetector(config, alias, wills, clock)
        self.rescue = Rescue(config, alias, notify=notify, emit=self._emit, clock=clock)
        context = StepContext(config, alias, notify, self._emit, clock)
        self.upkeep = Upkeep(context)
        self.old_rows = OldRows(config, alias, emit=self._emit, skip=self.rescue.skip, clock=clock)
        steps, self._beside = parts_of(context)
        self.record = Record(config, alias, clock, self._say_unwritten, self.liveness)
        since_another = self.record.since_pass_of_another
        self.passes = Passes(
            alias, config, _steps(self, steps), since_another, emit=self._emit, clock=clock
        )
        self.outage = Outage(alias, lambda: f"Cleaner of {alias!r}", self._emit)

    def run(self, wait: Callable[[float], bool], report: Callable[[Counter[str]], None]) -> None:
        """Clean until ``wait(seconds)`` returns True. After a database error, wait and try again.

        Args:
            wait: returns early when a last will arrives.
            report: gets the counts of each turn.
        """
        failures, stopped = 0, False
        sessions.leave_pool(self.alias)
        while not stopped:
            try:
                report(self._turn())
                failures = 0
                self.outage.succeeded()
                self._tell_probes(refused=False)
                is_busy = self.passes.is_running or self.rescue.is_unfinished
                pause = 0.0 if is_busy else self._pause()
            except (DatabaseError, InterfaceError) as error:
                self.passes.break_off()
                self.record.failed(message_of(error))
                failures += 1
                self._tell_probes(refused=is_refusal(error), connected=_is_open(self.alias))
                pause = self._heal(error, failures)
            reset_queries()  # with DEBUG, Django keeps all queries
            stopped = wait(pause)
        # another cleaner removes the row later
        with contextlib.suppress(DatabaseError, InterfaceError):
            self.record.leave()
        reset_queries()

    def run_once(self) -> Counter[str]:
        """Do all the work once; return counts by name.

        Raises:
            DatabaseError: some of the work failed. The rest was done.
        """
        names = [*NAMES, *(name for one in self._beside for name in one.counted)]
        counts: Counter[str] = Counter(dict.fromkeys(names, 0))
        counts.update(self.find_lost())
        while self.rescue.is_unfinished:
            counts.update(self.find_lost())
        for one in self._beside:
            counts.update(one.work(float("inf")))
        for piece in self.passes.pieces():
            counts.update(piece)
        for error in [*(one.error for one in self._beside), self.passes.error]:
            if error:
                raise DatabaseError(error)
        return counts

    def find_lost(self) -> Counter[str]:
        """Declare silent workers lost, and recover claims of lost workers for a moment."""
        counts: Counter[str] = Counter(lost=0, retried=0, buried=0)
        for worker, reason in self.workers.lost():
            if repeated(self.alias, partial(self._lose, worker)):
                counts["lost"] += 1
                facts = {"worker": worker.id, "host": worker.host, "pid": worker.pid}
                self._emit(signals.worker_lost, **facts, reason=reason)
                if not self.quiet:
                    sessions.end(self.alias, worker.sessions)
        counts.update(self.rescue.recover_lost())
        return counts

    def _lose(self, worker: LivingWorker) -> bool:
        with own_transaction(self.alias, limit=self.config.lease / 2):
            return cleaning.lose(self.alias, worker)

    def _turn(self) -> Counter[str]:
        """Beat, check the workers, write ticks and the like, then work on the pass until the next check is due."""
        for one in self._beside:
            one.begin()
        self.record.beat()
        counts = self.find_lost()
        for one in self._beside:
            counts.update(one.work(self.clock() + PIECE_SECONDS))
        if self.rescue.is_unfinished:  # recovery comes before all else
            return counts
        done = self.passes.work(self.clock() + min(PIECE_SECONDS, self._pause()))
        if done is not None:
            counts.update(done)
            if self.passes.error:
                self.record.failed(self.passes.error)
            else:
                self.record.passed()
        return counts

    def _pause(self) -> float:
        """Return the seconds until the next check, or until features have work."""
        interval = self.config.heartbeat_interval.total_seconds()
        return min([self.workers.pause(interval), *(one.pause() for one in self._beside)])

    def _say_unwritten(self, why: str) -> None:
        self._emit(signals.step_failed, database=self.alias, error=f"its own row: {why}")

    def _heal(self, error: Exception, failures: int) -> float:
        """Return the seconds to wait after a database error."""
        if not (is_repeatable(error) or took_too_long(error)):
            connections[self.alias].close()  # after a failover an old session may be read-only
        base, ceiling = timedelta(seconds=0.5), timedelta(seconds=5)
        pause = backoff(failures, base=base, ceiling=ceiling).total_seconds()
        self.outage.failed(text_of(error), pause)
        return pause

    def _tell_probes(self, *, refused: bool, connected: bool = True) -> None:
        self.liveness.turned()
        self.liveness.ended(refused=refused, connected=connected)

    def _emit(self, signal: signals.LogSignal, **facts: Any) -> None:
        if not self.quiet:
            signal.emit(**facts)


def _is_open(alias: str) -> bool:
    return connections[alias].connection is not None


def _steps(cleaner: Cleaner, of_features: Iterable[tuple[Place, Step]]) -> list[Step]:
    """Return the steps of a pass, the most urgent first."""
    upkeep = cleaner.upkeep
    steps = [
        (Place.URGENT, cleaner.rescue.recover_without_row),
        (Place.SOON, upkeep.renotify),
        (Place.LATE, upkeep.forget),
        (Place.LAST, upkeep.sweep),
        (Place.LAST, cleaner.old_rows.remove),
        *of_features,
    ]
    return [step for _, step in sorted(steps, key=itemgetter(0))]
