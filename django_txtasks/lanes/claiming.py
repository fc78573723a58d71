"""Lanes: tasks that share limits. A claimed row is a place in its lane, so nothing can leak that a crash leaves.

A turn for lanes locks the rows of some of them, and then counts, in a new statement, what is claimed in each.
Nobody else can add to that until it commits. The others leave a locked lane out, and look again in a moment.
Enqueueing never touches a lane's row.

Where there is room for less than is due, higher priorities come first, and then the lane that was served least, by
its weight: start-time fair queueing (Goyal, Vin and Cheng, 1996).
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

from django_txtasks.database.execute import execute, fetch, fetch_as, fetch_column, fetch_value
from django_txtasks.database.time_limits import fetch_within
from django_txtasks.exceptions import ConfigError
from django_txtasks.lanes import statements
from django_txtasks.lifecycle.attempts import Attempt
from django_txtasks.lifecycle.engines.portable import KEY_SECONDS, choosing, claim_rows
from django_txtasks.lifecycle.heads import paused_queues
from django_txtasks.lifecycle.lane_buckets import LaneBucket, buckets_of, look
from django_txtasks.lifecycle.statements import AFTER_CURSOR, CHOOSE_IN_LANE
from django_txtasks.lifecycle.turn import Bucket, Candidate, Capacity, Subscription
from django_txtasks.rules.lanes import MOST_AT_ONCE, LaneRule, LaneRules, parse_value

AT_ONCE = 20
"""Lanes that one turn locks at most."""
BUSY_SECONDS = 0.02
"""Seconds until a lane is looked at again whose row somebody else has locked."""
FULL = float("inf")
"""Seconds until a lane has room that is full, or paused: nobody knows."""
TURN_SECONDS = 1.0
"""Seconds after which the database ends a statement that chooses from a lane; the next turn tries again."""


class LaneLook(NamedTuple):
    """What a turn has learned of a lane.

    Attributes:
        tag: its place in the fair order: what it was served by now.
        wait: seconds until it is worth asking again; zero = there may be more that is due; None = nothing is due;
            ``FULL`` = whoever runs a task of it will know.
        priority: of the next row that is due; None = not known.
        is_barren: something is due in it, and this worker may take none of that.
        is_closed: its rate, or a wait that was asked for, lets nothing start for so long.
    """

    tag: float
    wait: float | None
    priority: int | None = None
    is_barren: bool = False
    is_closed: bool = False


@dataclass(frozen=True)
class LanesRequest:
    """What a turn is to do for lanes.

    Attributes:
        names: the lanes that may have something due.
        room: claim so many tasks at most.
        rules: of the settings.
        served: how far the fair order has come, as far as this worker knows.
        new: of the names, lanes of which this worker does not know that they have a row.
        look_behind: look for lanes in which something is due, behind this one; None = do not.
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
        looks: at each of the lanes that were asked for, and that nobody else has locked.
        served: how far the fair order has come: no lane begins before that.
        found: buckets of lanes, from a look for those in which something is due.
        looked_until: the last lane of that look; empty = all were looked at.
        has_looked: there was such a look.
    """

    looks: Mapping[str, LaneLook] = field(default_factory=dict)
    served: float = 0.0
    found: Sequence[LaneBucket] = ()
    looked_until: str = ""
    has_looked: bool = False


LANES_PER_LOOK = 500
"""Lanes that are looked at together, to forget those that nobody uses."""


class LaneRow(NamedTuple):
    """The columns of ``statements.LOCK_LANES``; times are in seconds."""

    name: str
    at_most: int | None
    rate: str
    burst: int | None
    weight: float | None
    is_paused: Any
    tokens: Any
    idle: Any
    tag: Any
    held: Any
    seen_at: str

    @property
    def override(self) -> dict[str, Any]:
        """What a person has written in place of the settings; somebody may have written what is no limit."""
        asked = {"at_most": self.at_most, "rate": self.rate, "burst": self.burst}
        return sound_values({**asked, "weight": self.weight})


def sound_values(asked: Mapping[str, Any]) -> dict[str, Any]:
    """Return those of a lane's values that are sound, as ``LaneRule`` has them."""
    values = {}
    for key, value in asked.items():
        if value not in (None, ""):
            try:
                values[key] = parse_value(key, value, key)
            except ConfigError:
                continue
    return values


def rule_of(rules: LaneRules, row: LaneRow) -> LaneRule:
    """Return what holds for a lane: what a person has written, else the settings."""
    return (rules.find(row.name) or LaneRule()).changed_by(row.override)


