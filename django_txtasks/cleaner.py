"""Notices what was overlooked or has crashed. Any number of cleaners at once is harmless."""

from __future__ import annotations

import random
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.db import DatabaseError, InterfaceError, connections

from django_txtasks import signals
from django_txtasks.conf import Config
from django_txtasks.exceptions import ClaimLost
from django_txtasks.lifecycle import recovery
from django_txtasks.lifecycle.attempts import Arrow
from django_txtasks.lifecycle.dialect import own_transaction
from django_txtasks.lifecycle.recovery import LivingWorker, Orphan
from django_txtasks.retry import backoff

Notify = Callable[[Iterable[tuple[uuid.UUID, str]]], None]

RENOTIFY_AT_MOST = 1000
"""Overdue tasks renotified per queue and turn; the scan of any idle worker finds the others."""
PRUNE_BATCHES = 100
KEEP_LOST_WORKERS = timedelta(days=1)

COUNTED = {Arrow.RETRY: "retried", Arrow.BURY: "buried", Arrow.RELEASE: "released"}


@dataclass
class _Sight:
    """A beat, and since when this cleaner has seen no other."""

    beat: int
    since: float


class Cleaner:
    """Looks at workers every beat, and at tasks every clean interval.

    Args:
        notify: sends hints for (id, queue) pairs; None = no broker.
        quiet: tell nobody what is done, since it will be rolled back.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        config: Config,
        alias: str = "default",
        *,
        notify: Notify | None = None,
        quiet: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.config, self.alias, self.notify, self.quiet, self.clock = (
            config,
            alias,
            notify,
            quiet,
            clock,
        )
        self._sights: dict[uuid.UUID, _Sight] = {}
        self._looked_at: float | None = None
        self._session: Any = None

    def run(self, wait: Callable[[float], bool], report: Callable[[Counter[str]], None]) -> None:
        """Clean until ``wait(seconds)`` says stop. A database that fails is waited for.

        Args:
            report: gets the counts of each turn that did something.
        """
        failures, next_pass = 0, 0.0
        while True:
            pause = self.config.beat.total_seconds()
            try:
                if self.clock() < next_pass:
                    report(self.watch())
                else:
                    next_pass = self.clock() + self._interval()  # also if it fails half-way
                    report(self.run_once())
                failures = 0
            except (DatabaseError, InterfaceError) as error:
                failures += 1
                if not self._session_is_alive():
                    connections[self.alias].close()
                pause = backoff(
                    failures, base=timedelta(seconds=0.5), ceiling=timedelta(seconds=5)
                ).total_seconds()
                self._tell(
                    signals.database_failed, who="Cleaner", error=str(error).strip(), delay=pause
                )
            if wait(pause):
                return

    def run_once(self) -> Counter[str]:
        """Do everything once; return what was done, by name."""
        counts = self.watch()
        counts["renotified"] = self.renotify()
        counts["pruned"] = self.prune()
        return counts

    def watch(self) -> Counter[str]:
        """Declare silent workers lost, and give their claims back or bury them."""
        counts: Counter[str] = Counter(lost=0, retried=0, buried=0, released=0)
        for worker, silence in self.silent():
            with own_transaction(self.alias, limit=self.config.lease / 2):
                lost = recovery.lose(self.alias, worker)
            if lost:
                counts["lost"] += 1
                facts = {"worker": worker.id, "host": worker.host, "pid": worker.pid}
                self._tell(signals.worker_lost, **facts, silence=silence)
        counts.update(self.recover())
        return counts

    def silent(self) -> list[tuple[LivingWorker, float]]:
        """Workers whose beat has stood still for their lease under this cleaner's own eyes.

        Time in which it did not look does not count: after an outage, a pause of this process or a
        new database session it begins anew, so that the fleet is not condemned for what the cleaner missed.
        """
        living = recovery.living_workers(self.alias)
        now, session = self.clock(), connections[self.alias].connection
        shortest = min([self.config.lease.total_seconds(), *(worker.lease for worker in living)])
        rhythm = max(shortest / 2, 3 * self.config.beat.total_seconds())
        slept = self._looked_at is not None and now - self._looked_at > rhythm
        if slept or session is not self._session:
            self._sights.clear()
        self._looked_at, self._session = now, session
        silent = []
        before, self._sights = self._sights, {}
        for worker in living:
            sight = before.get(worker.id)
            if sight is None or sight.beat != worker.beat:
                sight = _Sight(worker.beat, now)
            elif now - sight.since >= worker.lease:
                silent.append((worker, now - sight.since))
            self._sights[worker.id] = sight
        return silent

    def recover(self) -> Counter[str]:
        """Take each lost claim's own arrow; one that cannot be moved does not stop the others."""
        counts: Counter[str] = Counter()
        back: list[tuple[uuid.UUID, str]] = []
        page = recovery.orphans(self.alias)
        while page:
            for orphan in page:
                arrow = self._recover(orphan)
                if arrow is not None:
                    counts[COUNTED[arrow]] += 1
                if arrow in (Arrow.RETRY, Arrow.RELEASE):
                    back.append((orphan.attempt.task_id, orphan.attempt.queue_name))
            page = recovery.orphans(self.alias, after=page[-1].attempt.task_id)
        if back and self.notify is not None:
            self.notify(back)
        return counts

    def renotify(self) -> int:
        """Send hints again for tasks that have been due for two intervals."""
        if self.notify is None:
            return 0
        count = 0
        for queue in self.config.queues:
            with own_transaction(self.alias, limit=self.config.lease / 2):
                found = recovery.overdue(
                    self.alias, queue, 2 * self.config.clean_interval, RENOTIFY_AT_MOST
                )
            self.notify([(task_id, queue) for task_id in found])
            count += len(found)
        return count

    def prune(self) -> int:
        """Delete finished tasks that have been kept long enough, and workers long lost."""
        count = 0
        for _ in range(PRUNE_BATCHES):
            with own_transaction(self.alias, limit=self.config.lease / 2):
                deleted = recovery.prune(self.alias, self.config.keep_finished)
            count += deleted
            if deleted < recovery.BATCH:
                break
        recovery.forget_lost_workers(self.alias, KEEP_LOST_WORKERS)
        return count

    def _recover(self, orphan: Orphan) -> Arrow | None:
        def delay(crashes: int) -> timedelta:
            return backoff(crashes, base=self.config.retry_base, ceiling=self.config.retry_ceiling)

        task_id = orphan.attempt.task_id
        try:
            with own_transaction(self.alias, limit=self.config.lease / 2):
                arrow = recovery.recover(self.alias, orphan, delay)
        except ClaimLost:
            return None  # it ended by itself, or another cleaner was faster
        except DatabaseError as error:
            if not self._session_is_alive():
                raise
            self._tell(signals.row_skipped, task_id=task_id, error=str(error).strip())
            return None
        if arrow is Arrow.BURY:
            attempt = orphan.attempt
            self._tell(
                signals.task_died,
                task_id=task_id,
                task=attempt.task_name,
                queue=attempt.queue_name,
                attempt=attempt.number,
                worker=attempt.worker,
                error=f"worker lost in mid-task: {orphan.whose}",
            )
        return arrow

    def _session_is_alive(self) -> bool:
        connection = connections[self.alias]
        return connection.connection is not None and connection.is_usable()

    def _interval(self) -> float:
        return self.config.clean_interval.total_seconds() * random.uniform(0.9, 1)  # noqa: S311 -- jitter

    def _tell(self, event: signals.Event, **facts: Any) -> None:
        if not self.quiet:
            event.tell(**facts)
