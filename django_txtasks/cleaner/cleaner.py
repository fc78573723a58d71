"""The loop of a cleaner, and what it does about lost workers and overlooked tasks."""

from __future__ import annotations

import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Any

from django.db import DatabaseError, InterfaceError, connections

from django_txtasks import signals
from django_txtasks.cleaner.watch import Watch, Wills
from django_txtasks.conf import Config
from django_txtasks.exceptions import ClaimLost
from django_txtasks.lifecycle import recovery, sessions
from django_txtasks.lifecycle.attempts import Arrow
from django_txtasks.lifecycle.dialect import own_transaction
from django_txtasks.lifecycle.recovery import Orphan, Recovered
from django_txtasks.models import OnCrash
from django_txtasks.retry import backoff, jitter

Notify = Callable[[Iterable[tuple[uuid.UUID, str]]], None]

RENOTIFY_AT_MOST = 1000
"""Overdue tasks renotified per queue and turn; the scan of any idle worker finds the others."""
BATCHES = 100
KEEP_LOST_WORKERS = timedelta(days=1)

COUNTED = {Arrow.RETRY: "retried", Arrow.BURY: "buried", Arrow.RELEASE: "released"}


class Cleaner:
    """Looks at workers every beat, and whenever a last will comes; at tasks every clean interval.

    Args:
        notify: sends hints for (id, queue) pairs; None = no broker.
        wills: the last wills that RabbitMQ delivers; None = no broker, the lease decides.
        quiet: tell nobody what is done, since it will be rolled back.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        config: Config,
        alias: str = "default",
        *,
        notify: Notify | None = None,
        wills: Wills | None = None,
        quiet: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.config, self.alias, self.notify, self.quiet = config, alias, notify, quiet
        self.clock = clock
        self.workers = Watch(config, alias, wills, clock)
        self._suspected: set[tuple[uuid.UUID, int]] = set()

    def run(self, wait: Callable[[float], bool], report: Callable[[Counter[str]], None]) -> None:
        """Clean until ``wait(seconds)`` says stop. A database that fails is waited for.

        Args:
            wait: returns early when a last will has come.
            report: gets the counts of each turn that did something.
        """
        failures, next_pass = 0, 0.0
        while True:
            try:
                if self.clock() < next_pass:
                    report(self.watch())
                else:
                    next_pass = self.clock() + self._interval()  # also if it fails half-way
                    report(self.run_once())
                failures = 0
                pause = self.workers.pause(self.config.beat.total_seconds())
            except (DatabaseError, InterfaceError) as error:
                failures += 1
                pause = self._heal(error, failures)
            if wait(pause):
                return

    def run_once(self) -> Counter[str]:
        """Do everything once; return what was done, by name."""
        counts = self.watch()
        counts["expired"] = self.expire()
        counts["renotified"] = self.renotify()
        counts["pruned"] = self.prune()
        self.tell_of_long_claims()
        return counts

    def watch(self) -> Counter[str]:
        """Declare silent workers lost, and give their claims back or bury them."""
        counts: Counter[str] = Counter(lost=0, retried=0, buried=0, released=0)
        for worker, reason in self.workers.lost():
            with own_transaction(self.alias, limit=self.config.lease / 2):
                lost = recovery.lose(self.alias, worker)
            if lost:
                counts["lost"] += 1
                facts = {"worker": worker.id, "host": worker.host, "pid": worker.pid}
                self._tell(signals.worker_lost, **facts, reason=reason)
                if not self.quiet:
                    sessions.end(self.alias, worker.sessions)
        counts.update(self.recover())
        return counts

    def recover(self) -> Counter[str]:
        """Take each lost claim's own arrow; one that cannot be moved does not stop the others."""
        counts: Counter[str] = Counter()
        back: list[tuple[uuid.UUID, str]] = []
        page = recovery.orphans(self.alias)
        while page:
            for orphan in page:
                recovered = self._recover(orphan)
                if recovered is None:
                    continue
                counts[COUNTED[recovered.arrow]] += 1
                back += recovered.followers
                if recovered.arrow is not Arrow.BURY:
                    back.append((orphan.attempt.task_id, orphan.attempt.queue_name))
            page = recovery.orphans(self.alias, after=page[-1].attempt.task_id)
        if back and self.notify is not None:
            self.notify(back)
        return counts

    def expire(self) -> int:
        """Cancel tasks that may not start any more."""
        count = 0
        for _ in range(BATCHES):
            with own_transaction(self.alias, limit=self.config.lease / 2):
                expired = recovery.expire(self.alias, keep=self.config.keeps_finished)
            for task_id, name, queue in expired:
                self._tell(signals.task_expired, task_id=task_id, task=name, queue=queue)
            count += len(expired)
            if len(expired) < recovery.BATCH:
                break
        return count

    def tell_of_long_claims(self) -> None:
        """Tell once of each claim without a time limit that a living worker has held for too long."""
        found = recovery.long_claimed(self.alias, self.config.suspect_after)
        for attempt, where in found:
            if (attempt.task_id, attempt.number) not in self._suspected:
                self._tell(signals.task_suspected, **attempt.facts, where=where)
        self._suspected = {(attempt.task_id, attempt.number) for attempt, _ in found}

    def renotify(self) -> int:
        """Send hints again for tasks that have been due for two intervals."""
        if self.notify is None:
            return 0
        count = 0
        for queue in self.config.queues:
            with own_transaction(self.alias, limit=self.config.lease / 2, in_order=True):
                found = recovery.overdue(
                    self.alias, queue, 2 * self.config.clean_interval, RENOTIFY_AT_MOST
                )
            self.notify([(task_id, queue) for task_id in found])
            count += len(found)
        return count

    def prune(self) -> int:
        """Delete finished tasks that have been kept long enough, and workers long lost."""
        count, age = 0, self.config.keep_finished
        for _ in range(BATCHES):
            if age is None:
                break
            with own_transaction(self.alias, limit=self.config.lease / 2):
                deleted = recovery.prune(self.alias, age)
            count += deleted
            if deleted < recovery.BATCH:
                break
        recovery.forget_lost_workers(self.alias, KEEP_LOST_WORKERS)
        return count

    def _recover(self, orphan: Orphan) -> Recovered | None:
        def delay(crashes: int) -> timedelta:
            return backoff(crashes, base=self.config.retry_base, ceiling=self.config.retry_ceiling)

        task_id = orphan.attempt.task_id
        try:
            with own_transaction(self.alias, limit=self.config.lease / 2):
                recovered = recovery.recover(self.alias, orphan, delay, self.config)
        except ClaimLost:
            return None  # it ended by itself, or another cleaner was faster
        except DatabaseError as error:
            if not self._session_is_alive():
                raise
            self._tell(signals.row_skipped, task_id=task_id, error=str(error).strip())
            return None
        self._tell_of(orphan, recovered.arrow)
        return recovered

    def _tell_of(self, orphan: Orphan, arrow: Arrow) -> None:
        facts = orphan.attempt.facts
        if arrow is Arrow.RETRY:
            self._tell(signals.task_recovered, **facts)
        elif arrow is Arrow.RELEASE:
            self._tell(signals.task_released, **facts)
        else:
            error = f"worker lost in mid-task: {orphan.whose}"
            self._tell(signals.task_died, **facts, error=error)
            if orphan.on_crash is OnCrash.COMPENSATE:
                self._tell(signals.task_compensated, **facts)

    def _heal(self, error: Exception, failures: int) -> float:
        """Return the seconds to wait after a database error."""
        if not self._session_is_alive():
            connections[self.alias].close()
        base, ceiling = timedelta(seconds=0.5), timedelta(seconds=5)
        pause = backoff(failures, base=base, ceiling=ceiling).total_seconds()
        self._tell(
            signals.database_failed,
            who=f"Cleaner of {self.alias!r}",
            error=str(error).strip(),
            delay=pause,
        )
        return pause

    def _session_is_alive(self) -> bool:
        connection = connections[self.alias]
        return connection.connection is not None and connection.is_usable()

    def _interval(self) -> float:
        return self.config.clean_interval.total_seconds() * jitter(0.9, 1)

    def _tell(self, event: signals.Event, **facts: Any) -> None:
        if not self.quiet:
            event.tell(**facts)
