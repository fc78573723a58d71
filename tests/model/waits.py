"""A task that waits for a value, and others that bring it, step by step: who locks, looks, writes and wakes.

T asks: it writes its wait down and looks, in one transaction; if there is nothing, its worker gives the row back
later, in another one, which looks once more. R brings a value: it locks the task's row, writes the value, and
makes the row due if it waits. A crash may come between any two steps, and a cleaner gives the rows of lost workers
back. T may have a unique key: then, until it begins, another task of the key may take it in, or T takes in another
one, whose arguments may be newer.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

ONE_ANSWER = "each attempt gets the same answer"
WHAT_COUNTS = "a value counts if it is the answer, and only then"
FIRST_COUNTS = "the first value counts, also before T asks"
OTHERS_ROW = "an attempt moves no row that another one holds"
FOR_THIS_TASK = (
    "a value that counts reaches the task for which it was brought, and no other request"
)
FOR_ITS_HOLDER = "who gets an answer holds the row"
OPEN, TOO_LATE = "open", "too late"
PENDING, CLAIMED, ENDED = "pending", "claimed", "ended"


class WaitRules(NamedTuple):
    """The rules that keep waits right; each but the last can be left out. T is the task, R brings its value.

    Attributes:
        locks: R has the task's row locked from its look until its commit; a process that gives the row back
            waits.
        looks_again: the process that gives the row back looks for the value in that statement; otherwise it
            relies on what T saw.
        at_once: R's value and the update that makes the row due are one transaction; otherwise R looks for
            T after its commit.
        keeps_early: a value that comes before T asks is kept.
        first_stays: a value that comes after another one, or after T has given up, changes nothing.
        gives_up_for_good: an attempt that has waited too long records this before it continues.
        is_fenced: only the attempt that holds the row gives it back.
        asks_fenced: only the attempt that holds the row gets an answer, or gives up.
        recovers: a cleaner gives the rows of lost workers back.
        ends_asked: a row that is given back and was asked to stop still ends.
        alone_with_value: R's early value and the end of T's unique key are one transaction.
        sweeps: a cleaner makes rows with a value due. The protocol does not do this, because there are
            none.
    """

    locks: bool = True
    looks_again: bool = True
    at_once: bool = True
    keeps_early: bool = True
    first_stays: bool = True
    gives_up_for_good: bool = True
    is_fenced: bool = True
    asks_fenced: bool = True
    recovers: bool = True
    ends_asked: bool = True
    alone_with_value: bool = True
    sweeps: bool = False


class Attempt(NamedTuple):
    """A worker's knowledge of its attempt.

    Attributes:
        at: ``runs``, ``suspends`` (T saw nothing), ``gives up`` (too late), or ``ends`` (with its answer).
    """

    number: int
    at: str = "runs"


class Bringer(NamedTuple):
    """A process with a value: its position, and whether it saw that T waits."""

    value: str
    at: str = "idle"
    saw_waiting: bool = False


class WaitState(NamedTuple):
    """The committed rows, and the next actions of processes.

    Attributes:
        status, number, due, asked: the task's row, its last attempt, and whether it was asked to stop.
        lives: True if such a row would still end by itself.
        has_key: True if T has a unique key, and was not told to run alone.
        twins: other waiting tasks of the key.
        wait: empty = T has never asked; ``OPEN``, ``TOO_LATE``, or a value.
        attempts: attempts that continue, also after they have lost their row.
        has_limit, is_over: True if T waits with a time limit, and if that time has passed.
        crashes, freezes, cancels: number that may still come.
        counted, answers: ghosts: the values that R was told count, and the answers that attempts got.
        refused: a ghost: R was told that its value does not count, although it was the first and T had not
            ended.
        broken: a ghost: an attempt has moved a row of another one.
        leaked: a ghost: an attempt that holds no row has got an answer.
        strayed: a ghost: T was merged although its value was there.
    """

    status: str = PENDING
    number: int = 0
    due: bool = True
    asked: bool = False
    lives: bool = True
    has_key: bool = False
    twins: int = 0
    wait: str = ""
    attempts: tuple[Attempt, ...] = ()
    bringers: tuple[Bringer, ...] = ()
    has_limit: bool = False
    is_over: bool = False
    crashes: int = 0
    freezes: int = 0
    cancels: int = 0
    counted: frozenset[str] = frozenset()
    answers: frozenset[str] = frozenset()
    refused: bool = False
    broken: bool = False
    leaked: bool = False
    strayed: bool = False

    @property
    def is_locked(self) -> bool:
        """True if R has locked the task's row."""
        return any(one.at == "locked" for one in self.bringers)

    @property
    def has_value(self) -> bool:
        return self.wait not in ("", OPEN, TOO_LATE)


