"""The loop of one worker process: each turn is one transaction, and one wait follows it.

Tasks run in slots only. Whatever fails, the loop goes on: the table is the truth, and the next turn
reads it.
"""

from __future__ import annotations

import enum
import sys
import time
import uuid
from collections.abc import Callable

from django.db import DatabaseError, InterfaceError, reset_queries

from django_txtasks import signals
from django_txtasks.conf import Config
from django_txtasks.exceptions import ClaimLost
from django_txtasks.lifecycle.attempts import Arrow, Attempt, Ended
from django_txtasks.lifecycle.database_errors import is_refusal, is_repeatable, text_of
from django_txtasks.lifecycle.turn import Capacity, Subscription
from django_txtasks.worker.hint_inbox import HintInbox
from django_txtasks.worker.leaving import let_go
from django_txtasks.worker.prefetch import PrefetchPolicy
from django_txtasks.worker.probes import Liveness
from django_txtasks.worker.recycling import RecyclePolicy
from django_txtasks.worker.registration import DeclaredLost, LastWillHolder
from django_txtasks.worker.rerouting import Rerouting
from django_txtasks.worker.runner import Runner, failed
from django_txtasks.worker.schedule import Schedule
from django_txtasks.worker.shutdown import Shutdown
from django_txtasks.worker.slots import Running, Slots
from django_txtasks.worker.turn_writer import TurnWriter

LISTEN_WHEN_FULL_SECONDS = 0.05
"""Seconds that a full worker in which nothing ends goes on listening; then it leaves hints to those with room."""
HAND_OVER_SECONDS = 0.0001
"""Seconds that the loop leaves Python to the slots that it has woken: otherwise they wait until it rests."""
LEAST_END_SECONDS = 1.0
"""Seconds that a task has for its end after its timeout, and the others then, however short the grace."""

LOG_FIRST_SECONDS = 2.0
"""Seconds that handlers of the log have before tasks are let go: while they write, these may run twice."""


class End(enum.Enum):
    """How a worker's run ended.

    DONE: as told, or because nothing was left to do. RECYCLE: a new process should go on. CUT_SHORT
    and STUCK are the same with tasks still running, which die with this process.
    """

    DONE = enum.auto()
    RECYCLE = enum.auto()
    CUT_SHORT = enum.auto()
    STUCK = enum.auto()


