"""A task that asks people, step by step: who locks, writes, is told, and what a machine or a token changes.

T asks: wait and question are one transaction. P takes the question or not, and answers: P locks T's row, writes
the value, and closes the question if it is free or P's own. T may wait with a limit, and then gives up. A token
may bring a value past the question, T may be cancelled, and a deploy may add a machine that answers for people. A
cleaner gives the row of a lost worker back, and closes questions that need no answer. ``waits.py`` has the rest.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

ONE_ANSWER = "each attempt gets the same answer"
TOLD = "an answer counts if it is the one that T gets, and only then"
SIGNED = "the answer of a person has the name of this person"
FOR_HOLDER = "nobody answers what another person has"
HEARD = "who was asked before a machine was there is heard"
OPEN, CLOSED, TOO_LATE, TOKEN, MACHINE = "open", "closed", "too late", "token", "machine"
PENDING, CLAIMED, ENDED = "pending", "claimed", "ended"


class QuestionRules(NamedTuple):
    """The rules that keep questions right; each can be left out.

    Attributes:
        together: value and name of an answer are one transaction.
        checks_holder: the statement that closes a question checks who has it.
        rolls_back: a refusal takes the value back.
        task_first: P locks T's row before the question, as T does.
        machine_looks: a machine is asked only if T has not asked before.
        hold_ends: a question of a person who is gone becomes free.
        sweeps: a cleaner closes questions that need no answer.
    """

    together: bool = True
    checks_holder: bool = True
    rolls_back: bool = True
    task_first: bool = True
    machine_looks: bool = True
    hold_ends: bool = True
    sweeps: bool = True


class Person(NamedTuple):
    """A person's place: idle, first (one lock), second (both locks), signs (the value is committed), gone."""

    name: str
    at: str = "idle"


class QuestionState(NamedTuple):
    """The committed rows, and the next actions.

    Attributes:
        status: of T's row.
        at: T's attempt: runs, suspends, locked (its row), both (and its question), ends; empty = no attempt.
        wait: empty = T has never asked; ``OPEN``, ``TOO_LATE``, or a value.
        question: empty, ``OPEN`` or ``CLOSED``; ``signed`` is the name in it, ``holder`` who has it.
        task_lock, question_lock: who has locked the row.
        has_machine: the code of T has a machine.
        crashes, cancels, tokens, deploys: number that may still come.
        counted, answers, was_asked: ghosts: values that were told to count, answers that T got, and whether people
            could see the question.
        unsigned, stolen: ghosts of broken properties.
    """

    status: str = PENDING
    at: str = ""
    wait: str = ""
    question: str = ""
    signed: str = ""
    holder: str = ""
    task_lock: str = ""
    question_lock: str = ""
    people: tuple[Person, ...] = ()
    has_limit: bool = False
    is_over: bool = False
    has_machine: bool = False
    crashes: int = 0
    cancels: int = 0
    tokens: int = 0
    deploys: int = 0
    counted: frozenset[str] = frozenset()
    answers: frozenset[str] = frozenset()
    was_asked: bool = False
    unsigned: bool = False
    stolen: bool = False

    @property
    def has_value(self) -> bool:
        return self.wait not in ("", OPEN, TOO_LATE)


Steps = Iterator[tuple[str, QuestionState]]
PROPERTIES = {
    ONE_ANSWER: lambda s: len(s.answers) <= 1,
    TOLD: lambda s: len(s.counted) <= 1 and s.answers <= (s.counted or {TOO_LATE}),
    SIGNED: lambda s: not s.unsigned,
    FOR_HOLDER: lambda s: not s.stolen,
    HEARD: lambda s: not (s.was_asked and MACHINE in s.answers),
}


def settled(s: QuestionState) -> bool:
    """Return True if T has ended and no question is open, or if T waits and people can answer."""
    if s.at or s.task_lock or s.question_lock:
        return False
    if s.status == ENDED:
        return s.question != OPEN
    can_answer = s.question == OPEN and not s.holder and any(one.at == "idle" for one in s.people)
    return s.status == PENDING and s.wait == OPEN and can_answer


def steps(rules: QuestionRules, s: QuestionState) -> Steps:
    """Yield each step that may come next, and the state after it."""
    yield from _of_task(rules, s)
    for n, one in enumerate(s.people):
        for label, after, then in _of_person(rules, s, one):
            people = (*s.people[:n], then, *s.people[n + 1 :])
            yield f"{one.name} {label}", after._replace(people=people)
    if s.has_limit and not s.is_over:
        yield "the time passes", s._replace(is_over=True)
    if s.tokens and not s.task_lock:
        left = s._replace(tokens=0)
        counts = s.status != ENDED and s.wait in ("", OPEN)
        yield (
            "a token brings a value",
            left._replace(wait=TOKEN, counted=s.counted | {TOKEN}) if counts else left,
        )
        yield "the token is not used", left
    if s.cancels and not s.task_lock:
        left = s._replace(cancels=0)
        yield "T is cancelled", left._replace(status=ENDED, at="") if s.status == PENDING else left
        yield "T is not cancelled", left
    if s.deploys:
        yield "a deploy adds a machine", s._replace(deploys=0, has_machine=True)
    if rules.hold_ends and s.holder and not s.question_lock:
        yield "the hold ends", s._replace(holder="")
    if rules.sweeps and s.question == OPEN and not s.question_lock and _needs_no_answer(s):
        yield "C closes the question", s._replace(question=CLOSED, holder="")


