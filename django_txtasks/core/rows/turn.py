"""A worker's turn as data: the request to the database, and the result.

All records are frozen: code that learns from a turn returns a new record.
"""

from __future__ import annotations

import enum
import sys
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any, NamedTuple

from django_txtasks.core.declaring import registry, values
from django_txtasks.core.rows import statements
from django_txtasks.core.rows.attempts import Attempt, Ended, Recorded, read_entries
from django_txtasks.core.rows.claim_parts import parts
from django_txtasks.database.execute import as_uuid


class Bucket(NamedTuple):
    """The pending rows of one priority and one queue. A scan goes from bucket to bucket."""

    priority: int
    queue_name: str


class Cursor(NamedTuple):
    """The place of a row in its bucket, whose rows are in the order of (run_after, id)."""

    due_at: str
    task_id: uuid.UUID


Cursors = Mapping[Bucket, Cursor]
"""The last row that scans have claimed in each bucket. The next scan goes on behind it."""


class Kind(enum.Enum):
    """The kind of a worker, which decides about last chances after a crash: see ``statements.OF_KIND``."""

    EVERY = "every"
    """It runs each task. It takes a last chance if it holds nothing else."""
    BESIDE = "beside"
    """It runs tasks in threads, and leaves last chances to the processes that its supervisor starts for them."""
    LOOP = "loop"
    """It runs async functions on one event loop, and leaves last chances as well."""
    ALONE = "alone"
    """It runs last chances only, one at a time."""


LOOP_MARK, LEAVES_LAST, TAKES_LAST = "@loop", "@leaves last chances", "@takes last chances"
ALONE_MARK = "@alone"
"""Marks among the names in a worker's row: it runs an event loop; it leaves last chances; it takes them from such
workers; it runs nothing else. No task has such a name."""

_MARKS = {
    Kind.BESIDE: (LEAVES_LAST,),
    Kind.LOOP: (LOOP_MARK, LEAVES_LAST),
    Kind.ALONE: (ALONE_MARK, TAKES_LAST),
}


@dataclass(frozen=True)
class Subscription:
    """The rows that a worker may claim: in its queues, with a task function that it knows."""

    alias: str
    queues: tuple[str, ...]
    names: tuple[str, ...]
    kind: Kind = Kind.EVERY

    @property
    def is_loop(self) -> bool:
        """True if one event loop runs the tasks."""
        return self.kind is Kind.LOOP

    @property
    def takes_last(self) -> bool:
        """True if it takes last chances after a crash."""
        return self.kind in (Kind.EVERY, Kind.ALONE)

    @property
    def beside_others(self) -> Subscription:
        """The rows that run beside others, of a worker that takes last chances when it holds nothing else."""
        return replace(self, kind=Kind.BESIDE) if self.kind is Kind.EVERY else self

    @property
    def alone(self) -> Subscription:
        """The last chances after a crash."""
        return replace(self, kind=Kind.ALONE)

    @property
    def declared(self) -> list[str]:
        """The names in the worker's row, with the marks of its kind."""
        return [*sorted(self.names), *_MARKS.get(self.kind, ())]

    @property
    def hint_queues(self) -> list[str]:
        """The names of the queues whose hints it takes: see ``registry.hint_queue``."""
        plain = [] if self.is_loop else list(self.queues)
        takes_async = any(map(registry.is_async, self.names))
        return plain + [f"{registry.ASYNC_QUEUE}{one}" for one in self.queues if takes_async]

    def claiming(self, sql: str) -> str:
        """Return a statement of ``_CLAIMABLE`` for this kind of worker, with the headers if a part reads them."""
        for reads in parts().reads_headers:
            if reads():
                sql = sql.replace(statements.LAST_COLUMNS, statements.WITH_HEADERS)
                break
        of_kind = statements.OF_KIND.get(self.kind.value)
        return sql if of_kind is None else sql.replace(statements.OF_NAMES, of_kind)

    @property
    def claimable(self) -> dict[str, tuple[str, ...]]:
        """The parameters of ``claiming``."""
        return {"names": self.names}


def is_last_chance(crashes: int, max_crashes: int) -> bool:
    """Return True if the next attempt is the last allowed one after a crash: see ``statements.OF_KIND``."""
    return crashes > 0 and crashes >= max_crashes - 1


