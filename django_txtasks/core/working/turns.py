"""The turns of a worker: each is planned and written, then the claimed tasks start."""

from __future__ import annotations

import time
import uuid
from typing import Any

from django.db import DatabaseError, InterfaceError, connections, reset_queries

from django_txtasks import signals
from django_txtasks.core.ground.config import CoreConfig
from django_txtasks.core.ground.seams import AROUND
from django_txtasks.core.ground.surroundings import SignsOfLife, StopRequests
from django_txtasks.core.rows.attempts import Attempt
from django_txtasks.core.rows.turn import Capacity, Subscription
from django_txtasks.core.working.hint_inbox import HintInbox
from django_txtasks.core.working.last_chances import LastChances
from django_txtasks.core.working.looks import Looks
from django_txtasks.core.working.parts import Look, Parts
from django_txtasks.core.working.registration import DeclaredLost
from django_txtasks.core.working.running.limits import NEVER
from django_txtasks.core.working.running.slot_pool import SlotPool
from django_txtasks.core.working.schedule import Plan, TurnSchedule
from django_txtasks.core.working.turn_writer import TurnWriter
from django_txtasks.core.working.workload import Workload
from django_txtasks.database.errors import (
    TookTooLong,
    is_refusal,
    is_repeatable,
    is_timeout,
    text_of,
)
from django_txtasks.exceptions import ClaimLost
from django_txtasks.signals.outage import Outage

HAND_OVER_SECONDS = 0.0001
"""Seconds for which the loop releases the GIL after it has woken slots. Otherwise they start when it waits."""


