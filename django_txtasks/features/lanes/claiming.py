"""Claims in lanes, whose tasks share limits. The claimed rows are counted, so a crash can leak no count.

A turn for lanes locks the rows of some lanes, and then counts the claimed tasks of each in a new statement. No
other worker can claim in these lanes until the turn commits: it skips locked lanes, and tries them again soon.
Enqueueing never touches a lane's row.

If more tasks are due than there is room for, higher priorities come first. At the same priority, the lane with the
lowest virtual time is next: service received / weight (start-time fair queueing; Goyal, Vin and Cheng, 1996).
"""

from __future__ import annotations

import heapq
import math
import uuid
from collections import Counter, deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any, NamedTuple

from django_txtasks.core.rows.attempts import Attempt
from django_txtasks.core.rows.buckets import paused_queues
from django_txtasks.core.rows.engines.portable import KEY_SECONDS, choosing, claim_rows
from django_txtasks.core.rows.statements import AFTER_CURSOR, CHOOSE_IN_LANE
from django_txtasks.core.rows.turn import Bucket, Candidate, Capacity, Subscription
from django_txtasks.database.execute import execute, fetch, fetch_as, fetch_column, fetch_value
from django_txtasks.database.time_limits import fetch_within
from django_txtasks.exceptions import ConfigError
from django_txtasks.features.lanes import statements
from django_txtasks.features.lanes.buckets import LaneBucket, buckets_of, look
from django_txtasks.features.lanes.rules import MOST_AT_ONCE, LaneRule, LaneRules, parse_value

AT_ONCE = 20
"""Number of lanes that one turn locks at most."""
BUSY_SECONDS = 0.02
"""Seconds until a lane is tried again if another transaction has locked its row."""
FULL = float("inf")
"""Wait of a lane that is full or paused: the time until it has room is unknown."""
TURN_SECONDS = 1.0
"""Limit in seconds for a statement that chooses rows of a lane; the next turn tries again."""


class LaneState(NamedTuple):
    """State of a lane after a turn.

    Attributes:
        virtual_time: that of the lane: service received / weight.
        wait: seconds until the lane should be tried again. Zero = more tasks may be due; None = no task is due;
            ``FULL`` = when a task of the lane ends.
        priority: priority of the next due row; None = unknown.
        is_barren: whether rows are due, but none that this worker may claim.
        is_closed: whether its rate, or a wait that a task has asked for, closes the lane until then.
    """

    virtual_time: float
    wait: float | None
    priority: int | None = None
    is_barren: bool = False
    is_closed: bool = False


@dataclass(frozen=True)
class LanesRequest:
    """The claims in lanes that a turn is to make.

    Attributes:
        names: the lanes in which tasks may be due.
        room: number of tasks to claim at most.
        rules: the rules of the settings.
        served: the virtual time of the fair order that this worker knows; None = read it.
        new: names of lanes that may have no row yet.
        look_behind: search for lanes with due tasks after this lane; None = do not search.
    """

    names: Sequence[str]
    room: int
    rules: LaneRules
    served: float | None = None
    new: Collection[str] = ()
    look_behind: str | None = None


@dataclass(frozen=True)
class LanesResult:
    """The result of a turn for lanes.

    Attributes:
        states: a ``LaneState`` for each requested lane that no other transaction has locked.
        served: the virtual time of the fair order: no lane begins before it.
        found: buckets of lanes, from the search for lanes with due tasks.
        looked_until: the last lane of that search; empty = all lanes were read.
        has_looked: whether there was such a search.
    """

    states: Mapping[str, LaneState] = field(default_factory=dict)
    served: float = 0.0
    found: Sequence[LaneBucket] = ()
    looked_until: str = ""
    has_looked: bool = False


LANES_PER_LOOK = 500
"""Number of lanes that are read together to delete the unused ones."""


class LaneRow(NamedTuple):
    """The columns of ``statements.LOCK_LANES``; times are in seconds."""

    name: str
    at_most: int | None
    rate: str
    burst: int | None
    weight: float | None
    is_paused: Any
    permits: Any
    idle: Any
    virtual_time: Any
    held: Any
    seen_at: str

    @property
    def override(self) -> dict[str, Any]:
        """The limits that a person has set instead of the settings. Invalid ones are left out."""
        asked = {"at_most": self.at_most, "rate": self.rate, "burst": self.burst}
        return sound_values({**asked, "weight": self.weight})