class Capacity(NamedTuple):
    """The number of tasks that a worker can claim now.

    Attributes:
        dedicated: number of tasks that get a slot of their own.
        prefetch: number of further tasks, which may wait for a slot: short tasks that may run again.
        limit: upper bound of both together.
        short_names: names of the task functions that take a short time in this worker.
    """

    dedicated: int
    prefetch: int = 0
    limit: int = sys.maxsize
    short_names: frozenset[str] = frozenset()

    @property
    def width(self) -> int:
        """Number of tasks that fit."""
        return min(self.dedicated + self.prefetch, self.limit)

    def admit(self, attempts: Iterable[Attempt]) -> Admission:
        """Choose the attempts that fit. The order is strict: no attempt overtakes another that finds no slot.

        PostgreSQL's statement of a turn has the same rule in SQL: see ``fast.postgresql``.
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
        lane: empty = in no lane.
        batch: None = in no batch.
        merge_key: the unique key, if the row has one and has not begun; see ``ClaimPart.pick``.
        may_share: whether it may be handed to a slot together with other tasks.
        has_ended: whether history has a task of this id. None = no, as for all rows that this package writes.
        due_at: ``run_after`` as text, for a cursor.
        wait: seconds until it is due; zero or less = due.
        headers: JSON text, read only if a part reads it; see ``Subscription.claiming``.
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
    headers: str | None = None

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
            wait=self.wait,
            headers=self.headers,
        )

    @property
    def has_key(self) -> bool:
        """True if a claim must merge it with other rows of its key. Rows in a lane are left to lane turns."""
        return self.merge_key is not None and not self.lane

    @property
    def cursor(self) -> Cursor:
        """The place of this row in its bucket."""
        return Cursor(self.due_at, as_uuid(self.id))


class RecentWindow(NamedTuple):
    """The part of the due rows that a scan reads if reading all of them takes too long.

    An old snapshot may keep millions of dead rows.

    Attributes:
        buckets: the buckets to read, highest priority first; the scan does not ask for others.
        seconds: in a bucket without a cursor, the age in seconds up to which due rows are read.
    """

    buckets: tuple[Bucket, ...]
    seconds: float


@dataclass(frozen=True)
class Scan:
    """A search for due rows: for all of them, or for a part.

    Attributes:
        queues: at the same priority, rows of an earlier queue come first.
        cursors: go on behind these rows.
        recent: read only this part, and keep the cursors; None = read all due rows.
        seconds: limit for all statements of the scan together.
        ageing: seconds after which the priority of a due task increases by 1; None = never.
    """

    queues: tuple[str, ...]
    cursors: Cursors = field(default_factory=dict)
    recent: RecentWindow | None = None
    seconds: float = float(sys.maxsize)
    ageing: float | None = None

    def ended(
        self, passed: Cursors, *, filled: bool, blocked_queue: str | None
    ) -> tuple[Cursors, bool]:
        """Return the cursors after this scan, and whether more rows may be due.

        Args:
            passed: the last row that it has claimed in each bucket.
            filled: whether it has found as many rows as fit.
        """
        if filled or blocked_queue is not None or self.recent is not None:
            return {**self.cursors, **passed}, filled
        return {}, bool(self.cursors)  # more rows may be due before the cursors


@dataclass(frozen=True)
class TurnRequest:
    """The claims that a turn is to make.

    Attributes:
        hinted: ids to look up.
        scan: None = only look the ids up.
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
    """It has merged and claimed the rows that no other transaction had locked."""
    LEFT_FOR_NEXT_TURN = "left for next turn"
    """It cannot merge, so the next turn claims them, by ``portable``."""


class ScanResult(NamedTuple):
    """The result of a scan.

    Attributes:
        cursors: the last row that was claimed in each bucket; the next scan goes on behind it.
        backlog: there may be more due rows.
        is_held_up: it has claimed nothing, because other transactions have locked the rows, or rows of their keys.
        is_partial: it has read only a part of the due rows.
        is_unfinished: the next turns read the other parts.
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
        later: for looked-up rows that are pending and not claimed, the seconds until they are due; zero = no slot
            was free.
        in_lanes: for looked-up rows that are due in a lane, the name of the lane, which decides when they start.
        absent: looked-up ids without a row, live or finished. The row may not be committed yet.
        scan: None = the turn has not scanned.
        blocked_queue: the queue whose first due task found no slot; None = no task was left without a slot.
        recorded: the result of recording the ended attempts.
        apart: what the turn has learned of rows apart; None = it has claimed other rows.
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
    apart: Any = None
    is_suspected: bool = False

    @property
    def has_scanned(self) -> bool:
        """True if the turn has scanned."""
        return self.scan is not None

    @property
    def has_more(self) -> bool:
        """True if the scan has found as many tasks as fit, so that more may be due."""
        return self.scan is not None and (self.scan.backlog or self.blocked_queue is not None)

    @property
    def settled(self) -> set[uuid.UUID]:
        """The ids that this worker need not look up again: all except due rows without a slot."""
        return set(self.looked_up) - {one for one, wait in self.later.items() if wait <= 0}

    @property
    def not_ours(self) -> set[uuid.UUID]:
        """The ids whose rows exist but are not for this worker. Another worker has claimed them or declares
        their function, or a condition of the claim excludes them."""
        if not self.looked_up:
            return set()
        ours = {attempt.task_id for attempt in self.claimed}
        known = ours | self.later.keys() | self.in_lanes.keys()
        return set(self.looked_up) - known - set(self.absent)


def waits_of(candidates: Iterable[Candidate], claimed: Iterable[Attempt]) -> dict[uuid.UUID, float]:
    """Return the seconds until each row that was not claimed is due. Due rows in lanes are left out."""
    taken = {attempt.task_id for attempt in claimed}
    waits = {
        as_uuid(one.id): max(0.0, one.wait) for one in candidates if one.wait > 0 or not one.lane
    }
    return {task_id: wait for task_id, wait in waits.items() if task_id not in taken}
