"""The end of a batch, step by step: who ends a member commits, looks, locks the batch, looks again, tells."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

TOLD_ONCE = "its end is told once at most"
NONE_LEFT = "it does not end while a member waits or runs"


class BatchRules(NamedTuple):
    """What keeps a batch right; each can be left out.

    Attributes:
        commits_first: who ends a member looks after that is committed; else in the same transaction.
        locks: who finds none left locks the batch, and finds it ended if somebody else was faster.
        looks_again: and looks again with the lock.
        sweeps: a cleaner looks, too.
        fenced_adds: members are added by those alone that hold their row, which nobody can move meanwhile.
    """

    commits_first: bool = True
    locks: bool = True
    looks_again: bool = True
    sweeps: bool = True
    fenced_adds: bool = True


class BatchState(NamedTuple):
    """A batch as it was committed, and who is about to do what.

    Attributes:
        live, dead: members.
        looking: those who have ended a member and have not looked.
        going: those who have found none left, and go for the lock.
        adding: transactions that are about to add a member.
        lost: workers whose member was ended by others, and that do not know it yet.
        adds, revives, crashes: that may still come.
        told: how often its end was told.
        broken: it has ended while a member was live.
    """

    live: int
    dead: int = 0
    looking: int = 0
    going: int = 0
    adding: int = 0
    lost: int = 0
    adds: int = 0
    revives: int = 0
    crashes: int = 0
    told: int = 0
    broken: bool = False


def settled(s: BatchState) -> bool:
    """Say whether all have ended and that was told."""
    return not s.live and not s.adding and s.told == 1


def steps(rules: BatchRules, s: BatchState) -> Iterator[tuple[str, BatchState]]:
    """Yield each step that may come next, and the state after it."""
    free = s.live - s.adding if rules.fenced_adds else s.live  # whose rows nobody has locked
    if free > 0:
        yield from _ends(rules, s, free)
    if s.looking:
        none_left = s._replace(looking=s.looking - 1, going=s.going + (s.live == 0))
        yield "somebody looks", none_left
    if s.going:
        yield "somebody locks the batch", _locked(rules, s._replace(going=s.going - 1))
    if s.crashes and (s.looking or s.going):
        which = {"looking": s.looking - 1} if s.looking else {"going": s.going - 1}
        yield "he who would look dies", s._replace(crashes=s.crashes - 1, **which)
    if rules.sweeps and not s.told and not s.looking and not s.going:
        yield "a cleaner looks", s._replace(looking=1)
    if s.adds and free > 0:
        yield "a member begins to add", s._replace(adds=s.adds - 1, adding=s.adding + 1)
    if s.adds and s.lost and not rules.fenced_adds:
        yield "a lost one begins to add", s._replace(adds=s.adds - 1, adding=s.adding + 1)
    if s.adding:
        added = s._replace(adding=s.adding - 1, live=s.live + 1)
        yield "the new member is committed", added._replace(broken=s.broken or s.told > 0)
    if s.revives and s.dead and not s.told:
        revived = s._replace(revives=s.revives - 1, dead=s.dead - 1, live=s.live + 1)
        yield "a person revives a dead member", revived


def _ends(rules: BatchRules, s: BatchState, free: int) -> Iterator[tuple[str, BatchState]]:
    ended = s._replace(live=s.live - 1)
    if rules.commits_first:
        yield "a member ends", ended._replace(looking=s.looking + 1)
        yield "a member dies", ended._replace(looking=s.looking + 1, dead=s.dead + 1)
        lost = ended._replace(looking=s.looking + 1, lost=s.lost + 1)
        yield "a member of a lost worker is ended by others", lost
        return
    # it sees all others that are live, also one that is just being ended by somebody else
    yield "a member ends, alone", ended._replace(going=s.going + (s.live == 1))
    if free >= 2:
        yield "two members end together", s._replace(live=s.live - 2)


def _locked(rules: BatchRules, s: BatchState) -> BatchState:
    if (s.told and rules.locks) or (s.live and rules.looks_again):
        return s
    return s._replace(told=s.told + 1, broken=s.broken or s.live > 0)
