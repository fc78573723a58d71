"""The loop of one worker process. Each turn is one transaction; one wait follows it.

Only slots run tasks. The loop continues after every failure, because the table holds the truth and the next turn
reads it.
"""

from __future__ import annotations

import enum
import time
from collections.abc import Callable, Mapping
from types import MappingProxyType

from django.db import DatabaseError, InterfaceError, reset_queries

from django_txtasks import signals
from django_txtasks.core.ground.cancel_requests import CancelRequests
from django_txtasks.core.ground.config import CoreConfig
from django_txtasks.core.ground.surroundings import Replacement, SignsOfLife, StopRequests
from django_txtasks.core.rows.turn import Subscription
from django_txtasks.core.rows.workers import STUCK, End
from django_txtasks.core.working.hint_inbox import HintInbox, Listening
from django_txtasks.core.working.last_chances import LastChances
from django_txtasks.core.working.leaving import let_go
from django_txtasks.core.working.looks import Looks
from django_txtasks.core.working.parts import Parts, WorkerContext, parts_of_features
from django_txtasks.core.working.recording.outcome_buffer import key
from django_txtasks.core.working.registration import LastWill
from django_txtasks.core.working.running.drivers import ON_LOOP, Driver, in_threads
from django_txtasks.core.working.running.limits import NEVER
from django_txtasks.core.working.running.portions import PORTIONS
from django_txtasks.core.working.running.runner import Runner
from django_txtasks.core.working.running.verdicts import failed
from django_txtasks.core.working.schedule import TurnSchedule
from django_txtasks.core.working.turn_writer import TurnWriter
from django_txtasks.core.working.turns import Turns
from django_txtasks.core.working.workload import Workload

COLLECT_SECONDS = 0.02
"""Seconds between two collections of ended attempts while others wait, so that slots need not wake the loop."""
LEAST_END_SECONDS = 1.0
"""Minimum seconds for a task to end after its timeout, and then for the other tasks, however short the grace."""
NO_SUSPECTS: Mapping[str, str] = MappingProxyType({})
LOG_FIRST_SECONDS = 2.0
"""Seconds that log handlers have before tasks are let go, because these tasks may run twice from then on."""


CLEAN_UP_SECONDS = 1.0
"""Seconds that async tasks have to clean up when their process must end before them."""


class Exit(enum.Enum):
    """How a worker process exits.

    DONE: it was told to stop, or nothing was left to do. RECYCLE: a new process should continue. CUT_SHORT and
    STUCK: as DONE and RECYCLE, but tasks still run and die with this process.
    """

    DONE = enum.auto()
    RECYCLE = enum.auto()
    CUT_SHORT = enum.auto()
    STUCK = enum.auto()


