"""The tasks in a worker's hands: they run, wait for a slot, or have ended and are not recorded."""

from __future__ import annotations

import sys
import time
from typing import NamedTuple

from django_txtasks.lifecycle.attempts import Arrow, Attempt, Ended
from django_txtasks.lifecycle.turn import Capacity, TurnResult
from django_txtasks.worker.process.recycling import RecyclePolicy
from django_txtasks.worker.recording.outcome_buffer import OutcomeBuffer
from django_txtasks.worker.running.prefetch import GatherPolicy, PrefetchPolicy
from django_txtasks.worker.running.slot_sessions import SlotSessions
from django_txtasks.worker.running.slots import Slots


class Collected(NamedTuple):
    """The result of ``Workload.collect``.

    Attributes:
        ended: whether an attempt has ended.
        released: whether an attempt that had not begun was released.
        lanes: lanes of which a task has ended here, or was released.
    """

    ended: bool
    released: bool
    lanes: set[str]


class Workload:
    """The tasks of one worker, and how many more it can take. For the loop alone.

    Args:
        slots: run tasks.
        buffer: where what ended goes, to be recorded.
        prefetch: says how many tasks may be claimed before a slot is free for them.
        sessions: says how much may be claimed where slots get no session.
        max_tasks: claim no more than so many; None = any number.
        has_lanes: the settings have rules for lanes.

    Attributes:
        count: tasks that were started.
    """

    def __init__(
        self,
        slots: Slots,
        buffer: OutcomeBuffer,
        prefetch: PrefetchPolicy,
        sessions: SlotSessions,
        *,
        recycling: RecyclePolicy,
        max_tasks: int | None,
        has_lanes: bool = False,
    ) -> None:
        self._has_lanes = has_lanes
        self._slots, self._buffer, self._prefetch = slots, buffer, prefetch
        self._sessions, self._recycling = sessions, recycling
        self._gathering = GatherPolicy()
        self.count = 0
        self._ended_in: set[str] = set()  # lanes, since the last call of ``collect``
        self._left = sys.maxsize if max_tasks is None else max_tasks
        self._blocked = False
        self._free_since: float | None = None  # when a slot has become free after the last turn
        self._claims_ahead = False  # by the last turn

    @property
    def is_empty(self) -> bool:
        """Whether nothing runs and all is recorded."""
        return not (self._slots.running or self._buffer.waiting)

    @property
    def is_used_up(self) -> bool:
        """Whether it has claimed ``max_tasks``."""
        return not self._left

    def capacity(self) -> Capacity:
        """Return how many tasks fit now."""
        capacity = Capacity(
            dedicated=self._slots.free,
            prefetch=self._prefetch.ahead(self._slots.running) if self._may_prefetch else 0,
            limit=int(min(self._left, self._recycling.room(self.count))),
            short_names=self._prefetch.short,
        )
        return self._sessions.limited(capacity)

    @property
    def gathers_until(self) -> float:
        """Until when, in a backlog, more slots may become free before a turn, by ``time.monotonic()``.

        0 = there is no reason to wait: no slot is free, no other one will soon be, or a turn claims more than
        fills them.
        """
        if (
            self._claims_ahead
            or self._free_since is None
            or not (self._slots.free and self.soon_free)
        ):
            return 0.0
        return self._free_since + self._gathering.seconds(self._prefetch.mean)

    @property
    def soon_free(self) -> int:
        """How many slots will be free in a moment, by how long short tasks take."""
        between = self._gathering.begun_between(self._prefetch.mean, time.monotonic())
        return self._slots.begun_between(*between)

    def beside_lanes(self, capacity: Capacity, *, served: bool) -> Capacity:
        """Return the capacity while tasks of lanes wait for a slot: otherwise prefetched tasks fill every slot.

        Args:
            served: the last turn has served lanes.
        """
        most = self._prefetch.beside_lanes if served else 0
        return capacity._replace(prefetch=min(capacity.prefetch, most))

    @property
    def may_scan(self) -> bool:
        """Not while many wait for a slot: there is room for what hints tell, but no need to scan."""
        return not self._prefetch.is_enough(self._slots.running)

    @property
    def _may_prefetch(self) -> bool:
        """Not while all slots are taken by long tasks: whoever is idle begins it sooner."""
        return not self._blocked and bool(
            self._slots.free or self._slots.are_handed(self._prefetch.short)
        )

    def accept(self, claimed: list[Attempt]) -> list[Attempt]:
        """Count what was claimed; return what may start."""
        claimed = self._slots.in_hand.without_second(claimed, self._buffer.keys())
        self._counted(len(claimed))
        return claimed

    def start(self, attempts: list[Attempt], good_until: float) -> None:
        """Hand attempts to slots.

        Args:
            good_until: when their claim is too old to begin, by ``time.monotonic()``.
        """
        for batch in self._prefetch.batches(attempts):
            self._slots.start(batch, good_until)

    def learn(self, result: TurnResult, capacity: Capacity, seconds: float) -> None:
        """Learn from a turn that claimed with this capacity, and took so long, how many to claim next time."""
        if result.claimed:
            self._gathering.turn_took(seconds)
        self._free_since = None
        self._claims_ahead = len(result.claimed) > capacity.dedicated
        self._blocked = self._blocked or result.blocked_queue is not None
        if result.claimed and capacity.prefetch:
            self._prefetch.learn(result.claimed)

    def collect(self) -> Collected:
        """Take what slots have ended into the buffer, and release what waits too long for one."""
        ended = self._slots.collect()
        self._sessions.note(ended)
        self._counted(-sum([one.arrow is Arrow.RELEASE for one in ended]))  # these have not begun
        self._buffer.add(ended)
        if self._has_lanes:
            self._ended_in.update([one.attempt.lane for one in ended if one.attempt.lane])
        if self._slots.free:  # a moment after its last task has ended, perhaps
            self._free_since = self._free_since or time.monotonic()
        if ended:
            self._blocked = self._blocked and not self._slots.free
        stalled = self._slots.release(stalled=True)
        if stalled:
            self._blocked = True
        in_hand = self._slots.in_hand
        again = in_hand.release_kept_back(self._buffer.keys()) if in_hand.kept_back else []
        self._counted(len(again))  # they were not when they were kept back
        self.release(stalled + again)
        lanes, self._ended_in = self._ended_in, set()
        return Collected(bool(ended), bool(stalled or again), lanes)

    def release(self, attempts: list[Attempt]) -> None:
        """Release attempts that have not begun: another slot, or another worker, may begin them at once."""
        self._counted(-len(attempts))
        if self._has_lanes:
            self._ended_in.update([one.lane for one in attempts if one.lane])
        self._buffer.add(Ended(attempt=one, arrow=Arrow.RELEASE) for one in attempts)

    def _counted(self, number: int) -> None:
        self.count += number
        self._left -= number
