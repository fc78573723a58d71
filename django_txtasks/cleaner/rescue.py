"""What a cleaner does with the claims of lost workers."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from datetime import timedelta

from django.db import DatabaseError, InterfaceError

from django_txtasks import signals
from django_txtasks.cleaner.renotifier import Notify
from django_txtasks.conf import Config
from django_txtasks.exceptions import ClaimLost
from django_txtasks.lifecycle import recovery, sessions
from django_txtasks.lifecycle.attempts import Arrow
from django_txtasks.lifecycle.dialect import own_transaction
from django_txtasks.lifecycle.recovery import Holder, Orphan, Recovered
from django_txtasks.retry import backoff

COUNTED = {Arrow.RETRY: "retried", Arrow.BURY: "buried"}
TOGETHER = 100
"""Claims of one holder that are recovered until workers are told, and others have their turn."""


class Rescue:
    """Gives claims of lost workers back, or buries them: ``TOGETHER`` of one of them at a time.

    Args:
        notify: sends hints for (id, queue) pairs; None = no broker.
        tell: tells an event, with its facts.
    """

    def __init__(
        self,
        config: Config,
        alias: str,
        *,
        notify: Notify | None,
        tell: Callable[..., None],
    ) -> None:
        self._config, self._alias, self._notify, self._tell = config, alias, notify, tell
        self._left: dict[uuid.UUID, list[Orphan]] = {}
        self._read: set[uuid.UUID] = set()
        self._recovered: set[uuid.UUID] = set()
        self._skipped: set[uuid.UUID] = set()

    @property
    def is_unfinished(self) -> bool:
        """Say whether there are claims left that were found and not yet tried."""
        return bool(self._left)

    def look_again(self) -> None:
        """Look again at workers that held nothing any more."""
        self._recovered.clear()

    def recover_lost(self) -> Counter[str]:
        """Recover some claims of a lost worker; the next call goes on with those of another one."""
        if not self._left:
            self._read.clear()
        for holder in recovery.lost_workers(self._alias):
            if holder.id not in self._recovered and holder.id not in self._read:
                self._read_of(holder)
        for worker in list(self._left)[:1]:
            found = self._left.pop(worker)
            if found[TOGETHER:]:
                self._left[worker] = found[TOGETHER:]  # behind the others
            return self._recover_some(found[:TOGETHER])
        return Counter()

    def recover_without_row(self) -> Iterator[Counter[str]]:
        """Recover all claims of those who hold some and have no row, piece by piece."""
        with self._reading():
            holders = recovery.holders_without_row(self._alias)
        for holder in holders:
            with self._reading():
                found = recovery.orphans(self._alias, holder)
            for start in range(0, len(found), TOGETHER):
                yield self._recover_some(found[start : start + TOGETHER])

    def skip(self, task_id: uuid.UUID, error: Exception) -> None:
        """Tell, once, of a row that cannot be moved; it is tried again all the same."""
        if task_id not in self._skipped:
            self._skipped.add(task_id)
            self._tell(signals.row_skipped, task_id=task_id, error=str(error).strip())

    def _read_of(self, holder: Holder) -> None:
        self._read.add(holder.id)
        with self._reading():
            found = recovery.orphans(self._alias, holder)
        if found:
            self._left[holder.id] = found
        else:  # and there will be no more: who is lost claims nothing
            self._recovered.add(holder.id)

    def _reading(self) -> AbstractContextManager[None]:
        return own_transaction(self._alias, limit=self._config.lease / 2, in_order=True)

    def _recover_some(self, orphans: list[Orphan]) -> Counter[str]:
        """Take each claim's own arrow; tell workers of those that may run again, and of what followed.

        One that cannot be moved does not stop the others.
        """
        counts: Counter[str] = Counter()
        back: list[tuple[uuid.UUID, str]] = []
        for orphan in orphans:
            recovered = self._recover(orphan)
            if recovered is None:
                continue
            counts[COUNTED[recovered.ended.arrow]] += 1
            back += recovered.followers
            if recovered.ended.arrow is not Arrow.BURY:
                back.append((orphan.attempt.task_id, orphan.attempt.queue_name))
        if back and self._notify is not None:
            self._notify(back)
        return counts

    def _recover(self, orphan: Orphan) -> Recovered | None:
        try:
            with own_transaction(self._alias, limit=self._config.lease / 2):
                recovered = recovery.recover(self._alias, orphan, self._delay, self._config)
        except ClaimLost:
            return None  # it ended by itself, or another cleaner was faster
        except InterfaceError:
            raise
        except Exception as error:  # somebody has bent the row, be it by hand: it stops no other
            if isinstance(error, DatabaseError) and not sessions.can_write(self._alias):
                raise
            self.skip(orphan.attempt.task_id, error)
            return None
        for event, facts in recovery.events_of(orphan, recovered.ended):
            self._tell(event, **facts)
        return recovered

    def _delay(self, crashes: int) -> timedelta:
        return backoff(crashes, base=self._config.retry_base, ceiling=self._config.retry_ceiling)