Steps = Iterator[tuple[str, WaitState]]
PROPERTIES = {
    ONE_ANSWER: lambda s: len(s.answers) <= 1,
    WHAT_COUNTS: lambda s: len(s.counted) <= 1 and s.answers <= (s.counted or {TOO_LATE}),
    FIRST_COUNTS: lambda s: not s.refused,
    OTHERS_ROW: lambda s: not s.broken,
    FOR_ITS_HOLDER: lambda s: not s.leaked,
    FOR_THIS_TASK: lambda s: not s.strayed,
}


def settled(s: WaitState) -> bool:
    """Return True if all is over: T has ended, or it waits and no value that counts was brought."""
    is_quiet = not s.attempts and all(one.at == "gone" for one in s.bringers)
    waits = s.status == PENDING and s.wait == OPEN and not (s.counted or s.is_over or s.asked)
    return is_quiet and (s.status == ENDED or waits)


def steps(rules: WaitRules, s: WaitState) -> Steps:
    """Yield each step that may come next, and the state after it."""
    for n, attempt in enumerate(s.attempts):
        rest = (*s.attempts[:n], *s.attempts[n + 1 :])
        for label, after in _of_attempt(rules, s, attempt, rest):
            yield f"attempt {attempt.number} {label}", after
    for n, one in enumerate(s.bringers):
        for label, after, then in _of_bringer(rules, s, one):
            bringers = (*s.bringers[:n], then, *s.bringers[n + 1 :])
            yield f"R {one.value} {label}", after._replace(bringers=bringers)
    if s.status == PENDING and s.due and not s.asked:
        one = Attempt(s.number + 1)
        claimed = s._replace(status=CLAIMED, number=one.number, attempts=(*s.attempts, one))
        yield f"attempt {one.number} begins", claimed
        yield from _merges(s, claimed)
    if s.has_limit and not s.is_over:
        yield "the time passes", s._replace(is_over=True, due=s.due or s.status == PENDING)
    yield from _of_cleaner(rules, s)
    if s.cancels and s.status != ENDED and not s.is_locked:
        left = s._replace(cancels=s.cancels - 1)
        waits = s.status == PENDING
        yield "T is cancelled", left._replace(status=ENDED) if waits else left._replace(asked=True)
        yield "nobody cancels T", left


def _merges(s: WaitState, claimed: WaitState) -> Steps:
    """Claim a task of a key, and merge the others that wait, except for locked ones."""
    if s.twins and s.has_key and not s.number and not s.is_locked:
        merged = {"twins": s.twins - 1, "strayed": s.strayed or s.has_value}
        yield (
            f"attempt {claimed.number} begins, and takes another one in",
            claimed._replace(**merged),
        )
        yield "another one begins, and takes T in", s._replace(status=ENDED, **merged)


def _of_attempt(rules: WaitRules, s: WaitState, a: Attempt, rest: tuple[Attempt, ...]) -> Steps:
    holds = s.status == CLAIMED and s.number == a.number
    is_in_time = holds or not rules.asks_fenced
    gone = s._replace(attempts=rest)
    if s.crashes:
        yield "crashes", gone._replace(crashes=s.crashes - 1)
    if a.at == "runs" and not s.is_locked:
        stands = is_in_time and (holds or s.wait)
        yield _asks(gone, a, holds=holds) if stands else ("asks: ClaimLost", gone)
    elif a.at == "gives up":
        lost = ("gives up: ClaimLost", gone)
        yield _gives_up(rules, gone, a, holds=holds) if is_in_time else lost
    elif a.at == "suspends" and not s.is_locked:
        yield _suspends(rules, gone, holds=holds)
    elif a.at == "ends" and not s.is_locked:
        yield "ends", gone._replace(status=ENDED) if holds else gone