def sound_values(asked: Mapping[str, Any]) -> dict[str, Any]:
    """Return the valid values of a lane, in the form of ``LaneRule``."""
    values = {}
    for key, value in asked.items():
        if value not in (None, ""):
            try:
                values[key] = parse_value(key, value, key)
            except ConfigError:
                continue
    return values


def rule_of(rules: LaneRules, row: LaneRow) -> LaneRule:
    """Return the rule of a lane: the limits that a person has set, else those of the settings."""
    return (rules.find(row.name) or LaneRule()).changed_by(row.override)


def sound(value: Any, default: float) -> float:
    """Return a number of a lane's row, or the default if the value is no finite number."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        return default
    return number if math.isfinite(number) else default


def create(alias: str, names: Collection[str]) -> None:
    """Write rows for lanes that have none, outside of a transaction, so that no other session waits for it."""
    known = set(fetch_column(alias, statements.KNOWN_LANES, names=sorted(names))) if names else ()
    missing = sorted(set(names) - set(known))
    if missing:
        params = {f"lane_{n}": name for n, name in enumerate(missing)}
        rows = ", ".join(f"(%({name})s, {{now}})" for name in params)
        execute(alias, statements.NEW_LANES.replace("{rows}", rows), **params)


def greatest_virtual_time(alias: str) -> float:
    """Return the virtual time of the fair order. A worker that has not served lanes yet begins there."""
    return sound(fetch_value(alias, statements.GREATEST_VIRTUAL_TIME), 0.0)


def hold(alias: str, name: str, delay: timedelta) -> None:
    """Start no task of a lane for ``delay``. A longer wait that it already has stays."""
    execute(alias, statements.HOLD_LANE, name=name, delay=delay.total_seconds())


def forget(alias: str, age: timedelta, rules: LaneRules, behind: str = "") -> tuple[int, str]:
    """Delete the rows of lanes that no worker has needed for ``age``, and that no person has changed.

    A row stays as long as its token bucket is not full, because a lane without a row begins with a full one.

    Args:
        behind: read the next ``LANES_PER_LOOK`` lanes after this name.

    Returns:
        The number of deleted rows, and the name after which to go on; empty = all lanes were read.
    """
    seconds = age.total_seconds()
    found = fetch(alias, statements.UNUSED_LANES, age=seconds, behind=behind, limit=LANES_PER_LOOK)
    full = [
        name
        for name, permits, idle in found
        if is_full(permits, idle, rules.find(name) or LaneRule())
    ]
    count = execute(alias, statements.FORGET_LANES, age=seconds, names=full) if full else 0
    return count, found[-1][0] if len(found) == LANES_PER_LOOK else ""


def turn(
    subscription: Subscription, worker: uuid.UUID, request: LanesRequest
) -> tuple[list[Attempt], LanesResult]:
    """Claim as ``claim`` does, and search for lanes with due tasks if the request asks for it."""
    claimed, result = claim(subscription, worker, request)
    if request.look_behind is not None:
        found, until = look(subscription.alias, request.look_behind)
        result = replace(result, found=found, looked_until=until, has_looked=True)
    return claimed, result


def claim(
    subscription: Subscription, worker: uuid.UUID, request: LanesRequest
) -> tuple[list[Attempt], LanesResult]:
    """Move PENDING -> claimed in the lanes of a request: as many tasks as fit.

    It must run in a transaction that began with the worker's beat, and in which each statement sees all earlier
    commits: see ``own_transaction``.
    """
    alias, names, room = subscription.alias, request.names, request.room
    served = greatest_virtual_time(alias) if request.served is None else request.served
    rows = fetch_as(LaneRow, alias, statements.LOCK_LANES, names=list(names)) if names else []
    counts = _claimed(alias, rows)
    states: dict[str, LaneState] = {}
    paused = paused_queues(alias)
    queues = [one for one in subscription.queues if one not in paused]
    offers: list[_Offer] = []
    for row in rows:
        rule = rule_of(request.rules, row)
        allowed, wait = allowed_now(row, rule, counts[row.name])
        states[row.name] = LaneState(sound(row.virtual_time, 0.0), wait, is_closed=not allowed)
        if sound(row.idle, 0.0) < 0:  # the clock was set back: time counts from now on
            _write(alias, row, sound(row.virtual_time, 0.0), permits_now(row, rule))
        if allowed:
            offers.append(_Offer(subscription, queues, _Open(row, rule, allowed), served))
    chosen = _in_fair_order(offers, room)
    claimed = claim_rows(subscription, worker, chosen, Capacity(room)).attempts
    taken = Counter(attempt.lane for attempt in claimed)
    for offer in offers:
        states[offer.name] = _settle(alias, offer, taken[offer.name], counts[offer.name])
    return claimed, LanesResult(states, _served(served, offers, states, taken))


def _served(
    before: float,
    offers: Sequence[_Offer],
    states: Mapping[str, LaneState],
    taken: Mapping[str, int],
) -> float:
    """Return the virtual time of the fair order: at most that of a lane that could have been served and was not.

    If every due task was claimed or may not start, it is the virtual time of the last claimed task.
    """
    left = [states[one.name].virtual_time for one in offers if states[one.name].wait == 0]
    if left:
        return max(before, min(left))
    ends = [
        states[one.name].virtual_time - 1 / one.rule.weight for one in offers if taken[one.name]
    ]
    return max([before, *ends])


def claim_any(subscription: Subscription, worker: uuid.UUID, room: int) -> list[Attempt]:
    """Move PENDING -> claimed in any lanes, without their limits, for callers that run one task at a time."""
    found, _ = look(subscription.alias, "")
    names = sorted({one.lane for one in found if one.wait <= 0})
    paused = paused_queues(subscription.alias)
    queues = [one for one in subscription.queues if one not in paused]
    open_ = [_Open(_row_of(name), LaneRule(), room) for name in names]
    offers = [_Offer(subscription, queues, one, 0.0) for one in open_]
    chosen = _in_fair_order(offers, room)
    return claim_rows(subscription, worker, chosen, Capacity(room)).attempts


def _row_of(name: str) -> LaneRow:
    return LaneRow(name, None, "", None, None, False, None, None, 0.0, None, "")


def _claimed(alias: str, rows: Sequence[LaneRow]) -> Counter[str]:
    """Count the claimed tasks of each lane, in a later statement than their lock."""
    if not rows:
        return Counter()
    found = fetch(alias, statements.CLAIMED_IN_LANES, names=[row.name for row in rows])
    return Counter(dict(found))


def allowed_now(row: LaneRow, rule: LaneRule, claimed: int) -> tuple[int, float]:
    """Return the number of tasks that may start; if it is zero, also the seconds until one may, or ``FULL``."""
    if row.is_paused:
        return 0, FULL
    if held := held_for(row):
        return 0, held
    room = MOST_AT_ONCE if rule.at_most is None else rule.at_most - claimed
    if room <= 0:
        return 0, FULL
    if rule.rate is not None:
        permits = permits_now(row, rule)
        if permits < 1:
            return 0, (1 - permits) / rule.rate
        room = min(room, int(permits))
    return room, 0.0


def held_for(row: LaneRow) -> float:
    """Return the rest of the wait that a task of the lane has asked for, in seconds."""
    return max(0.0, sound(row.held, 0.0))


def permits_now(row: LaneRow, rule: LaneRule) -> float:
    """Return the number of starts that a lane's rate allows now. A clock that was set back adds no permits."""
    return _permits(row.permits, row.idle, rule)


