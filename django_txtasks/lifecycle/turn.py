"""A worker's turn as data: what it asks of the database, and what came of it.

All of it is frozen: whoever learns something from a turn returns it, and changes no record of another room.
"""

from __future__ import annotations

import enum
import sys
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, NamedTuple

from django_txtasks.database.execute import as_uuid
from django_txtasks.declarations import values
from django_txtasks.lifecycle.attempts import Attempt, Ended, Recorded, read_entries


class Bucket(NamedTuple):
    """The pending rows of one priority and one queue: a scan goes from bucket to bucket."""

    priority: int
    queue_name: str


class Cursor(NamedTuple):
    """The place of a row in the order of its bucket, which is that of (run_after, id)."""

    due_at: str
    task_id: uuid.UUID


Cursors = Mapping[Bucket, Cursor]
"""The last row of each bucket that scans have claimed: the next scan goes on behind it."""


@dataclass(frozen=True)
class Subscription:
    """The rows that a worker may take: those of these queues whose task function it knows."""

    alias: str
    queues: tuple[str, ...]
    names: tuple[str, ...]


class Capacity(NamedTuple):
    """The number of tasks that a worker can take.

    Attributes:
        dedicated: tasks that get a slot of their own.
        prefetch: more of those that are short and may run again: they may wait for a slot.
        limit: upper bound of both together.
        short_names: names of tasks that are short here.
    """

    dedicated: int
    prefetch: int = 0
    limit: int = sys.maxsize
    short_names: frozenset[str] = frozenset()

    @property
    def width(self) -> int:
        """How many tasks fit."""
        return min(self.dedicated + self.prefetch, self.limit)

    def admit(self, attempts: Iterable[Attempt]) -> Admission:
        """Choose those that fit, in their order: none overtakes one that finds no slot.

        PostgreSQL's statement of a turn has the same rule in SQL: see ``engines.postgresql``.
        """
        admitted: list[Attempt] = []
        dedicated, prefetch = self.dedicated, self.prefetch
        blocked_queue = None
        for attempt in attempts:
            if len(admitted) >= self.limit or not (dedicated or prefetch):
                break
            if prefetch and attempt.may_share and attempt.task_name in self.short_names:
                prefetch -= 1
            elif dedicated:
                dedicated -= 1
            else:
                blocked_queue = attempt.queue_name
                break
            admitted.append(attempt)
        rest = Capacity(dedicated, prefetch, self.limit - len(admitted), self.short_names)
        return Admission(admitted, rest, blocked_queue)


class Admission(NamedTuple):
    """The attempts that fit, the capacity that is left, and the queue whose first task found no slot."""

    attempts: list[Attempt]
    rest: Capacity
    blocked_queue: str | None


class Candidate(NamedTuple):
    """A pending row that a worker may claim. Its fields are the columns of ``statements.CHOOSE_DUE``
    and ``CHOOSE_BY_ID``.

    Attributes:
        lane: empty = in none.
        batch: None = in none.
        merge_key: its unique key, if it has one and has not begun; see ``merging``.
        may_share: it may be handed to a slot together with others.
        has_ended: its id stands in history; None = it does not, as for all rows that this package writes.
        due_at: ``run_after`` as text, with which a cursor is made.
        wait: seconds until it is due; zero or less = due.
    """

    id: Any
    task_name: str
    queue_name: str
    args: str
    kwargs: str
    attempt: int
    failures: int
    crashes: int
    max_attempts: int
    errors: str
    timeout: float | None
    hooks: str
    snoozes: int
    lane: str
    batch: Any
    merge_key: Any
    may_share: Any
    has_ended: Any
    due_at: str
    wait: Any

    def attempt_of(self, worker: uuid.UUID) -> Attempt:
        """Return the attempt that claims this row."""
        is_limit = self.timeout is None or values.is_time_limit(self.timeout)
        return Attempt(
            task_id=as_uuid(self.id),
            number=self.attempt + 1,
            worker=worker,
            task_name=self.task_name,
            queue_name=self.queue_name,
            args=self.args,
            kwargs=self.kwargs,
            failures=self.failures,
            crashes=self.crashes,
            max_attempts=self.max_attempts,
            errors=read_entries(self.errors),
            timeout=self.timeout if is_limit else None,
            hooks=self.hooks,
            may_share=bool(self.may_share),
            snoozes=self.snoozes,
            lane=self.lane,
            batch=self.batch,
            has_ended=bool(self.has_ended),
        )

    @property
    def has_key(self) -> bool:
        """Whether it is merged with others of its unique key; in a lane that is the lane's business."""
        return self.merge_key is not None and not self.lane

    @property
    def cursor(self) -> Cursor:
        """The place of this row in its bucket."""
        return Cursor(self.due_at, as_uuid(self.id))


class RecentWindow(NamedTuple):
    """The part of what is due that a scan looks at where all would take long.

    An old snapshot may keep millions of dead rows.

    Attributes:
        buckets: where to look, highest priority first; it does not ask which there are.
        seconds: look at what became due in this time, where there is no cursor to go on from.
    """

    buckets: tuple[Bucket, ...]
    seconds: float