def _needs_no_answer(s: QuestionState) -> bool:
    return s.status == ENDED or s.wait != OPEN


def _of_task(rules: QuestionRules, s: QuestionState) -> Steps:
    if s.status == PENDING and not s.task_lock and (s.wait != OPEN or s.is_over):
        yield "T begins", s._replace(status=CLAIMED, at="runs")
    if s.crashes and s.at:
        gone = s._replace(crashes=s.crashes - 1, at="", status=PENDING)
        gone = gone._replace(
            task_lock=_without(s.task_lock, "T"), question_lock=_without(s.question_lock, "T")
        )
        yield "T's worker dies, and C gives its row back", gone
    if s.at == "runs" and not s.task_lock:
        yield from _asks(rules, s)
    elif s.at == "suspends" and not s.task_lock:
        yield "T suspends", s._replace(status=PENDING, at="")
    elif s.at == "locked" and not s.question_lock:
        yield "T locks its question", s._replace(question_lock="T", at="both")
    elif s.at == "both":
        over = s._replace(wait=TOO_LATE, question=CLOSED, holder="", task_lock="", question_lock="")
        yield "T gives up", over._replace(answers=s.answers | {TOO_LATE}, at="ends")
    elif s.at == "ends" and not s.task_lock:
        yield "T ends", s._replace(status=ENDED, at="")


def _asks(rules: QuestionRules, s: QuestionState) -> Steps:
    if s.has_machine and not rules.machine_looks:
        yield (
            "T takes the machine's answer",
            _got(s._replace(counted=s.counted | {MACHINE}), MACHINE),
        )
    elif s.has_machine and not s.wait:
        by_machine = s._replace(wait=MACHINE, question=CLOSED, counted=s.counted | {MACHINE})
        yield "T writes the machine's answer", _got(by_machine, MACHINE)
    elif s.wait in ("", OPEN) and not (s.wait and s.is_over):
        both = s._replace(wait=OPEN, question=OPEN, was_asked=True, at="suspends")
        yield "T asks", s._replace(at="suspends") if s.question else both
    elif s.wait == OPEN:
        yield "T locks its row to give up", s._replace(task_lock="T", at="locked")
    else:
        yield "T gets its answer", _got(s, s.wait)


def _got(s: QuestionState, answer: str) -> QuestionState:
    is_person = answer in {one.name for one in s.people}
    unsigned = s.unsigned or (is_person and s.signed != answer)
    return s._replace(answers=s.answers | {answer}, at="ends", unsigned=unsigned)


def _of_person(
    rules: QuestionRules, s: QuestionState, one: Person
) -> Iterator[tuple[str, QuestionState, Person]]:
    gone = one._replace(at="gone")
    if s.crashes and one.at not in ("gone", "idle"):
        yield "dies", _unlocked(s, one)._replace(crashes=s.crashes - 1), gone
    if one.at == "idle" and s.question == OPEN and not s.question_lock:
        if not s.holder:
            yield "takes it", s._replace(holder=one.name), one
        if s.holder == one.name and s.crashes:
            yield "dies, and has it", s._replace(crashes=s.crashes - 1), gone
    first, second = ("task_lock", "question_lock")[:: 1 if rules.task_first else -1]
    if one.at == "idle" and s.question and not getattr(s, first):
        yield (
            f"answers, and gets the {first}",
            s._replace(**{first: one.name}),
            one._replace(at="first"),
        )
    elif one.at == "first" and not getattr(s, second):
        yield f"gets the {second}", s._replace(**{second: one.name}), one._replace(at="second")
    elif one.at == "second":
        yield from _commits(rules, s, one)
    elif one.at == "signs" and not s.question_lock:
        yield "signs", _signed(s, one), gone


def _commits(
    rules: QuestionRules, s: QuestionState, one: Person
) -> Iterator[tuple[str, QuestionState, Person]]:
    gone, free = one._replace(at="gone"), _unlocked(s, one)
    is_taken = s.holder not in ("", one.name)
    if s.status == ENDED or s.wait != OPEN:
        yield "is told that it is too late", free, gone
    elif s.question != OPEN or (is_taken and rules.checks_holder):
        after = free if rules.rolls_back else free._replace(wait=one.name)
        yield "is told that another person has it", after, one._replace(at="idle")
    else:
        counts = free._replace(
            wait=one.name, counted=s.counted | {one.name}, stolen=s.stolen or is_taken
        )
        if rules.together:
            yield "is told that it counts", _signed(counts, one), gone
        else:
            yield "commits the value", counts, one._replace(at="signs")


def _signed(s: QuestionState, one: Person) -> QuestionState:
    return s._replace(question=CLOSED, signed=one.name, holder="")


def _unlocked(s: QuestionState, one: Person) -> QuestionState:
    return s._replace(
        task_lock=_without(s.task_lock, one.name), question_lock=_without(s.question_lock, one.name)
    )


def _without(lock: str, name: str) -> str:
    return "" if lock == name else lock
