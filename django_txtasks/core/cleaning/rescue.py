"""Recovery of the claims of lost workers."""

from __future__ import annotations

import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from datetime import timedelta
from functools import partial

from django.db import DatabaseError, InterfaceError

from django_txtasks import signals
from django_txtasks.core.cleaning.renotifier import Notify
from django_txtasks.core.ground.config import CoreConfig
from django_txtasks.core.ground.retry import backoff
from django_txtasks.core.rows import cleaning, workers
from django_txtasks.core.rows.attempts import Arrow
from django_txtasks.core.rows.cleaning import Holder, Orphan, Recovered
from django_txtasks.database.errors import message_of
from django_txtasks.database.transactions import own_transaction, repeated
from django_txtasks.exceptions import ClaimLost

COUNTED = {Arrow.RETRY: "retried", Arrow.BURY: "buried"}
CLAIMS_PER_WORKER = 100
"""Claims of one worker that are recovered in a row. Then hints are sent, and the next lost worker follows."""
CLAIMS_PER_READ = 10
"""Claims that are read together; few, because their arguments may be large."""
TURN_SECONDS = 0.25
"""Longest time on recovery before the cleaner checks the workers again."""


class Rescue:
    """Recovers the claims of lost workers: a task becomes pending again, or dead, with its compensation enqueued.

    It remembers no claims between calls: after a failover that lost commits, a lost worker may be alive
    again.

    Args:
        notify: sends hints for (id, queue) pairs; None = hints are off.
        emit: emits a signal with its facts.
        clock: monotonic seconds.

    Attributes:
        is_unfinished: True if the last call ran out of time before it had tried all claims.
    """

    def __init__(
        self,
        config: CoreConfig,
        alias: str,
        *,
        notify: Notify | None,
        emit: Callable[..., None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._config, self._alias, self._notify, self._emit = config, alias, notify, emit
        self._clock = clock
        self.is_unfinished = False
        self._last = uuid.UUID(int=0)  # the worker that was served last
        self._tried: set[uuid.UUID] = set()  # claims that failed; tried again after all others
        self._empty: set[uuid.UUID] = set()  # workers without claims
        self._skipped: set[uuid.UUID] = set()  # claims that were reported
        # By worker: the names of the tasks that it held at the first look at its claims.
        self._beside: dict[uuid.UUID, str] = {}

    def recover_lost(self) -> Counter[str]:
        """Recover claims of lost workers for a moment; the next call continues with the next worker."""
        counts: Counter[str] = Counter()
        lost = [one for one in cleaning.lost_workers(self._alias) if one.id not in self._empty]
        lost.sort(key=lambda one: (one.id <= self._last, one.id))
        end, self.is_unfinished = self._clock() + TURN_SECONDS, False
        for worker in lost:
            if self._clock() >= end:
                self.is_unfinished = True
                break
            self._last = worker.id
            ids = self._held_by(worker, CLAIMS_PER_WORKER + len(self._tried))
            if not ids:  # final, because a lost worker cannot claim
                self._empty.add(worker.id)
                self._beside.pop(worker.id, None)
            ids = [one for one in ids if one not in self._tried][:CLAIMS_PER_WORKER]
            is_over = self._recover_all(worker, ids, counts, end)
            if len(ids) == CLAIMS_PER_WORKER or not is_over:
                self.is_unfinished = True
        if not self.is_unfinished:
            self._tried.clear()
        return counts

    def recover_without_row(self) -> Iterator[Counter[str]]:
        """Recover all claims whose worker has no row, chunk by chunk."""
        self._empty.clear()  # a pass begins: look at all lost workers again
        with self._reading():
            holders = cleaning.holders_without_row(self._alias)
        for holder in holders:
            ids = self._held_by(holder)
            for start in range(0, len(ids), CLAIMS_PER_WORKER):
                counts: Counter[str] = Counter()
                self._recover_all(holder, ids[start : start + CLAIMS_PER_WORKER], counts)
                yield counts
            self._beside.pop(holder.id, None)

    def skip(self, task_id: uuid.UUID, error: Exception) -> None:
        """Report a row that cannot be moved, once. It is still tried again."""
        if task_id not in self._skipped:
            self._skipped.add(task_id)
            self._emit(signals.row_skipped, task_id=task_id, error=message_of(error))

    def _held_by(self, holder: Holder, most: int = cleaning.MAX_HELD_CLAIMS) -> list[uuid.UUID]:
        with self._reading():
            return cleaning.held_by(self._alias, holder, most)

    def _reading(self) -> AbstractContextManager[None]:
        return own_transaction(self._alias, limit=self._config.lease / 2, in_order=True)

    def _recover_all(
        self,
        holder: Holder,
        ids: Sequence[uuid.UUID],
        counts: Counter[str],
        end: float = float("inf"),
    ) -> bool:
        """Recover each claim; send hints for tasks that may run again and for follow-ups.

        A claim that fails does not stop the others.

        Returns:
            False if claims may be left because ``end`` was reached. At least one claim was tried.
        """
        to_notify: list[tuple[uuid.UUID, str]] = []
        if len(ids) > 1 and holder.id not in self._beside:
            with self._reading():
                self._beside[holder.id] = cleaning.names_in_hand(self._alias, ids)
        beside = self._beside.get(holder.id, "")
        try:
            for start in range(0, len(ids), CLAIMS_PER_READ):
                with self._reading():
                    orphans = cleaning.orphans(
                        self._alias, holder, ids[start : start + CLAIMS_PER_READ], beside
                    )
                for orphan in orphans:
                    to_notify += self._recover(orphan, counts)
                    if self._clock() >= end:
                        return False
        finally:
            if to_notify and self._notify is not None:
                self._notify(to_notify)
        return True

    def _recover(self, orphan: Orphan, counts: Counter[str]) -> list[tuple[uuid.UUID, str]]:
        """Recover one claim; return the tasks that need hints."""
        task_id = orphan.attempt.task_id
        self._tried.add(task_id)
        try:
            recovered = repeated(self._alias, partial(self._take_arrow, orphan))
        except ClaimLost:
            return []  # the attempt has ended, or another cleaner was faster
        except InterfaceError:
            raise
        except Exception as error:  # a row changed by hand must not stop the others
            if isinstance(error, DatabaseError) and not workers.can_write(self._alias, error):
                raise
            self.skip(task_id, error)
            return []
        self._tried.discard(task_id)
        for signal, facts in cleaning.signals_of(orphan, recovered.ended):
            self._emit(signal, **facts)
        if not (orphan.was_asked and recovered.ended.arrow is Arrow.RETRY):
            counts[COUNTED[recovered.ended.arrow]] += 1  # else it is counted when it is cancelled
        if recovered.ended.arrow is Arrow.BURY:
            return recovered.follow_ups
        return [*recovered.follow_ups, orphan.attempt.hint]

    def _take_arrow(self, orphan: Orphan) -> Recovered:
        with own_transaction(self._alias, limit=self._config.lease / 2):
            return cleaning.recover(self._alias, orphan, self._delay, self._config)

    def _delay(self, crashes: int) -> timedelta:
        return backoff(crashes, base=self._config.retry_base, ceiling=self._config.retry_ceiling)