def is_full(permits: Any, idle: Any, rule: LaneRule) -> bool:
    """Say whether the lane's token bucket is full, ``idle`` seconds after the lane was served."""
    return _permits(permits, idle, rule) >= rule.most_permits


def _permits(permits: Any, idle: Any, rule: LaneRule) -> float:
    most = rule.most_permits
    if permits is None or rule.rate is None:
        return most
    return min(most, sound(permits, most) + max(0.0, sound(idle, 0.0)) * rule.rate)


class _Open(NamedTuple):
    """A lane, and the number of its tasks that may start."""

    row: LaneRow
    rule: LaneRule
    allowed: int


class _Offer:
    """A lane whose tasks may start now: its due rows, bucket by bucket."""

    def __init__(
        self,
        subscription: Subscription,
        queues: Sequence[str],
        lane: _Open,
        served: float,
    ) -> None:
        self.row, self.rule, self.allowed = lane
        self.name = self.row.name
        self.own = sound(self.row.virtual_time, 0.0)
        self.start = self.virtual_time = max(self.own, served)
        self.has_chosen = False
        self._subscription = subscription
        ours = [
            one for one in buckets_of(subscription.alias, self.name) if one.queue_name in queues
        ]
        due = [one for one in ours if one.wait <= 0]
        self._buckets = deque(
            sorted(due, key=lambda one: (-one.priority, queues.index(one.queue_name)))
        )
        self.was_due = bool(due)
        self._rows: deque[Candidate] = deque()
        self._last: Candidate | None = None
        self._has_more = True
        self.next_due = min((one.wait for one in ours if one.wait > 0), default=None)

    @property
    def priority(self) -> int | None:
        """Priority of its next row; None = there is no other row."""
        return self._buckets[0].priority if self._buckets else None

    def take(self, share: int) -> Candidate | None:
        """Return the next row, locked; None = the bucket has no other row.

        Args:
            share: number of rows that one statement reads.
        """
        if not self._rows:
            limit = min(share, self.allowed)
            self._rows.extend(self._choose(self._buckets[0], limit))
            self._has_more = len(self._rows) == limit
        row = self._last = self._rows.popleft() if self._rows else None
        if not (self._rows or self._has_more):
            self._buckets.popleft()
            self._last = None
        if row is not None:
            self.has_chosen = True
            self.allowed -= 1
            self.virtual_time += 1 / self.rule.weight
        return row

    def _choose(self, bucket: LaneBucket, limit: int) -> list[Candidate]:
        after, behind = "", {}
        if self._last is not None:
            after, cursor = AFTER_CURSOR, self._last.cursor
            behind = {"mark_time": cursor.due_at, "mark_id": cursor.task_id}
        rows = fetch_within(
            self._subscription.alias,
            self._subscription.claiming(CHOOSE_IN_LANE.replace("{after}", after)),
            TURN_SECONDS,
            lane=self.name,
            **choosing(self._subscription, Bucket(bucket.priority, bucket.queue_name), limit),
            **behind,
        )
        return [Candidate(*row) for row in rows]


