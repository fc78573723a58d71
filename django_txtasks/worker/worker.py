"""The loop of one worker process: each turn is one transaction, and one wait follows it.

Tasks run in slots only. Whatever fails, the loop goes on: the table is the truth, and the next turn
reads it.
"""

from __future__ import annotations

import random
import time
from datetime import timedelta

from django.db import DatabaseError, InterfaceError

from django_txtasks import signals
from django_txtasks.conf import Config
from django_txtasks.exceptions import ClaimLost
from django_txtasks.lifecycle.attempts import Arrow, Attempt, Ended
from django_txtasks.lifecycle.claims import Subscription
from django_txtasks.lifecycle.dialect import is_repeatable
from django_txtasks.retry import backoff
from django_txtasks.worker.bell import Bell
from django_txtasks.worker.ledger import DeclaredLost, Ledger, Turn
from django_txtasks.worker.runner import run_attempt
from django_txtasks.worker.slots import Slots
from django_txtasks.worker.stopping import Stop
from django_txtasks.worker.timers import Timers

PATIENCE_WITH_HINTS = 0.05
"""Seconds that a full worker goes on listening; then it leaves hints to those with room."""
BUSY_ROW = 0.05
"""Seconds until an outcome whose row somebody else had locked is tried again."""
NEAR = 60.0
"""Seconds ahead that a task is waited for by a timer instead of a scan."""


