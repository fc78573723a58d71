"""The end of a batch, step by step: who ends a member commits, looks, locks the batch, looks again, tells.

Members are claimed, tried again, buried, revived and discarded between any two statements of a process that looks.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

TOLD_ONCE = "its end is told once at most"
NONE_LEFT = "it does not end while a member waits or runs"
NO_FALSE_SUCCESS = "it ends as a success only if no member waits, runs or has failed"

ALL = frozenset({"waiting", "running", "dead", "discarded"})
LIVE, FAILED = frozenset({"waiting", "running"}), frozenset({"dead", "discarded"})


class BatchRules(NamedTuple):
    """The rules that keep a batch right; each can be left out.

    Attributes:
        commits_first: a process that ends a member looks after that commit; otherwise in the same
            transaction.
        locks: a process that finds no member left locks the batch, and finds it ended if another was
            faster.
        looks_again: and looks again with the lock.
        questions: the kinds of members that each statement with the lock asks for; all in one statement.
        sweeps: a cleaner looks, too.
        fenced_adds: only processes that hold their own member's row, which cannot move meanwhile, add
            members.
        locked_adds: and only with a shared lock of the batch, which they find open.
    """

    commits_first: bool = True
    locks: bool = True
    looks_again: bool = True
    questions: tuple[frozenset[str], ...] = (ALL,)
    sweeps: bool = True
    fenced_adds: bool = True
    locked_adds: bool = True


class Asking(NamedTuple):
    """A process that holds the batch's lock, or needs none.

    Attributes:
        asked: number of statements that it has made.
        seen: the kinds of members that it has found.
        live_then: members that really waited or ran at its last statement.
    """

    asked: int = 0
    seen: frozenset[str] = frozenset()
    live_then: int = 0


class BatchState(NamedTuple):
    """The committed state of a batch, and the next actions of processes.

    Attributes:
        waiting, running, dead, discarded: members.
        looking: processes that have ended a member and have not looked.
        going: processes that have found no member left, and go for the lock.
        asking: processes that have the lock and ask which members exist.
        adding: transactions that are about to add a member.
        lost: workers whose member was ended by others, and that do not know it yet.
        adds, revives, discards, crashes: number that may still come.
        told: how often its end was reported.
        broken: the violated properties.
    """

    waiting: int
    running: int = 0
    dead: int = 0
    discarded: int = 0
    looking: int = 0
    going: int = 0
    asking: tuple[Asking, ...] = ()
    adding: int = 0
    lost: int = 0
    adds: int = 0
    revives: int = 0
    discards: int = 0
    crashes: int = 0
    told: int = 0
    broken: frozenset[str] = frozenset()

    @property
    def live(self) -> int:
        return self.waiting + self.running


def settled(s: BatchState) -> bool:
    """Say whether all have ended and that was told."""
    return not s.live and not s.adding and s.told == 1


def steps(rules: BatchRules, s: BatchState) -> Iterator[tuple[str, BatchState]]:
    """Yield each step that may come next, and the state after it."""
    yield from _moves_of_members(rules, s)
    yield from _looks(rules, s)
    if s.crashes and (s.looking or s.going or s.asking):
        which = {"looking": s.looking - 1} if s.looking else {"going": s.going - 1}
        which = which if s.looking or s.going else {"asking": s.asking[1:]}
        yield "the process that would look dies", s._replace(crashes=s.crashes - 1, **which)
    if rules.sweeps and not s.told and not s.looking and not s.going and not s.asking:
        yield "a cleaner looks", s._replace(looking=1)


def _looks(rules: BatchRules, s: BatchState) -> Iterator[tuple[str, BatchState]]:
    if s.looking:
        none_left = s._replace(looking=s.looking - 1, going=s.going + (s.live == 0))
        yield "somebody looks", none_left
    if s.going and not (rules.locks and (s.asking or (rules.locked_adds and s.adding))):
        if s.told and rules.locks:
            yield "somebody finds that it has ended", s._replace(going=s.going - 1)
        else:
            yield (
                "somebody locks the batch",
                s._replace(going=s.going - 1, asking=(*s.asking, Asking())),
            )
    for place, one in enumerate(s.asking):
        others = s.asking[:place] + s.asking[place + 1 :]
        if one.asked < len(rules.questions):
            yield (
                "a statement asks for members",
                s._replace(asking=(*others, _asked(rules, s, one))),
            )
        else:
            yield "the batch is ended, or let go", _told(rules, s._replace(asking=others), one)


def _asked(rules: BatchRules, s: BatchState, one: Asking) -> Asking:
    found = {kind for kind in rules.questions[one.asked] if getattr(s, kind)}
    return Asking(one.asked + 1, one.seen | found, s.live)


def _told(rules: BatchRules, s: BatchState, one: Asking) -> BatchState:
    if one.seen & LIVE and rules.looks_again:
        return s
    broken = set(s.broken)
    if one.live_then:
        broken.add(NONE_LEFT)
    if not one.seen & FAILED and (s.live or s.dead or s.discarded):
        broken.add(NO_FALSE_SUCCESS)
    return s._replace(told=s.told + 1, broken=frozenset(broken))


def _moves_of_members(rules: BatchRules, s: BatchState) -> Iterator[tuple[str, BatchState]]:
    # a fenced transaction that adds has locked the row of a member that runs
    free = s.running - s.adding if rules.fenced_adds else s.running
    if s.waiting:
        yield "a member is claimed", s._replace(waiting=s.waiting - 1, running=s.running + 1)
    if free > 0:
        yield "a member is tried again", s._replace(waiting=s.waiting + 1, running=s.running - 1)
        yield from _ends(rules, s, free)
    if s.adds and free > 0 and not (rules.locked_adds and (s.told or s.asking)):
        yield "a member begins to add", s._replace(adds=s.adds - 1, adding=s.adding + 1)
    if s.adds and s.lost and not rules.fenced_adds:
        yield "a lost one begins to add", s._replace(adds=s.adds - 1, adding=s.adding + 1)
    if s.adding:
        added = s._replace(adding=s.adding - 1, waiting=s.waiting + 1)
        broken = s.broken | {NONE_LEFT} if s.told else s.broken
        yield "the new member is committed", added._replace(broken=broken)
    if s.revives and s.dead and not s.told:
        revived = s._replace(revives=s.revives - 1, dead=s.dead - 1, waiting=s.waiting + 1)
        yield "a person revives a dead member", revived
    if s.discards and s.dead and not s.told:
        gone = s._replace(discards=s.discards - 1, dead=s.dead - 1, discarded=s.discarded + 1)
        yield "a person discards a dead member", gone


def _ends(rules: BatchRules, s: BatchState, free: int) -> Iterator[tuple[str, BatchState]]:
    ended = s._replace(running=s.running - 1)
    if rules.commits_first:
        yield "a member ends", ended._replace(looking=s.looking + 1)
        yield "a member dies", ended._replace(looking=s.looking + 1, dead=s.dead + 1)
        if not rules.fenced_adds:  # a fenced lost worker can do nothing any more
            lost = ended._replace(looking=s.looking + 1, lost=s.lost + 1)
            yield "a member of a lost worker is ended by others", lost
        return
    # it sees all others that are live, also one that is just being ended by somebody else
    yield "a member ends, alone", ended._replace(going=s.going + (s.live == 1))
    if free >= 2:
        yield "two members end together", s._replace(running=s.running - 2)