class Worker:
    """Claims and runs tasks until stopped.

    Args:
        subscription: the queues and task functions that it serves.
        async_tasks: number of tasks at a time on one event loop; 0 = the tasks run in threads.
        inbox: the loop waits on it. It may have a source of hints.
        stop: requests to stop.
        until_idle: end when nothing is due.
        max_tasks: end after this number of tasks.
        recycling: conditions under which a new process replaces this one.
        last_will: the message that tells cleaners of this worker's death; None = there is no broker.
        liveness: the answers for probes of this process.
        tell_of_last_chance: tells the supervisor that a task is due which must run alone after a crash; None =
            there is no supervisor.
    """

    def __init__(
        self,
        config: CoreConfig,
        subscription: Subscription,
        *,
        threads: int,
        async_tasks: int = 0,
        inbox: HintInbox,
        stop: StopRequests,
        until_idle: bool = False,
        max_tasks: int | None = None,
        recycling: Replacement | None = None,
        last_will: LastWill | None = None,
        liveness: SignsOfLife | None = None,
        tell_of_last_chance: Callable[[], None] | None = None,
    ) -> None:
        self.config, self.inbox, self.stop, self._until_idle = config, inbox, stop, until_idle
        self.recycling = recycling or Replacement()
        self.liveness = liveness or SignsOfLife()
        self.parts = Parts()
        self.writer = TurnWriter(
            config, subscription, async_tasks or threads, last_will, self.parts
        )
        self._buffer, registration = self.writer.buffer, self.writer.registration
        patience = max(LEAST_END_SECONDS, config.grace.total_seconds())
        self.schedule = TurnSchedule(config)
        requests = CancelRequests()
        context = WorkerContext(
            config,
            subscription,
            registration,
            self.schedule,
            self.writer.scans,
            inbox,
            requests,
        )
        self.parts.add(parts_of_features(context))
        runner = Runner(
            subscription.alias,
            config,
            registration.note_session,
            requests,
            self.parts,
        )
        driver = _driver(threads, async_tasks, runner, inbox.wake, patience)
        self.slots, self.prefetch, self._stuck = driver.slots, driver.prefetch, driver.stuck
        self.workload = Workload(
            self.slots,
            self._buffer,
            self.prefetch,
            recycling=self.recycling,
            max_tasks=max_tasks,
            portions=PORTIONS.whole(() if async_tasks else subscription.names),
            parts=self.parts,
        )
        self.last_chances = LastChances(
            subscription, self.workload, self.parts.apart.are_served, tell_of_last_chance
        )
        self.looks = Looks(self.parts, own=(self.last_chances,))
        self.turns = Turns(
            config,
            subscription,
            schedule=self.schedule,
            last_chances=self.last_chances,
            looks=self.looks,
            parts=self.parts,
            workload=self.workload,
            slots=self.slots,
            writer=self.writer,
            inbox=inbox,
            stop=stop,
            liveness=self.liveness,
        )
        self._listening = Listening(inbox)
        self._recycle, self._has_told = "", False  # reason for a new process; of the stop

    @property
    def lacks_session(self) -> bool:
        """True if the loop or a thread of it gets no database session, or waits long for one."""
        return self.liveness.lacks_session or any(one.lacks_session for one in self.parts.all)

    def run(self) -> Exit:
        """Work until stopped, then until all running tasks have ended."""
        try:
            for part in self.parts.all:
                part.started(self.slots)
            return self._run()
        finally:
            for part in self.parts.all:
                part.stopped()

    def _run(self) -> Exit:
        while not self._is_finished():
            self.liveness.turned()
            self._tell_of_stop()
            stuck = self._stuck.enforce_limits(self.writer.name)
            self._recycle_for(self._stuck.reason, STUCK, self._stuck.suspects)
            if self.stop.now or self._stuck.is_too_long(stuck):
                return self._cut_short()
            capacity = self.turns.capacity()
            if self.turns.next_one(capacity) <= time.monotonic():
                self.turns.take(capacity)
                reason = self.recycling.reason
                why = reason(self.workload.count, self.writer.reconciliation.seconds)
                self._recycle_for(why, self.recycling.how)
            self._wait()
            self._collect()
        self._tell_of_stop()
        self.turns.record_all()
        self.slots.close()
        self.turns.look_last()
        self._leave(self.writer.registration.leave)
        signals.worker_stopped.emit(worker=self.writer.name, count=self.workload.count)
        return Exit.RECYCLE if self._recycle and not self.stop.asked else Exit.DONE

    def _is_finished(self) -> bool:
        if not self.workload.is_empty:
            return False
        if self.stop.asked or self._recycle or self.workload.is_used_up:
            return True
        return self._until_idle and self._is_idle()

    def _is_idle(self) -> bool:
        """Return True if the last looks found nothing due, and no news came since."""
        if self.last_chances.are_all or not self.last_chances.is_idle:
            return self.last_chances.is_idle
        is_idle = self.schedule.nothing_due and self.parts.apart.is_idle(time.monotonic())
        return is_idle and not (self.inbox.ids or self.inbox.more or self.looks.last_are_due)

    def _collect(self) -> None:
        ended, released = self.workload.collect()
        # The hinted tasks start in a moment.
        if ended and len(self.inbox.ids) <= self.prefetch.most:
            self._listening.moved()
        if released or (ended and self._until_idle):  # an ended task may have enqueued others
            self.schedule.look_again()
            if self._until_idle:
                self.parts.apart.look_again()
        if self.writer.registration.sees_another_will():
            self.schedule.beat_at_once()

    def _wait(self) -> None:
        now, capacity, slots = time.monotonic(), self.turns.capacity(), self.slots
        next_turn = self.turns.next_one(capacity)
        gathers = now < next_turn == self.workload.gathers_until
        wake_after = self.workload.soon_free if gathers else slots.waiting // 2
        slots.wake_after(wake_after)
        until = min(
            next_turn,
            now + COLLECT_SECONDS if wake_after > 1 else NEVER,
            self.stop.deadline,
            slots.next_look,
            self._stuck.next_look,
            self._listening.update(now, has_room=capacity.width > 0),
        )
        if not self._is_finished():
            self.inbox.wait(until - now)

    # -- the exit ---------------------------------------------------------------------------------

    def _tell_of_stop(self) -> None:
        if self.stop.asked and not self._has_told:
            self._has_told = True
            why, running = self.stop.why, self.slots.running
            signals.worker_stopping.emit(worker=self.writer.name, why=why, running=running)

    def _recycle_for(
        self, reason: str, how: str, suspects: Mapping[str, str] = NO_SUSPECTS
    ) -> None:
        if reason and not self._recycle:
            self._recycle = reason
            if how and not self.stop.asked:
                self.writer.registration.end = End(how, self._functions(suspects))
        self.turns.is_closed = bool(self._recycle)

    def _functions(self, suspects: Mapping[str, str]) -> dict[str, str]:
        """Return these functions; if none, the functions of all attempts that run or have ended lately."""
        if suspects:
            return dict(suspects)
        running = self.slots.running_since(time.monotonic())
        return {
            **{one.task_name: one.queue_name for one in running},
            **self.parts.ended_lately(),
        }

    def _cut_short(self) -> Exit:
        """Record the ended attempts and let the rest go; those tasks die with the process.

        Slow work, such as writing the log, comes first: once the tasks are let go, other workers run them.
        """
        slots = self.slots
        slots.interrupt(0.0 if self.stop.forced else CLEAN_UP_SECONDS)
        self._collect()
        self.workload.release(slots.release(stalled=False))
        self.turns.record_all()
        stuck = self._stuck.enforce_limits(self.writer.name)
        if running := slots.running - len(stuck):
            signals.worker_cut_short.emit(worker=self.writer.name, running=running)
        signals.flush(LOG_FIRST_SECONDS)
        self._collect()
        ended = [
            failed(one.attempt, one.error(), self.config)
            for one in self._stuck.enforce_limits(self.writer.name)
        ]
        abandoned = {key(one): one for one in ended}
        self._leave(lambda: let_go(self.writer, slots.holds(), self._why(), abandoned))
        return Exit.CUT_SHORT if self.stop.asked else Exit.STUCK

    def _why(self) -> str:
        if not self.stop.asked:
            return f"its process was replaced: {self._recycle}"
        return "a second stop signal" if self.stop.forced else "the end of TXTASKS['grace']"

    def _leave(self, leave: Callable[[], None]) -> None:
        if self._recycle:
            signals.worker_recycled.emit(worker=self.writer.name, reason=self._recycle)
        for part in self.parts.all:
            part.leaving()
        try:
            leave()
        except (DatabaseError, InterfaceError) as error:  # the cleaner notices by the lease
            self.turns.tell_failure(error)
        reset_queries()


def _driver(
    threads: int, async_tasks: int, runner: Runner, wake: Callable[[], None], patience: float
) -> Driver:
    if not async_tasks:
        return in_threads(threads, runner, wake=wake, patience=patience)
    grace = runner.config.grace.total_seconds()
    return ON_LOOP.whole(async_tasks, threads, runner, wake=wake, grace=grace, patience=patience)