def _asks(s: WaitState, a: Attempt, *, holds: bool) -> tuple[str, WaitState]:
    """Write the wait, unless it exists, and look."""
    asked = s._replace(wait=s.wait or OPEN)
    if asked.wait != OPEN:
        return "asks and gets its answer", _answered(asked, a, asked.wait, holds=holds)
    at = "gives up" if s.is_over else "suspends"
    return "asks and finds nothing", _with(asked, a._replace(at=at))


def _gives_up(rules: WaitRules, s: WaitState, a: Attempt, *, holds: bool) -> tuple[str, WaitState]:
    """Close the wait, unless it is closed; its content is then the answer."""
    if not rules.gives_up_for_good:
        return "goes on without", _answered(s, a, TOO_LATE, holds=holds)
    closed = s._replace(wait=TOO_LATE) if s.wait == OPEN else s
    return "gives up, or gets its answer", _answered(closed, a, closed.wait, holds=holds)


def _answered(s: WaitState, a: Attempt, answer: str, *, holds: bool) -> WaitState:
    after = s._replace(answers=s.answers | {answer}, leaked=s.leaked or not holds)
    return _with(after, a._replace(at="ends"))


def _suspends(rules: WaitRules, s: WaitState, *, holds: bool) -> tuple[str, WaitState]:
    """Give the row back, until the value comes; at once if it is there."""
    if not holds and rules.is_fenced:
        return "gives back: ClaimLost", s
    is_there = s.wait != OPEN and rules.looks_again
    after = s._replace(status=PENDING, due=is_there or s.is_over, broken=s.broken or not holds)
    return "gives back", after._replace(lives=not s.asked or rules.ends_asked)


def _of_bringer(
    rules: WaitRules, s: WaitState, one: Bringer
) -> Iterator[tuple[str, WaitState, Bringer]]:
    """R looks, and then commits; or R commits, and then looks."""
    gone = one._replace(at="gone")
    if one.at in ("looked", "locked", "committed") and s.crashes:
        yield "crashes", s._replace(crashes=s.crashes - 1), gone
    if one.at == "idle" and not s.is_locked:
        if rules.at_once:
            seen = s.status == PENDING
            at = "locked" if rules.locks else "looked"
            yield "looks for T", s, one._replace(at=at, saw_waiting=seen)
        else:
            yield "commits its value", _brought(rules, s, one), one._replace(at="committed")
    elif one.at == "committed":
        yield "makes T due", _woken(s), gone
    elif one.at in ("looked", "locked"):
        brought = _brought(rules, s, one)
        is_new = brought.counted != s.counted
        yield "commits", _woken(brought) if is_new and one.saw_waiting else brought, gone


def _brought(rules: WaitRules, s: WaitState, one: Bringer) -> WaitState:
    """Write the value; nothing if it does not count."""
    is_first = s.wait in ("", OPEN)
    is_taken = s.wait == OPEN or (rules.keeps_early if not s.wait else not rules.first_stays)
    if s.status == ENDED or not is_taken:
        return s._replace(refused=s.refused or (is_first and s.status != ENDED))
    alone = rules.alone_with_value and not s.wait
    return s._replace(
        wait=one.value, counted=s.counted | {one.value}, has_key=s.has_key and not alone
    )


def _woken(s: WaitState) -> WaitState:
    return s._replace(due=True) if s.status == PENDING and s.has_value else s


def _of_cleaner(rules: WaitRules, s: WaitState) -> Steps:
    back = s._replace(status=PENDING, due=True, lives=True)
    goes_on = any(a.number == s.number for a in s.attempts)
    if rules.recovers and s.status == CLAIMED and not s.is_locked:
        if not goes_on:
            yield "C gives the row of a lost worker back", back
        elif s.freezes:
            label = "C gives the row of a frozen worker back"
            yield label, back._replace(freezes=s.freezes - 1)
    if s.status == PENDING and s.asked and s.lives and not s.is_locked:
        yield "C ends what was asked to stop", s._replace(status=ENDED)
    if rules.sweeps and s.has_value and s.status == PENDING and not s.due:
        yield "C makes T due, whose value is there", _woken(s)


def _with(s: WaitState, one: Attempt) -> WaitState:
    return s._replace(attempts=tuple(sorted((*s.attempts, one))))
