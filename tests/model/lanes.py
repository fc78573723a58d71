"""Turns for a lane, step by step: lock its row, count claimed rows, claim, commit.

A statement sees the commits before its own begin; above READ COMMITTED, those before its transaction's
begin.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

OVERRUN = "never more claimed than may be"


class LaneRules(NamedTuple):
    """The rules of a turn; each can be left out.

    Attributes:
        locks: it locks the lane's row before it counts, until it commits.
        counts_anew: it counts in a statement after the lock, with a new snapshot.
        counts_rows: it counts claimed rows; otherwise it reads a separate counter, which no crash sets
            back.
    """

    locks: bool = True
    counts_anew: bool = True
    counts_rows: bool = True


class Turn(NamedTuple):
    """A worker's turn: its position, its count, and the number that it is about to claim."""

    at: str = "idle"
    seen: int = 0
    claims: int = 0


class LaneState(NamedTuple):
    """The lane as it was committed, and the turns that are open.

    Attributes:
        waiting, claimed: rows.
        counter: what a counter beside the rows would say.
        holder: the turn that has locked the lane's row.
        left: crashes and ends that may still come.
    """

    waiting: int
    claimed: int = 0
    counter: int = 0
    holder: int | None = None
    turns: tuple[Turn, ...] = ()
    crashes: int = 0
    ends: int = 0


def first(turns: int, waiting: int, *, crashes: int = 0, ends: int = 0) -> LaneState:
    """The state before anything has happened."""
    return LaneState(waiting, turns=(Turn(),) * turns, crashes=crashes, ends=ends)


def steps(rules: LaneRules, at_most: int, s: LaneState) -> Iterator[tuple[str, LaneState]]:
    """Yield each step that may come next, and the state after it."""
    for n, turn in enumerate(s.turns):
        yield from (
            (f"turn {n} {name}", after) for name, after in _of_turn(rules, at_most, s, n, turn)
        )
    if s.ends and s.claimed:
        yield (
            "a task ends",
            s._replace(claimed=s.claimed - 1, counter=s.counter - 1, ends=s.ends - 1),
        )
    if s.crashes and s.claimed:  # the cleaner gives the row back; nobody sets a counter back
        yield (
            "a worker crashes, and its task is recovered",
            s._replace(claimed=s.claimed - 1, waiting=s.waiting + 1, crashes=s.crashes - 1),
        )


def _of_turn(
    rules: LaneRules, at_most: int, s: LaneState, n: int, turn: Turn
) -> Iterator[tuple[str, LaneState]]:
    known = s.claimed if rules.counts_rows else s.counter
    if turn.at == "idle":
        if not rules.locks:
            yield "begins", _with(s, n, turn._replace(at="locked", seen=known))
        elif s.holder is None:  # else it is left out: SKIP LOCKED
            yield (
                "locks the lane",
                _with(s._replace(holder=n), n, turn._replace(at="locked", seen=known)),
            )
        if rules.locks and not rules.counts_anew:  # its snapshot was taken before it got the lock
            yield "takes its snapshot", _with(s, n, turn._replace(at="began", seen=known))
    elif turn.at == "began" and s.holder is None:
        yield "locks the lane", _with(s._replace(holder=n), n, turn._replace(at="locked"))
    elif turn.at == "locked":
        seen = known if rules.counts_anew else turn.seen
        claims = max(0, min(at_most - seen, s.waiting))
        yield "counts and claims", _with(s, n, turn._replace(at="claimed", claims=claims))
    elif turn.at == "claimed":
        done = min(turn.claims, s.waiting)
        after = s._replace(
            waiting=s.waiting - done,
            claimed=s.claimed + done,
            counter=s.counter + done,
            holder=None if s.holder == n else s.holder,
        )
        yield "commits", _with(after, n, Turn())
        yield "rolls back", _with(after._replace(**_rows_of(s)), n, Turn())


def _rows_of(s: LaneState) -> dict[str, int]:
    return {"waiting": s.waiting, "claimed": s.claimed, "counter": s.counter}


def _with(s: LaneState, n: int, turn: Turn) -> LaneState:
    return s._replace(turns=(*s.turns[:n], turn, *s.turns[n + 1 :]))
