"""One turn after the other: planned, written, and what was claimed started."""

from __future__ import annotations

import time
import uuid

from django.db import DatabaseError, InterfaceError, connections, reset_queries

from django_txtasks import signals
from django_txtasks.conf import Config
from django_txtasks.database.errors import (
    TookTooLong,
    is_refusal,
    is_repeatable,
    is_timeout,
    text_of,
)
from django_txtasks.exceptions import ClaimLost
from django_txtasks.lifecycle.attempts import Attempt
from django_txtasks.lifecycle.turn import Capacity, Subscription
from django_txtasks.signals.outage import Outage
from django_txtasks.worker.hint_inbox import HintInbox
from django_txtasks.worker.lane_book import LaneBook
from django_txtasks.worker.looks.batch_look import BatchLook
from django_txtasks.worker.looks.cancelling import CancelLook
from django_txtasks.worker.looks.glances import Glances
from django_txtasks.worker.looks.progress import ProgressWriter
from django_txtasks.worker.looks.rerouting import Rerouting
from django_txtasks.worker.looks.upcoming import UpcomingLook
from django_txtasks.worker.process.probes import Liveness
from django_txtasks.worker.process.shutdown import Shutdown
from django_txtasks.worker.registration import DeclaredLost
from django_txtasks.worker.running.limits import NEVER
from django_txtasks.worker.schedule import Schedule
from django_txtasks.worker.turn_writer import TurnWriter
from django_txtasks.worker.workload import Workload

HAND_OVER_SECONDS = 0.0001
"""Seconds that the loop gives up the GIL for slots it has woken: otherwise they wait until it rests."""


