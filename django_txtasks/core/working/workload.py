"""The tasks that a worker holds: running, waiting for a slot, or ended and not recorded."""

from __future__ import annotations

import sys
import time
from typing import NamedTuple

from django_txtasks.core.ground.surroundings import Replacement
from django_txtasks.core.rows.attempts import Arrow, Attempt, Ended
from django_txtasks.core.rows.turn import Capacity, TurnResult
from django_txtasks.core.working.parts import Parts
from django_txtasks.core.working.recording.outcome_buffer import OutcomeBuffer
from django_txtasks.core.working.running.portions import Portions
from django_txtasks.core.working.running.slot_pool import SlotPool
from django_txtasks.fast.prefetch import GatherPolicy, PrefetchPolicy


class Collected(NamedTuple):
    """The result of ``Workload.collect``.

    Attributes:
        ended: True if an attempt has ended.
        released: True if an attempt that had not begun was released.
    """

    ended: bool
    released: bool


class Gathering:
    """The wait of a free slot for others, in a backlog: the state of one worker. Only the loop uses it."""

    def __init__(self, slots: SlotPool, prefetch: PrefetchPolicy) -> None:
        self._slots, self._prefetch, self._policy = slots, prefetch, GatherPolicy()
        self._free_since: float | None = None  # when a slot became free after the last turn
        self._claims_ahead = False  # of the last turn

    @property
    def until(self) -> float:
        """End of the wait, by ``time.monotonic()``; 0 = do not wait.

        A turn does not wait if no slot is free, if no other slot will soon be free, or if the last turn claimed
        more tasks than it had free slots.
        """
        free_since = self._free_since
        if self._claims_ahead or free_since is None or not (self._slots.free and self.soon_free):
            return 0.0
        return free_since + self._policy.seconds(self._prefetch.mean)

    @property
    def soon_free(self) -> int:
        """Number of slots that will soon be free, judged by how long short tasks take."""
        between = self._policy.begun_between(self._prefetch.mean, time.monotonic())
        return self._slots.begun_between(*between)

    def turn_ended(self, claimed: int, free: int, seconds: float) -> None:
        """Begin anew after a turn. ``free`` is the number of slots that were free before it."""
        if claimed:
            self._policy.turn_took(seconds)
        self._free_since, self._claims_ahead = None, claimed > free

    def collected(self) -> None:
        """Note whether a slot is free; its last task may have ended a moment before."""
        if self._slots.free:
            self._free_since = self._free_since or time.monotonic()