def _in_fair_order(offers: Sequence[_Offer], room: int) -> list[Candidate]:
    """Choose the rows that fit: higher priorities first, then lanes with a lower virtual time."""
    chosen: list[Candidate] = []
    share = -(-room // len(offers)) if offers else 0
    order = [_rank(offer) for offer in offers if offer.priority is not None]
    heapq.heapify(order)
    while order and len(chosen) < room:
        *_, offer = heapq.heappop(order)
        row = offer.take(share)
        if row is not None:
            chosen.append(row)
        if offer.allowed and offer.priority is not None:
            heapq.heappush(order, _rank(offer))
    return chosen


def _rank(offer: _Offer) -> tuple[int, float, float, str, _Offer]:
    return -(offer.priority or 0), offer.virtual_time, offer.own, offer.name, offer


def _settle(alias: str, offer: _Offer, taken: int, claimed: int) -> LaneState:
    """Write the claimed tasks into the lane's row, and return the new state of the lane."""
    row, rule = offer.row, offer.rule
    virtual_time = offer.start + taken / rule.weight
    left = permits_now(row, rule) - taken if rule.rate is not None else None
    if taken:
        _write(alias, row, virtual_time, left)
    if offer.priority is None:
        return LaneState(
            virtual_time, offer.next_due, is_barren=offer.was_due and not offer.has_chosen
        )
    more, wait = allowed_now(row._replace(permits=left, idle=0.0), rule, claimed + taken)
    if offer.has_chosen and not taken:  # other transactions have locked the keys of the chosen rows
        wait = max(wait, KEY_SECONDS)
    return LaneState(virtual_time, wait, offer.priority, is_closed=not more)


def _write(alias: str, row: LaneRow, virtual_time: float, permits: float | None) -> None:
    execute(
        alias, statements.SERVED,
        tag=virtual_time, tokens=permits, seen_at=row.seen_at, name=row.name,
    )  # fmt: skip