class Turns:
    """Carries out turns; what fails is tried again by the next one.

    Attributes:
        is_closed: claim nothing more. Written by the loop.
    """

    def __init__(
        self,
        config: Config,
        subscription: Subscription,
        *,
        workload: Workload,
        writer: TurnWriter,
        inbox: HintInbox,
        stop: Shutdown,
        liveness: Liveness,
        cancel_look: CancelLook,
        progress: ProgressWriter,
    ) -> None:
        self._config, self._workload, self._writer = config, workload, writer
        self._inbox, self._stop, self._liveness = inbox, stop, liveness
        self._cancel_look, self._progress = cancel_look, progress
        self._rerouting = Rerouting(config, subscription)
        self._glances = Glances(subscription)
        self._upcoming = UpcomingLook(config, subscription)
        self._may_glance = config.may_hint_by_database
        self.batch_look = BatchLook(subscription.alias, workload.buffer)
        self._logs_queries = connections[subscription.alias].queries_logged  # as where DEBUG is set
        self._outage = Outage(subscription.alias, lambda: f"Worker {writer.name}")
        self.schedule = Schedule(config)
        self.lanes = LaneBook(config, subscription)
        self.is_closed = False

    def capacity(self) -> Capacity:
        """Return how many tasks may be claimed now."""
        if self.is_closed or self._stop.asked:
            return Capacity(0)
        capacity = self._workload.capacity()
        if capacity.prefetch and self.lanes.next <= time.monotonic():
            # else there would never be a free slot for them
            may = self._workload.prefetch.beside_lanes if self.schedule.served_lanes else 0
            return capacity._replace(prefetch=min(capacity.prefetch, may))
        return capacity

    def next_one(self) -> float:
        """Return when the next turn is due, by ``time.monotonic()``; 0 = now."""
        capacity = self.capacity()
        return min(
            self._next_turn(capacity),
            self._next_upcoming(capacity),
            self._next_glance(capacity),
            self._cancel_look.next,
            self._progress.next,
            self.batch_look.next,
        )

    def _next_turn(self, capacity: Capacity) -> float:
        if self._workload.ended_in:
            self.lanes.ended(self._workload.ended_in)
            self._workload.ended_in.clear()
        due = self.schedule.next_turn(
            capacity,
            hinted=bool(self._inbox.ids),
            more=bool(self._inbox.more),
            may_scan=self._workload.may_scan,
            unrecorded=bool(self._workload.buffer.waiting),
            lanes_at=self.lanes.next,
        )
        return max(due, self._workload.gathers_until) if self.schedule.has_backlog else due

    def take(self) -> None:
        """Beat, record what ended, claim what fits; then start it. Never raises for the database.

        Between two turns it only glances.
        """
        now, capacity = time.monotonic(), self.capacity()
        if self._next_upcoming(capacity) <= now:
            self._look_ahead(now)
        if self._next_turn(capacity) <= now:
            self._turn()
        elif self._next_glance(capacity) <= now:
            self._glance()
        if self._cancel_look.next <= now:
            self._look_for_cancelled()
        if self._progress.next <= now:
            self._write_progress()
        if self.batch_look.next <= time.monotonic():
            self.look_at_batches()
        if self._logs_queries:
            reset_queries()

    def _turn(self) -> None:
        self.schedule.expect_again(self._workload.buffer.waiting, time.monotonic())
        self._take()

    def _next_upcoming(self, capacity: Capacity) -> float:
        may = capacity.width and self._workload.may_scan and not self.schedule.has_backlog
        may = may and self._writer.id is not None  # it registers first: that prepares its session
        return self._upcoming.next if may else NEVER

    def _look_ahead(self, now: float) -> None:
        """Have the next turn scan if something has become due, and look for what comes next."""
        if self._upcoming.pop_due(now):
            self.schedule.look_again()
        try:
            self._writer.scans.expect(self._upcoming.look(now))
        except (DatabaseError, InterfaceError) as error:
            self._heal(error)

    def _next_glance(self, capacity: Capacity) -> float:
        may = self._may_glance and not self._inbox.connected and self._workload.may_scan
        return self._glances.next if may and capacity.width else NEVER

    def _glance(self) -> None:
        """Have the next turn scan if something is due."""
        try:
            if self._glances.finds():
                self.schedule.look_again()
                self.lanes.look_again()
        except (DatabaseError, InterfaceError) as error:
            self._heal(error)

    def _look_for_cancelled(self) -> None:
        try:
            self._cancel_look.look(self._writer.id)
        except (DatabaseError, InterfaceError) as error:
            self._heal(error)

    def _write_progress(self) -> None:
        try:
            self._progress.write(self._writer.id)
        except (DatabaseError, InterfaceError) as error:
            self._heal(error)

    def look_at_batches(self) -> None:
        """Look whether members that have ended were the last ones. Never raises for the database."""
        try:
            if self.batch_look.look():
                self.schedule.look_again()
        except (DatabaseError, InterfaceError) as error:
            self.batch_look.failed()
            self._heal(error)

    def _take(self) -> None:
        now, hinted = time.monotonic(), list(self._inbox.ids)
        capacity, workload = self.capacity(), self._workload
        plan = self.schedule.plan(
            capacity,
            hinted,
            now,
            more=bool(self._inbox.more),
            may_scan=workload.may_scan,
            lanes_at=self.lanes.next,
        )
        request = self.lanes.request(plan.capacity.width, now) if plan.serves_lanes else None
        try:
            result = self._writer.write(plan, workload.slots, self._inbox.connected, request)
        except (DatabaseError, InterfaceError, ClaimLost, DeclaredLost) as error:
            if request is not None and (isinstance(error, TookTooLong) or is_timeout(error)):
                self.lanes.failed(now)
            self._heal(error)
            return
        seconds = time.monotonic() - now
        self._start(result.claimed, now)  # before all else: they have waited long enough
        self._liveness.wrote()
        workload.learn(result, plan.capacity, seconds)
        self.lanes.learn(result, time.monotonic())
        self.schedule.written(
            result,
            time.monotonic(),
            busy=workload.buffer.held_up,
            hints_follow_commits=self._inbox.follows_commits,
        )
        self._outage.succeeded()
        self._inbox.looked_up(result.settled)
        if result.has_scanned:
            self._upcoming.scanned(time.monotonic(), claimed=bool(result.claimed))
            self._inbox.scanned(filled=result.has_more)
        if elsewhere := result.not_ours:
            self._reroute(elsewhere)

    def _start(self, claimed: list[Attempt], now: float) -> None:
        """Hand claims of this moment to slots, at once or not at all."""
        claimed = self._workload.accept(self._writer.reconciliation.without_ended(claimed))
        if self._stop.asked:
            self.release(claimed)
            return
        self._workload.start(claimed, now + self._config.lease.total_seconds() / 2)
        if claimed:
            self._glances.claimed(now)
            time.sleep(HAND_OVER_SECONDS)
        if signals.task_claimed.has_observers:
            for attempt in claimed:
                signals.task_claimed.emit(**attempt.facts)

    def release(self, attempts: list[Attempt]) -> None:
        """Release attempts that have not begun: another slot, or another worker, may begin them at once."""
        self._workload.release(attempts)
        if attempts:
            self.schedule.look_again()

    def record_all(self) -> None:
        """Record what waits, batch by batch; what fails twice in the same way is left."""
        buffer, tries = self._workload.buffer, 2
        buffer.try_refused_again(now=True)
        while buffer.waiting and tries:
            before = len(buffer.waiting), buffer.most
            self._turn()
            tries -= before == (len(buffer.waiting), buffer.most)

    def tell_failure(self, error: Exception, delay: float = 0.0) -> None:
        """Say in the log what the database has failed at, and when it is tried again."""
        self._outage.failed(text_of(error), delay)

    def _reroute(self, ids: set[uuid.UUID]) -> None:
        if self._inbox.follows_commits:  # and all workers have heard of them
            return
        try:
            self._rerouting.look_at(ids)
        except (DatabaseError, InterfaceError) as error:
            self._heal(error)

    def _heal(self, error: Exception) -> None:
        delay = self.schedule.failed(error, time.monotonic())
        if self._writer.failed(error):
            self.schedule.beat_at_once()
            delay = 0.0
        can_beat = self._writer.registration.can_beat
        self._liveness.ended(refused=is_refusal(error) and not can_beat)
        if isinstance(error, DeclaredLost):
            for attempt in self._workload.slots.release(stalled=False):
                signals.claim_lost.emit(**attempt.facts, what="is not begun here")
        elif delay or not is_repeatable(error):
            self.tell_failure(error, delay)