@dataclass(frozen=True)
class Scan:
    """A look for what is due: for all of it, or for a part.

    Attributes:
        queues: at the same priority, those that come first here come first.
        cursors: go on behind these rows.
        recent: look at this only, and keep the cursors.
        seconds: how long looking may take, all in all.
        ageing: seconds after which a task that is due gains a step of priority; None = it does not.
    """

    queues: tuple[str, ...]
    cursors: Cursors = field(default_factory=dict)
    recent: RecentWindow | None = None
    seconds: float = float(sys.maxsize)
    ageing: float | None = None

    def ended(
        self, passed: Cursors, *, filled: bool, blocked_queue: str | None
    ) -> tuple[Cursors, bool]:
        """Return the cursors after this scan, and whether there may be more that is due.

        Args:
            passed: the last row of each bucket that it has claimed.
            filled: it has found as many rows as fit.
        """
        if filled or blocked_queue is not None or self.recent is not None:
            return {**self.cursors, **passed}, filled
        return {}, bool(self.cursors)  # there may be more before the cursors


@dataclass(frozen=True)
class TurnRequest:
    """The claims that a turn is to make.

    Attributes:
        hinted: look these ids up.
        scan: None = look the ids up only.
    """

    capacity: Capacity
    hinted: Sequence[uuid.UUID] = ()
    scan: Scan | None = None


class TurnOrder(NamedTuple):
    """A whole turn for an engine: the beat, what ended, and the claim.

    Attributes:
        state: what the beat writes into the worker's row, from ``workers.state_of``.
        ended: attempts to finish; see ``engines.fits``.
        keep: whether history keeps the finished rows.
        limit: see ``own_transaction``; on MariaDB the session has it already.
    """

    subscription: Subscription
    worker: uuid.UUID
    state: Mapping[str, Any]
    request: TurnRequest
    ended: Sequence[Ended]
    keep: bool
    limit: timedelta


class Keys(enum.Enum):
    """The rows with a unique key that a turn has met. Only ``portable`` claims them, because it merges them."""

    NONE = "none"
    """It has met none."""
    CLAIMED = "claimed"
    """It has merged and claimed those that were free."""
    LEFT_FOR_NEXT_TURN = "left for next turn"
    """It cannot merge, so the next turn claims them, by ``portable``."""


class ScanResult(NamedTuple):
    """The result of a scan.

    Attributes:
        cursors: the last row that was claimed in each bucket; the next scan goes on behind it.
        backlog: it may not have seen all that is due.
        is_held_up: it has claimed nothing, because other transactions have locked the rows, or rows of their keys.
        is_partial: it has looked at a part of what is due.
        is_unfinished: the next turns look at the other parts.
    """

    cursors: Cursors
    backlog: bool
    is_held_up: bool = False
    is_partial: bool = False
    is_unfinished: bool = False


@dataclass(frozen=True)
class TurnResult:
    """The result of a turn.

    Attributes:
        rest: the capacity that is left.
        claimed: by the scan and by hints, in this order.
        looked_up: the ids of the request.
        later: of these, pending but not claimed: seconds until they are due; zero = no slot was free.
        in_lanes: of these, due, and their lanes by name: when they start, their lane decides.
        absent: of these, no row, live or finished: perhaps one that is not committed yet.
        scan: None = the turn has not scanned.
        blocked_queue: the first task of this queue that is due found no slot; None = none was in need of one.
        recorded: what became of the outcomes.
        lanes: what it has learned of lanes, if it has served them.
        is_suspected: see ``workers.Beat``.
    """

    rest: Capacity
    claimed: list[Attempt] = field(default_factory=list)
    looked_up: Sequence[uuid.UUID] = ()
    later: Mapping[uuid.UUID, float] = field(default_factory=dict)
    in_lanes: Mapping[uuid.UUID, str] = field(default_factory=dict)
    absent: Sequence[uuid.UUID] = ()
    scan: ScanResult | None = None
    keys: Keys = Keys.NONE
    blocked_queue: str | None = None
    recorded: Recorded = field(default_factory=Recorded)
    lanes: Any = None
    is_suspected: bool = False

    @property
    def has_scanned(self) -> bool:
        """Whether the turn has scanned."""
        return self.scan is not None

    @property
    def has_more(self) -> bool:
        """Whether the scan found as many tasks as there was room for, so there may be more."""
        return self.scan is not None and (self.scan.backlog or self.blocked_queue is not None)

    @property
    def settled(self) -> set[uuid.UUID]:
        """The ids that need no other look by this worker, but for those that are due and found no slot."""
        return set(self.looked_up) - {one for one, wait in self.later.items() if wait <= 0}

    @property
    def not_ours(self) -> set[uuid.UUID]:
        """The ids whose rows are there, and not to be claimed here: others hold them, or declare their
        function, or a condition of what may be claimed keeps them."""
        if not self.looked_up:
            return set()
        ours = {attempt.task_id for attempt in self.claimed}
        known = ours | self.later.keys() | self.in_lanes.keys()
        return set(self.looked_up) - known - set(self.absent)


def waits_of(candidates: Iterable[Candidate], claimed: Iterable[Attempt]) -> dict[uuid.UUID, float]:
    """Return the seconds until each of the rows is due that were not claimed, but for those that wait in lanes."""
    taken = {attempt.task_id for attempt in claimed}
    waits = {
        as_uuid(one.id): max(0.0, float(one.wait))
        for one in candidates
        if one.wait > 0 or not one.lane
    }
    return {task_id: wait for task_id, wait in waits.items() if task_id not in taken}