class Workload:
    """The tasks that one worker holds, and the number that it can still take. Only the loop uses it.

    Args:
        slots: run the tasks.
        buffer: takes the outcomes, to record them.
        prefetch: limits how many tasks may be claimed before a slot is free for them.
        max_tasks: maximum number of tasks to claim; None = no limit.
        portions: divides the claims.
        parts: learn of attempts that are collected, or released before they begin.

    Attributes:
        count: number of started tasks.
    """

    def __init__(
        self,
        slots: SlotPool,
        buffer: OutcomeBuffer,
        prefetch: PrefetchPolicy,
        *,
        recycling: Replacement,
        max_tasks: int | None,
        portions: Portions,
        parts: Parts,
    ) -> None:
        self._portions, self._parts = portions, parts
        self._slots, self._buffer, self._prefetch = slots, buffer, prefetch
        self._recycling = recycling
        self._gathering = Gathering(slots, prefetch)
        self.count = 0
        self._left = sys.maxsize if max_tasks is None else max_tasks
        self._blocked = False

    @property
    def is_empty(self) -> bool:
        """True if nothing runs and all outcomes are recorded."""
        return not (self._slots.running or self._buffer.waiting)

    @property
    def is_used_up(self) -> bool:
        """True if ``max_tasks`` have been claimed."""
        return not self._left

    def capacity(self) -> Capacity:
        """Return how many tasks fit now."""
        capacity = Capacity(
            dedicated=self._slots.free,
            prefetch=self._prefetch.ahead(self._slots.held) if self._may_prefetch else 0,
            limit=int(min(self._left, self._recycling.room(self.count))),
            short_names=self._prefetch.short,
        )
        return self._parts.limited(self._portions.widened(capacity))

    @property
    def gathers_until(self) -> float:
        """End of the wait for more free slots in a backlog, by ``time.monotonic()``; 0 = do not wait."""
        return self._gathering.until

    @property
    def soon_free(self) -> int:
        """Number of slots that will soon be free, judged by how long short tasks take."""
        return self._gathering.soon_free

    def beside_apart(self, capacity: Capacity, *, served: bool) -> Capacity:
        """Return the capacity while rows apart wait for a slot. Prefetched tasks must not fill every slot.

        Args:
            served: True if the last turn claimed rows apart.
        """
        if self._portions.are_calls:
            return capacity  # a call takes one slot
        most = self._prefetch.beside_apart if served else 0
        return capacity._replace(prefetch=min(capacity.prefetch, most))

    @property
    def may_scan(self) -> bool:
        """False while enough is prefetched; hinted tasks may still be claimed."""
        return not self._prefetch.is_enough(self._slots.held)

    @property
    def _may_prefetch(self) -> bool:
        """False while long tasks occupy all slots, because an idle worker starts the task sooner."""
        return not self._blocked and bool(
            self._slots.free or self._slots.are_handed(self._prefetch.short)
        )

    def accept(self, claimed: list[Attempt]) -> list[Attempt]:
        """Count claimed tasks; return the attempts that may start."""
        claimed = self._slots.in_hand.without_second(claimed, self._buffer.keys())
        self._counted(len(claimed))
        return claimed

    def start(self, attempts: list[Attempt], good_until: float) -> None:
        """Hand attempts to slots.

        Args:
            good_until: time by ``time.monotonic()`` after which an attempt must not begin, because its claim is
                too old.
        """
        for run, is_call in self._portions.of(attempts, self._prefetch.runs):
            (self._slots.start_call if is_call else self._slots.start)(run, good_until)

    def learn(self, result: TurnResult, capacity: Capacity, seconds: float) -> None:
        """Update from a turn the sizes of the next claims.

        Args:
            capacity: the capacity of that turn.
            seconds: the duration of that turn.
        """
        self._gathering.turn_ended(len(result.claimed), capacity.dedicated, seconds)
        self._blocked = self._blocked or result.blocked_queue is not None
        if result.claimed and capacity.prefetch and not self._portions.are_calls:
            self._prefetch.learn(result.claimed)
        if result.apart is None:
            self._portions.learn(result.claimed, self._prefetch.short)

    def collect(self) -> Collected:
        """Move ended attempts from the slots to the buffer, and release attempts that wait too long for a slot."""
        timed = self._slots.collect()
        self._parts.collected(timed)
        ended = [one for one, _ in timed]
        self._counted(-sum([one.arrow is Arrow.RELEASE for one in ended]))  # these have not begun
        self._buffer.add(ended)
        self._gathering.collected()
        if ended:
            self._blocked = self._blocked and not self._slots.free
        stalled = self._slots.release(stalled=True)
        self._blocked = self._blocked or bool(stalled)
        in_hand = self._slots.in_hand
        again = in_hand.release_kept_back(self._buffer.keys()) if in_hand.kept_back else []
        self._counted(len(again))  # they were not counted when they were kept back
        self.release(stalled + again)
        return Collected(bool(ended), bool(stalled or again))

    def release(self, attempts: list[Attempt]) -> None:
        """Release attempts that have not begun, so that another slot or worker may begin them at once."""
        self._counted(-len(attempts))
        if attempts:
            self._parts.taken_back(attempts)
        self._buffer.add(Ended(attempt=one, arrow=Arrow.RELEASE) for one in attempts)

    def _counted(self, number: int) -> None:
        self.count += number
        self._left -= number