def sound(value: Any, default: float) -> float:
    """Return a number of a lane's row; the default where somebody has written what is none."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        return default
    return number if math.isfinite(number) else default


def create(alias: str, names: Collection[str]) -> None:
    """Write rows for lanes that have none. In no transaction, so that nobody waits for it."""
    known = set(fetch_column(alias, statements.KNOWN_LANES, names=sorted(names))) if names else ()
    missing = sorted(set(names) - set(known))
    if missing:
        params = {f"lane_{n}": name for n, name in enumerate(missing)}
        rows = ", ".join(f"(%({name})s, {{now}})" for name in params)
        execute(alias, statements.NEW_LANES.replace("{rows}", rows), **params)


def greatest_tag(alias: str) -> float:
    """Return how far the fair order has come: whoever knows nothing begins there."""
    return sound(fetch_value(alias, statements.GREATEST_TAG), 0.0)


def hold(alias: str, name: str, delay: timedelta) -> None:
    """Have no task of a lane start for a while. One that is held for longer stays so."""
    execute(alias, statements.HOLD_LANE, name=name, delay=delay.total_seconds())


def forget(alias: str, age: timedelta, rules: LaneRules, behind: str = "") -> tuple[int, str]:
    """Delete rows of lanes that no worker has needed for so long, and that no person has changed.

    A row stays while its bucket is not full: a lane without a row begins with a full one.

    Args:
        behind: look at the next LANES_PER_LOOK lanes behind this name.

    Returns:
        How many were deleted, and the name behind which to go on; empty = all were looked at.
    """
    seconds = age.total_seconds()
    found = fetch(alias, statements.UNUSED_LANES, age=seconds, behind=behind, limit=LANES_PER_LOOK)
    full = [
        name
        for name, tokens, idle in found
        if is_full(tokens, idle, rules.find(name) or LaneRule())
    ]
    count = execute(alias, statements.FORGET_LANES, age=seconds, names=full) if full else 0
    return count, found[-1][0] if len(found) == LANES_PER_LOOK else ""


def turn(
    subscription: Subscription, worker: uuid.UUID, request: LanesRequest
) -> tuple[list[Attempt], LanesResult]:
    """Claim as ``claim`` does, and look for lanes in which something is due if the request says so."""
    claimed, result = claim(subscription, worker, request)
    if request.look_behind is not None:
        found, until = look(subscription.alias, request.look_behind)
        result = replace(result, found=found, looked_until=until, has_looked=True)
    return claimed, result


def claim(
    subscription: Subscription, worker: uuid.UUID, request: LanesRequest
) -> tuple[list[Attempt], LanesResult]:
    """Move PENDING -> claimed in the lanes of a request, as many as fit.

    Must run in a transaction that began with the worker's beat, and in which each statement sees what was
    committed before it: see ``own_transaction``.
    """
    alias, names, room = subscription.alias, request.names, request.room
    served = greatest_tag(alias) if request.served is None else request.served
    rows = fetch_as(LaneRow, alias, statements.LOCK_LANES, names=list(names)) if names else []
    counts = _claimed(alias, rows)
    looks: dict[str, LaneLook] = {}
    paused = paused_queues(alias)
    queues = [one for one in subscription.queues if one not in paused]
    offers: list[_Offer] = []
    for row in rows:
        rule = rule_of(request.rules, row)
        allowed, wait = allowed_now(row, rule, counts[row.name])
        looks[row.name] = LaneLook(sound(row.tag, 0.0), wait, is_closed=not allowed)
        if sound(row.idle, 0.0) < 0:  # somebody has set the clock back: it counts from now on
            _write(alias, row, sound(row.tag, 0.0), tokens_now(row, rule))
        if allowed:
            offers.append(_Offer(subscription, queues, _Open(row, rule, allowed), served))
    chosen = _in_fair_order(offers, room)
    claimed = claim_rows(subscription, worker, chosen, Capacity(room)).attempts
    taken = Counter(attempt.lane for attempt in claimed)
    for offer in offers:
        looks[offer.name] = _settle(alias, offer, taken[offer.name], counts[offer.name])
    return claimed, LanesResult(looks, _served(served, offers, looks, taken))


def _served(
    before: float, offers: Sequence[_Offer], looks: Mapping[str, LaneLook], taken: Mapping[str, int]
) -> float:
    """Return how far the fair order has come: not beyond a lane that could have been served and was not.

    Where all that was due is taken, or what is left may not start, as far as the last one that was taken.
    """
    left = [looks[one.name].tag for one in offers if looks[one.name].wait == 0]
    if left:
        return max(before, min(left))
    ends = [looks[one.name].tag - 1 / one.rule.weight for one in offers if taken[one.name]]
    return max([before, *ends])


def claim_any(subscription: Subscription, worker: uuid.UUID, room: int) -> list[Attempt]:
    """Move PENDING -> claimed in any lanes, whatever their limits: for those who run one task after the other."""
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
    """Count what is claimed in each lane: a statement after the one that has locked them."""
    if not rows:
        return Counter()
    found = fetch(alias, statements.CLAIMED_IN_LANES, names=[row.name for row in rows])
    return Counter(dict(found))


def allowed_now(row: LaneRow, rule: LaneRule, claimed: int) -> tuple[int, float]:
    """Return how many may start, and if none may, the seconds until some may, or ``FULL``."""
    if row.is_paused:
        return 0, FULL
    if held := held_for(row):
        return 0, held
    room = MOST_AT_ONCE if rule.at_most is None else rule.at_most - claimed
    if room <= 0:
        return 0, FULL
    if rule.rate is not None:
        tokens = tokens_now(row, rule)
        if tokens < 1:
            return 0, (1 - tokens) / rule.rate
        room = min(room, int(tokens))
    return room, 0.0


def held_for(row: LaneRow) -> float:
    """Return the seconds for which a task of the lane has asked it to wait."""
    return max(0.0, sound(row.held, 0.0))


def tokens_now(row: LaneRow, rule: LaneRule) -> float:
    """Return how many starts a lane's rate allows now; none come back where somebody has set the clock back."""
    return _tokens(row.tokens, row.idle, rule)