class Turns:
    """Carries out turns and looks. The next turn repeats whatever failed.

    Attributes:
        is_closed: True = claim nothing more. Written by the loop.
    """

    def __init__(
        self,
        config: CoreConfig,
        subscription: Subscription,
        *,
        schedule: TurnSchedule,
        last_chances: LastChances,
        looks: Looks,
        parts: Parts,
        workload: Workload,
        slots: SlotPool,
        writer: TurnWriter,
        inbox: HintInbox,
        stop: StopRequests,
        liveness: SignsOfLife,
    ) -> None:
        self._config, self._workload, self._slots = config, workload, slots
        self._writer, self._buffer, self._inbox = writer, writer.buffer, inbox
        self._stop, self._liveness = stop, liveness
        self.schedule, self.looks, self.last_chances = schedule, looks, last_chances
        self._parts, self._apart = parts, parts.apart
        self._logs_queries = connections[subscription.alias].queries_logged  # True if DEBUG is set
        self._outage = Outage(subscription.alias, lambda: f"Worker {writer.name}")
        self.is_closed = False

    def capacity(self) -> Capacity:
        """Return how many tasks may be claimed now."""
        if self.is_closed or self._stop.asked:
            return Capacity(0)
        capacity = self.last_chances.limited(self._workload.capacity())
        if capacity.prefetch and self._apart.next <= time.monotonic():
            return self._workload.beside_apart(capacity, served=self.schedule.served_apart)
        return capacity

    def next_one(self, capacity: Capacity) -> float:
        """Return when the next turn or look is due, by ``time.monotonic()``; 0 = now."""
        looks_at = self.looks.next(has_room=self._has_room(capacity))
        return min(self._next_turn(capacity), looks_at)

    def _has_room(self, capacity: Capacity) -> bool:
        """Return True if a look may look for work. A worker registers first, which prepares its session."""
        registered = self._writer.id is not None
        return registered and bool(capacity.width) and self._workload.may_scan

    def _next_turn(self, capacity: Capacity) -> float:
        due = self.schedule.next_turn(
            capacity,
            hinted=bool(self._inbox.ids) or self.last_chances.are_next,
            more=bool(self._inbox.more),
            may_scan=self._workload.may_scan,
            unrecorded=bool(self._buffer.waiting),
            apart_at=self._apart.next,
        )
        return max(due, self._workload.gathers_until) if self.schedule.has_backlog else due

    def take(self, capacity: Capacity) -> None:
        """Take a turn if one is due, and do each look that is due. Never raises for the database."""
        now = time.monotonic()
        has_room = self._has_room(capacity)
        if has_room:
            self._look(now, *self.looks.before)
        if self._next_turn(capacity) <= now:
            self._turn(capacity)
        elif has_room and self._look(now, *self.looks.instead):
            self._apart.look_again()
        self._look(time.monotonic(), *self.looks.others)
        if self._logs_queries:
            reset_queries()

    def _look(self, now: float, *looks: Look) -> bool:
        """Do each look that is due, and return True if a task may be due. A failed look is as a failed turn."""
        is_due = False
        for look in looks:
            if look.next <= now:
                try:
                    is_due = look.look() or is_due
                except (DatabaseError, InterfaceError) as error:
                    self._heal(error)
        if is_due:
            self.schedule.look_again()
        return is_due

    def look_last(self) -> None:
        """Do the last looks, also if they are not due yet."""
        for look in self.looks.last:
            if look.next < NEVER:
                self._look(look.next, look)

    def _turn(self, capacity: Capacity) -> None:
        """Beat, record outcomes and claim tasks, then start the claimed tasks."""
        now, hinted = time.monotonic(), list(self._inbox.ids)
        self.schedule.expect_again(self._buffer.waiting, now)
        workload = self._workload
        plan, apart = self._plan(capacity, hinted, now)
        try:
            with AROUND.whole.awaiting(self._writer.alias):
                result = self._writer.write(plan, self._slots, self._inbox.connected, apart)
        except (DatabaseError, InterfaceError, ClaimLost, DeclaredLost) as error:
            if apart is not None and (isinstance(error, TookTooLong) or is_timeout(error)):
                self._apart.failed(now)
            self._heal(error)
            return
        seconds = time.monotonic() - now
        if plan.is_alone:
            self.last_chances.taken(result)
        self._start(result.claimed, now)  # first of all, because they have waited longest
        self._liveness.wrote()
        workload.learn(result, plan.capacity, seconds)
        self.schedule.written(
            result,
            time.monotonic(),
            busy=self._buffer.held_up,
            hints_follow_commits=self._inbox.follows_commits,
        )
        self._outage.succeeded()
        self._inbox.looked_up(result.settled)
        if result.has_scanned:
            self._inbox.scanned(filled=result.has_more)
        if (
            not plan.is_alone and result.not_ours
        ):  # another worker may claim them, or it is their last chance
            self.last_chances.hurry()
        self._parts.turned(result, alone=plan.is_alone)

    def _plan(self, capacity: Capacity, hinted: list[uuid.UUID], now: float) -> tuple[Plan, Any]:
        if self.last_chances.are_next:
            plan = self.schedule.plan_alone(capacity, self.last_chances.ids)
            groups = self.last_chances.groups if plan.is_apart else None
            return plan, groups and self._apart.request_of(groups)
        plan = self.schedule.plan(
            capacity,
            hinted,
            now,
            more=bool(self._inbox.more),
            may_scan=self._workload.may_scan,
            apart_at=self._apart.next,
        )
        if not plan.is_apart:
            return plan, None
        reserved = self.last_chances.reserved()
        return plan, self._apart.request(plan.capacity.width, now, reserved)

    def _start(self, claimed: list[Attempt], now: float) -> None:
        """Hand fresh claims to slots; if the worker is stopping, release them."""
        claimed = self._workload.accept(self._writer.reconciliation.without_ended(claimed))
        if self._stop.asked:
            self._workload.release(claimed)
            return
        self._parts.handed(claimed)
        self._workload.start(claimed, now + self._config.lease.total_seconds() / 2)
        if claimed:
            time.sleep(HAND_OVER_SECONDS)
        if signals.task_claimed.has_observers:
            for attempt in claimed:
                signals.task_claimed.emit(**attempt.facts)

    def record_all(self) -> None:
        """Record all waiting outcomes, in several turns if necessary. Stop after two turns without progress."""
        buffer, tries = self._buffer, 2
        buffer.try_refused_again(now=True)
        while buffer.waiting and tries:
            before = len(buffer.waiting), buffer.most
            self._turn(self.capacity())
            tries -= before == (len(buffer.waiting), buffer.most)

    def tell_failure(self, error: Exception, delay: float = 0.0) -> None:
        """Log a failure of the database, and the seconds until the next try."""
        self._outage.failed(text_of(error), delay)

    def _heal(self, error: Exception) -> None:
        delay = self.schedule.failed(error, time.monotonic())
        connected = connections[self._writer.alias].connection is not None
        if self._writer.failed(error):
            self.schedule.beat_at_once()
            delay = 0.0
        can_beat = self._writer.registration.can_beat
        self._liveness.ended(refused=is_refusal(error) and not can_beat, connected=connected)
        if isinstance(error, DeclaredLost):
            for attempt in self._slots.claims_lost():
                signals.claim_lost.emit(**attempt.facts, what="is not begun here")
        elif delay or not is_repeatable(error):
            self.tell_failure(error, delay)