class Worker:
    """Claims and runs tasks until stopped.

    Args:
        subscription: which tasks it may take.
        bell: what it waits on; with a source of hints, or without.
        stop: how it is told to stop.
        batch: end when nothing is due.
        max_tasks: end after so many tasks.
    """

    def __init__(
        self,
        config: Config,
        subscription: Subscription,
        *,
        threads: int,
        bell: Bell,
        stop: Stop,
        batch: bool = False,
        max_tasks: int | None = None,
    ) -> None:
        self.config, self.bell, self.stop, self.batch = config, bell, stop, batch
        self.ledger = Ledger(config, subscription, threads)
        self.slots = Slots(
            threads,
            run=lambda attempt: run_attempt(attempt, alias=subscription.alias, config=config),
            ring=bell.ring,
        )
        self.timers = Timers(
            retry=config.retry_time.total_seconds(), giveup=config.giveup_time.total_seconds()
        )
        self.count = 0
        self._left = float("inf") if max_tasks is None else max_tasks
        self._failures = 0
        self._nothing_due = False
        self._next_beat = self._next_scan = self._not_before = 0.0
        self._full_since: float | None = None

    def run(self) -> bool:
        """Work until stopped, then until what runs has ended. False = tasks were cut short."""
        told = False
        while not self._finished():
            if self.stop.asked and not told:
                told = True
                signals.worker_stopping.tell(worker=self.ledger.id, running=self.slots.running)
            if self.stop.now:
                return self._cut_short()
            if self._next_turn() <= time.monotonic():
                self._try_turn()
            self._wait()
        self.slots.close()
        self._leave(cut_short=False)
        signals.worker_stopped.tell(worker=self.ledger.id, count=self.count)
        return True

    # -- turns ------------------------------------------------------------------------------------

    def turn(self) -> None:
        """Beat, record what ended, claim what fits; then start it."""
        # After a failure, first record what ended: what made the claim fail may do so again.
        now, room = time.monotonic(), 0 if self._failures else self._room()
        timed = self.timers.pop_due(now) if room else []
        hinted = list(self.bell.ids)[:room]
        turn = Turn(room, timed + hinted, scan=now >= self._next_scan)
        running = self.slots.holds()
        try:
            self.ledger.write(turn, running, self.bell.connected)
        except BaseException:
            self.timers.due_in(dict.fromkeys(timed, 0.0), now)
            raise
        self._next_beat = now + self.config.beat.total_seconds()
        self.bell.looked_up(len(hinted))
        self._start(turn.claimed)
        self._plan(turn, now)

    def _try_turn(self) -> None:
        self._wait_for_retries(self.ledger.unrecorded)
        try:
            self.turn()
        except DeclaredLost as error:
            self.ledger.failed(error)
            self._next_beat = 0.0
        except (DatabaseError, InterfaceError, ClaimLost) as error:
            self._heal(error)
        else:
            self._failures = 0
            self._not_before = time.monotonic() + BUSY_ROW if self.ledger.unrecorded else 0.0

    def _start(self, claimed: list[Attempt]) -> None:
        self.count += len(claimed)
        self._left -= len(claimed)
        for attempt in claimed:
            if self.stop.asked:
                self.ledger.add([Ended(attempt=attempt, arrow=Arrow.RELEASE)])
            else:
                self.slots.start(attempt)

    def _plan(self, turn: Turn, now: float) -> None:
        """Decide what the next turns look for."""
        if turn.lookup is not None:
            self.timers.found(set(turn.ids) - set(turn.lookup.absent))
            near = {task_id: wait for task_id, wait in turn.lookup.later.items() if wait < NEAR}
            self.timers.due_in(near, now)
            self.timers.absent(turn.lookup.absent, now)
        if turn.scan and turn.room:
            self._nothing_due = not turn.claimed
            poll = self.config.poll_interval.total_seconds() * random.uniform(0.9, 1)  # noqa: S311 -- jitter
            self._next_scan = now + poll
            if turn.scan_filled:
                self._next_scan = 0.0
                self.bell.forget()  # a backlog: the scan finds whatever hints tell

    def _heal(self, error: Exception) -> None:
        self._failures += 1
        delay = 0.0
        if self._failures > 1 or not (isinstance(error, DatabaseError) and is_repeatable(error)):
            # Well within the lease: a cleaner that is back sooner must not find it silent.
            ceiling = min(timedelta(seconds=5), self.config.lease / 5)
            pause = backoff(self._failures, base=ceiling / 20, ceiling=ceiling)
            delay = pause.total_seconds()
            signals.database_failed.tell(
                who=f"Worker {self.ledger.id}", error=_text(error), delay=delay
            )
        self._not_before = time.monotonic() + delay
        self._next_beat = 0.0
        self.ledger.failed(error)

    # -- when -------------------------------------------------------------------------------------

    def _room(self) -> int:
        return 0 if self.stop.asked else int(min(self.slots.free, self._left))

    def _next_turn(self) -> float:
        """When the next turn is due, by ``time.monotonic()``; 0 = now."""
        self._collect()
        times = [self._next_beat]
        if self.ledger.unrecorded:
            times.append(0.0)
        if self._room():
            times.append(0.0 if self.bell.ids else self._next_scan)
            times.append(self.timers.next())
        return max(min(times), self._not_before)

    def _collect(self) -> None:
        ended = self.slots.collect()
        self.ledger.add(ended)
        if ended and self.batch:  # they may have enqueued others
            self._nothing_due, self._next_scan = False, 0.0

    def _wait_for_retries(self, ended: list[Ended]) -> None:
        """A retry that is near is not left to the scan."""
        near = {
            one.attempt.task_id: one.delay.total_seconds()
            for one in ended
            if one.arrow is Arrow.RETRY and one.delay.total_seconds() < NEAR
        }
        self.timers.due_in(near, time.monotonic())

    def _wait(self) -> None:
        now = time.monotonic()
        until = min(self._next_turn(), self.stop.deadline)
        if self._room():
            self._full_since = None
            self.bell.listen(True)
        elif self._full_since is None:
            self._full_since = now
            until = min(until, now + PATIENCE_WITH_HINTS)
        elif now >= self._full_since + PATIENCE_WITH_HINTS:
            self.bell.listen(False)
            self.bell.give_back()
        if not self._finished():
            self.bell.wait(until - now)

    # -- the end ----------------------------------------------------------------------------------

    def _finished(self) -> bool:
        self._collect()
        if self.slots.running or self.ledger.unrecorded:
            return False
        return (
            self.stop.asked
            or not self._left
            or (self.batch and self._nothing_due and not self.bell.ids)
        )

    def _cut_short(self) -> bool:
        """Record what has ended and leave the rest to the cleaner: these tasks die with the process."""
        running = self.slots.running
        if self.ledger.unrecorded:
            self._try_turn()
        self._leave(cut_short=True)
        signals.worker_cut_short.tell(worker=self.ledger.id, running=running)
        return False

    def _leave(self, *, cut_short: bool) -> None:
        try:
            self.ledger.leave(cut_short=cut_short)
        except (DatabaseError, InterfaceError) as error:  # the cleaner will find out by the lease
            signals.database_failed.tell(
                who=f"Worker {self.ledger.id}", error=_text(error), delay=0.0
            )


def _text(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".strip()