class Worker:
    """Claims and runs tasks until stopped.

    Args:
        subscription: which tasks it may take.
        inbox: what it waits on; with a source of hints, or without.
        stop: how it is told to stop.
        batch: end when nothing is due.
        max_tasks: end after so many tasks.
        recycling: when to end for a new process.
        last_will: what tells cleaners of its death; None = there is no broker.
        liveness: what tells whoever runs the process that it is alive.
    """

    def __init__(
        self,
        config: Config,
        subscription: Subscription,
        *,
        threads: int,
        inbox: HintInbox,
        stop: Shutdown,
        batch: bool = False,
        max_tasks: int | None = None,
        recycling: RecyclePolicy | None = None,
        last_will: LastWillHolder | None = None,
        liveness: Liveness | None = None,
    ) -> None:
        self.config, self.inbox, self.stop, self.batch = config, inbox, stop, batch
        self._patience = max(LEAST_END_SECONDS, config.grace.total_seconds())
        self.writer = TurnWriter(config, subscription, threads, last_will)
        self.buffer = self.writer.buffer
        self.prefetch = PrefetchPolicy(threads)
        self.slots = Slots(
            threads,
            run=Runner(subscription.alias, config, self.writer.registration.note_session).run,
            wake=inbox.wake,
            patience=self._patience,
            took=self.prefetch.took,
        )
        self.schedule = Schedule(config)
        self.rerouting = Rerouting(config, subscription)
        self.recycling = recycling or RecyclePolicy()
        self.liveness = liveness or Liveness(config.lease)
        self.count = 0
        self._left = sys.maxsize if max_tasks is None else max_tasks
        self._recycle = ""
        self._blocked = False
        self._stuck_since: float | None = None
        self._full_since: float | None = None

    def run(self) -> End:
        """Work until stopped, then until what runs has ended."""
        told = False
        while not self._finished():
            self.liveness.turned()
            if self.stop.asked and not told:
                told = True
                signals.worker_stopping.emit(worker=self.writer.name, running=self.slots.running)
            stuck = self._enforce_limits()
            if self.stop.now or self._is_stuck_too_long(stuck):
                return self._cut_short()
            if self._next_turn() <= time.monotonic():
                self._try_turn()
            self._wait()
        self._record_all()
        self.slots.close()
        self._leave(self.writer.registration.leave)
        signals.worker_stopped.emit(worker=self.writer.name, count=self.count)
        return End.RECYCLE if self._recycle and not self.stop.asked else End.DONE

    # -- turns ------------------------------------------------------------------------------------

    def turn(self) -> None:
        """Beat, record what ended, claim what fits; then start it."""
        now, hinted = time.monotonic(), list(self.inbox.ids)
        capacity = self._capacity()
        plan = self.schedule.plan(
            capacity, hinted, now, more=bool(self.inbox.more), may_scan=self._may_scan
        )
        try:
            result = self.writer.write(plan, self.slots, self.inbox.connected)
        except (DatabaseError, InterfaceError, ClaimLost, DeclaredLost) as error:
            self._heal(error)
            return
        self._start(result.claimed, now)  # before all else: they have waited long enough
        self.liveness.wrote()
        self._blocked = self._blocked or result.blocked_queue is not None
        if result.claimed and capacity.prefetch:
            self.prefetch.learn(result.claimed)
        self.schedule.written(result, time.monotonic(), busy=self.buffer.held_up)
        self.inbox.looked_up(result.settled)
        if result.has_scanned:
            self.inbox.scanned(filled=result.has_more)
        if elsewhere := result.not_ours:
            self._reroute(elsewhere)
        self._recycle = self._recycle or self.recycling.reason(
            self.count, self.writer.reconciliation.seconds
        )

    def _try_turn(self) -> None:
        self.schedule.expect_again(self.buffer.waiting, time.monotonic())
        self.turn()
        reset_queries()

    def _start(self, claimed: list[Attempt], now: float) -> None:
        """Hand claims of this moment to slots, at once or not at all."""
        claimed = self.slots.without_second(claimed, self.buffer.keys())
        self.count += len(claimed)
        self._left -= len(claimed)
        if self.stop.asked:
            self._release(claimed)
            return
        for run in self.prefetch.batches(claimed):
            good_until = now + self.config.lease.total_seconds() / 2
            self.slots.start(run, good_until, in_line=self.prefetch.is_instant(run))
        if claimed:
            time.sleep(HAND_OVER_SECONDS)
        if signals.task_claimed.has_observers:
            for attempt in claimed:
                signals.task_claimed.emit(**attempt.facts)

    def _release(self, attempts: list[Attempt]) -> None:
        """They have not begun: another slot, or another worker, may begin them at once."""
        self.count -= len(attempts)
        self._left += len(attempts)
        if attempts:
            self.buffer.add(Ended(attempt=one, arrow=Arrow.RELEASE) for one in attempts)
            self.schedule.look_again()

    def _reroute(self, ids: set[uuid.UUID]) -> None:
        try:
            self.rerouting.look_at(ids)
        except (DatabaseError, InterfaceError) as error:
            self._heal(error)

    def _heal(self, error: Exception) -> None:
        delay = self.schedule.failed(error, time.monotonic())
        if self.writer.failed(error):
            self.schedule.beat_at_once()
            delay = 0.0
        self.liveness.ended(refused=is_refusal(error) and not self.writer.can_beat)
        if isinstance(error, DeclaredLost):
            for attempt in self.slots.release(stalled=False):
                signals.claim_lost.emit(**attempt.facts)
        elif delay or not is_repeatable(error):
            self._tell_failure(error, delay)

    # -- when -------------------------------------------------------------------------------------

    def _capacity(self) -> Capacity:
        if self.stop.asked or self._recycle:
            return Capacity(0)
        return Capacity(
            dedicated=self.slots.free,
            prefetch=self.prefetch.ahead(self.slots.running) if self._may_claim_ahead else 0,
            limit=int(min(self._left, self.recycling.room(self.count))),
            short_names=self.prefetch.short,
        )

    @property
    def _may_scan(self) -> bool:
        """Not while many wait for a slot: there is room for what hints tell, but no need to scan."""
        return not self.prefetch.is_enough(self.slots.running)

    @property
    def _may_claim_ahead(self) -> bool:
        """Not while all slots are taken by long tasks: whoever is idle begins it sooner."""
        return not self._blocked and bool(self.slots.free or self.prefetch.short & self.slots.names)

    def _next_turn(self) -> float:
        """When the next turn is due, by ``time.monotonic()``; 0 = now."""
        self._collect()
        if self.writer.registration.sees_another_will():
            self.schedule.beat_at_once()
        return self.schedule.next_turn(
            self._capacity(),
            hinted=bool(self.inbox.ids),
            more=bool(self.inbox.more),
            may_scan=self._may_scan,
            unrecorded=bool(self.buffer.waiting),
        )

    def _collect(self) -> None:
        ended = self.slots.collect()
        self.buffer.add(ended)
        if ended:
            if len(self.inbox.ids) <= self.prefetch.most:  # they will begin in a moment
                self._full_since = None
            self._blocked = self._blocked and not self.slots.free
        if stalled := self.slots.release(stalled=True):
            self._release(stalled)
            self._blocked = True
        if self.slots.has_kept_back:
            back = self.slots.release_kept_back(self.buffer.keys())
            self.count += len(back)
            self._left -= len(back)
            self._release(back)
        if ended and self.batch:  # they may have enqueued others
            self.schedule.look_again()

    def _wait(self) -> None:
        now = time.monotonic()
        until = min(self._next_turn(), self.stop.deadline, self.slots.next_look)
        if self._stuck_since is not None:
            until = min(until, self._stuck_since + self._patience)
        if self._capacity().width:
            self._full_since = None
            self.inbox.listen(True)
        else:
            self._full_since = self._full_since or now
            if now < self._full_since + LISTEN_WHEN_FULL_SECONDS:
                until = min(until, self._full_since + LISTEN_WHEN_FULL_SECONDS)
            else:
                self.inbox.listen(False)
                self.inbox.release()
        if not self._finished():
            self.inbox.wait(until - now)

    # -- the end ----------------------------------------------------------------------------------

    def _finished(self) -> bool:
        self._collect()
        if self.slots.running or self.buffer.waiting:
            return False
        return bool(
            self.stop.asked
            or self._recycle
            or not self._left
            or (
                self.batch
                and self.schedule.nothing_due
                and not self.inbox.ids
                and not self.inbox.more
            )
        )

    def _enforce_limits(self) -> list[Running]:
        """Return the attempts that no exception could end: only a new process gets their slots back."""
        stuck = self.slots.enforce_limits()
        if stuck and self._stuck_since is None:
            self._stuck_since = time.monotonic()
            self._recycle = "a task did not end after its timeout"
            signals.worker_stuck.emit(
                worker=self.writer.name,
                tasks=", ".join(
                    f"{one.attempt.task_id} ({one.attempt.task_name})" for one in stuck
                ),
                others=self.slots.running - len(stuck),
            )
        return stuck

    def _is_stuck_too_long(self, stuck: list[Running]) -> bool:
        """Say whether the others have had their time to end, too."""
        if not stuck or self._stuck_since is None:
            return False
        waited = time.monotonic() - self._stuck_since
        return self.slots.running == len(stuck) or waited >= self._patience

    def _cut_short(self) -> End:
        """Record what has ended, and let the rest go: these tasks die with the process.

        What is slow, such as a log that is read, comes before: once they are let go, they run elsewhere.
        """
        self._collect()
        self._release(self.slots.release(stalled=False))
        self._record_all()
        stuck = self._enforce_limits()
        running = self.slots.running - len(stuck)
        if running:
            signals.worker_cut_short.emit(worker=self.writer.name, running=running)
        signals.flush(LOG_FIRST_SECONDS)
        self._collect()
        stuck = self._enforce_limits()
        self.buffer.add(failed(one.attempt, one.limit.error(), self.config) for one in stuck)
        self._leave(lambda: let_go(self.writer, self.slots.holds(), self._why()))
        return (
            End.CUT_SHORT if self.stop.asked else End.STUCK
        )  # be it that the stuck one has ended just now

    def _why(self) -> str:
        if not self.stop.asked:
            return f"its process was replaced: {self._recycle}"
        return "a second stop signal" if self.stop.forced else "the end of TXTASKS['grace']"

    def _record_all(self) -> None:
        """Record what waits, batch by batch; what fails twice in the same way is left."""
        self.buffer.try_refused_again(now=True)
        tries = 2
        while self.buffer.waiting and tries:
            before = len(self.buffer.waiting), self.buffer.most
            self._try_turn()
            tries -= before == (len(self.buffer.waiting), self.buffer.most)

    def _leave(self, leave: Callable[[], None]) -> None:
        if self._recycle:
            signals.worker_recycled.emit(worker=self.writer.name, reason=self._recycle)
        try:
            leave()
        except (DatabaseError, InterfaceError) as error:  # the cleaner will find out by the lease
            self._tell_failure(error, 0.0)
        reset_queries()

    def _tell_failure(self, error: Exception, delay: float) -> None:
        signals.database_failed.emit(
            who=f"Worker {self.writer.name}",
            database=self.writer.alias,
            error=text_of(error),
            delay=delay,
        )