def is_full(tokens: Any, idle: Any, rule: LaneRule) -> bool:
    """Say whether all starts that a lane can save up are there, so long after it was served."""
    return _tokens(tokens, idle, rule) >= rule.most_tokens


def _tokens(tokens: Any, idle: Any, rule: LaneRule) -> float:
    most = rule.most_tokens
    if tokens is None or rule.rate is None:
        return most
    return min(most, sound(tokens, most) + max(0.0, sound(idle, 0.0)) * rule.rate)


class _Open(NamedTuple):
    """A lane of which so many may start."""

    row: LaneRow
    rule: LaneRule
    allowed: int


class _Offer:
    """A lane of which some may start now: its rows that are due, bucket by bucket."""

    def __init__(
        self,
        subscription: Subscription,
        queues: Sequence[str],
        lane: _Open,
        served: float,
    ) -> None:
        self.row, self.rule, self.allowed = lane
        self.name = self.row.name
        self.own = sound(self.row.tag, 0.0)
        self.start = self.tag = max(self.own, served)
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
        """The priority of its next row; None = there is none."""
        return self._buckets[0].priority if self._buckets else None

    def take(self, share: int) -> Candidate | None:
        """Return the next row, locked; None = the bucket has no other one.

        Args:
            share: rows that are read at once.
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
            self.tag += 1 / self.rule.weight
        return row

    def _choose(self, bucket: LaneBucket, limit: int) -> list[Candidate]:
        after, behind = "", {}
        if self._last is not None:
            after, cursor = AFTER_CURSOR, self._last.cursor
            behind = {"mark_time": cursor.due_at, "mark_id": cursor.task_id}
        rows = fetch_within(
            self._subscription.alias,
            CHOOSE_IN_LANE.replace("{after}", after),
            TURN_SECONDS,
            lane=self.name,
            **choosing(self._subscription, Bucket(bucket.priority, bucket.queue_name), limit),
            **behind,
        )
        return [Candidate._make(row) for row in rows]


def _in_fair_order(offers: Sequence[_Offer], room: int) -> list[Candidate]:
    """Choose the rows for which there is room: higher priorities first, then lanes that were served less."""
    chosen: list[Candidate] = []
    share = -(-room // len(offers)) if offers else 0
    order = [_place(offer) for offer in offers if offer.priority is not None]
    heapq.heapify(order)
    while order and len(chosen) < room:
        *_, offer = heapq.heappop(order)
        row = offer.take(share)
        if row is not None:
            chosen.append(row)
        if offer.allowed and offer.priority is not None:
            heapq.heappush(order, _place(offer))
    return chosen


def _place(offer: _Offer) -> tuple[int, float, float, str, _Offer]:
    return -(offer.priority or 0), offer.tag, offer.own, offer.name, offer


def _settle(alias: str, offer: _Offer, taken: int, claimed: int) -> LaneLook:
    """Write what was taken into the lane's row; return what is known of it now."""
    row, rule = offer.row, offer.rule
    tag = offer.start + taken / rule.weight
    left = tokens_now(row, rule) - taken if rule.rate is not None else None
    if taken:
        _write(alias, row, tag, left)
    if offer.priority is None:
        return LaneLook(tag, offer.next_due, is_barren=offer.was_due and not offer.has_chosen)
    more, wait = allowed_now(row._replace(tokens=left, idle=0.0), rule, claimed + taken)
    if offer.has_chosen and not taken:  # what was chosen has keys that are in other hands
        wait = max(wait, KEY_SECONDS)
    return LaneLook(tag, wait, offer.priority, is_closed=not more)


def _write(alias: str, row: LaneRow, tag: float, tokens: float | None) -> None:
    execute(alias, statements.SERVED, tag=tag, tokens=tokens, seen_at=row.seen_at, name=row.name)
