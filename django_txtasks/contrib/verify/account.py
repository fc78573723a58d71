"""The account of a storm: evidence in, verdict out. Pure, so that each check can be shown to fail.

The words lost, unexpected, duplicated and recovered are those of Jepsen's total-queue checker
(K. Kingsbury; ``jepsen.checker/total-queue``): an acknowledged enqueue is one whose COMMIT was
answered, a dequeue is a start of the task.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from statistics import median

from django_txtasks.contrib.verify.evidence import Evidence, Row

ATOMIC = ("atomic", "increment")
MAX_EXAMPLES = 5


@dataclass(frozen=True)
class Check:
    """One sentence that must be true.

    Attributes:
        number: of the requirement it belongs to, 1 to 5; 0 = housekeeping.
        wrong: what contradicts it, the first few.
        count: how many do.
    """

    number: int
    sentence: str
    count: int = 0
    wrong: tuple[str, ...] = ()

    @property
    def holds(self) -> bool:
        """Whether nothing contradicts it."""
        return not self.count


@dataclass
class Verdict:
    """All checks, and the figures that say how hard they were tried."""

    checks: list[Check]
    figures: dict[str, int | float] = field(default_factory=dict)
    dead: dict[str, int] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        """Whether every check holds."""
        return all(check.holds for check in self.checks)


class _Keys:
    """Keys, by what was promised of them and by where they were seen."""

    def __init__(self, evidence: Evidence) -> None:
        promises = evidence.promises
        self.committed = _flat(promises.committed)
        self.refused = _flat(promises.refused)
        self.unknown = _flat(promises.unknown)
        self.started = Counter(start.key for start in evidence.runs.starts)
        self.effects = Counter(key for key, _ in evidence.effects)
        self.dead = set(evidence.dead)
        self.merged = set(evidence.merged)
        ended = set(evidence.finished) | self.dead
        self.unserved = {key for key, winner in evidence.merged.items() if winner not in ended}
        self.finished = set(evidence.finished) | self.merged - self.unserved
        self.left = {key for key, _ in evidence.left}
        self.dequeued = set(self.started) | set(self.effects) | self.finished
        self.there = self.dequeued | self.dead | self.left | self.merged
        self.rows: dict[str, Row] = {
            key: rows[0] for key, rows in [*evidence.dead.items(), *evidence.finished.items()]
        }


def judge(evidence: Evidence) -> Verdict:
    """Return the verdict on a storm that has calmed down."""
    keys = _Keys(evidence)
    checks = [
        *_committed_run(evidence, keys),
        *_refused_never_run(keys),
        *_none_runs_too_often(evidence, keys),
        *_crashes_are_settled(evidence, keys),
        *_nothing_is_left(evidence),
    ]
    reasons = Counter(row.reason for rows in evidence.dead.values() for row in rows)
    return Verdict(checks, _figures(evidence, keys), dict(reasons.most_common()))


def _committed_run(evidence: Evidence, keys: _Keys) -> Iterable[Check]:
    yield _check(
        1,
        "every committed task has finished, or is dead with a reason (else it is lost)",
        keys.committed - keys.finished - keys.dead - keys.left,
    )
    yield _check(1, "nothing waits any more", (f"{k} {state}" for k, state in evidence.left))
    ran = set(evidence.finished)
    yield _check(1, "every finished task has left its effect", ran - set(keys.effects))
    yield _check(
        1, "every merged task names one that ran instead, and has ended", keys.unserved - keys.left
    )
    torn = (
        f"{group[0]} and {len(group) - 1} more"
        for group in evidence.promises.unknown
        if 0 < len(keys.there.intersection(group)) < len(group)
    )
    yield _check(1, "a commit whose answer was lost is wholly there or wholly absent", torn)


def _refused_never_run(keys: _Keys) -> Iterable[Check]:
    yield _check(2, "no rolled-back task has run or left a row", keys.refused & keys.there)
    yield _check(
        2,
        "nothing ran that nobody had enqueued (else it is unexpected)",
        keys.there - keys.committed - keys.unknown - keys.refused,
    )


def _none_runs_too_often(evidence: Evidence, keys: _Keys) -> Iterable[Check]:
    yield _check(
        3,
        "no task started more often than its author allows (else it is duplicated)",
        _duplicated(keys),
    )
    twice = Counter((start.key, start.attempt) for start in evidence.runs.starts)
    yield _check(3, "no attempt started twice", (f"{k}" for k, n in twice.items() if n > 1))
    atomic = {key for key, kind in evidence.effects if kind in ATOMIC}
    yield _check(
        3,
        "the effects of an atomic task are there exactly once, and never if it is not finished",
        {key for key in atomic if keys.effects[key] > 1 or key not in keys.finished},
    )
    sum_ = sum(kind == "increment" for _, kind in evidence.effects)
    wrong = [] if sum_ == evidence.counter else [f"the counter says {evidence.counter}, not {sum_}"]
    yield _check(3, "the counter is the sum of the increments", wrong)
    yield _check(3, "no more tasks of a lane had a place in it than may", evidence.overruns)
    itself = keys.merged & (set(keys.started) | set(keys.effects))
    yield _check(3, "no merged task has run by itself", itself)
    yield _check(
        3,
        "no task is recorded twice",
        [
            *(
                key
                for key, rows in [*evidence.finished.items(), *evidence.dead.items()]
                if rows[1:]
            ),
            *(keys.finished & keys.dead),
            *(keys.merged & set(evidence.finished)),
            *((keys.finished | keys.dead) & keys.left),
        ],
    )


def _duplicated(keys: _Keys) -> Iterable[str]:
    """Return tasks that ran more often than allowed: again after a failure, or after a crash if declared so."""
    for key, starts in keys.started.items():
        row = keys.rows.get(key)
        if row is None:
            allowed = starts  # it is unexpected or left, which is a finding of its own
        else:
            may_run_again = row.kind in (*ATOMIC, "idempotent", "unique", "laned")
            allowed = 1 + row.failures + (row.crashes if may_run_again else 0)
        if starts > allowed:
            yield f"{key} started {starts} times, {allowed} allowed"


def _crashes_are_settled(evidence: Evidence, keys: _Keys) -> Iterable[Check]:
    unsettled = {
        start.key
        for start in evidence.runs.starts
        if start.pid in {kill.pid for kill in evidence.kills}
        and (start.key, start.attempt) not in evidence.runs.ended
    }
    yield _check(
        4,
        "every task of a killed worker was finished by another one, or is dead with a reason",
        unsettled & (keys.committed | keys.unknown) - keys.finished - keys.dead,
    )
    yield _check(
        4,
        "every dead task says why",
        (key for key, rows in evidence.dead.items() if not all(row.reason for row in rows)),
    )


def _nothing_is_left(evidence: Evidence) -> Iterable[Check]:
    sessions = [f"{evidence.sessions} sessions"] if evidence.sessions else []
    yield _check(0, "no session, and so no lock, is left in the database", sessions)
    yield _check(0, "no process ended, or hung, by itself", evidence.surprises)
    yield _check(0, "txtasks_audit finds nothing", evidence.audit)


def _figures(evidence: Evidence, keys: _Keys) -> dict[str, int | float]:
    latencies = second_starts(evidence)
    return {
        "committed": len(keys.committed),
        "refused": len(keys.refused),
        "unknown": len(keys.unknown),
        "finished": len(keys.finished),
        "dead": len(keys.dead),
        "merged": len(keys.merged),
        "left": len(keys.left),
        "lost": len(keys.committed - keys.finished - keys.dead - keys.left),
        "unexpected": len(keys.there - keys.committed - keys.unknown),
        "duplicated": len(list(_duplicated(keys))),
        "recovered": len(keys.unknown & keys.dequeued),
        "starts": sum(keys.started.values()),
        "crashes": sum(row.crashes for row in keys.rows.values()),
        "failures": sum(row.failures for row in keys.rows.values()),
        "counter": evidence.counter,
        "increments": sum(kind == "increment" for _, kind in evidence.effects),
        "second starts": len(latencies),
        "median second start": round(median(latencies), 3) if latencies else 0.0,
        "slowest second start": round(max(latencies), 3) if latencies else 0.0,
    }


def second_starts(evidence: Evidence) -> list[float]:
    """Return, for each task that a kill cut short and that ran again, the seconds from kill to start."""
    killed = {kill.pid: kill.at for kill in evidence.kills}
    cut: dict[str, float] = {}
    found = []
    for start in evidence.runs.starts:  # in the order of time
        if start.key in cut:
            found.append(max(0.0, start.at - cut.pop(start.key)))
        if start.pid in killed and (start.key, start.attempt) not in evidence.runs.ended:
            cut[start.key] = killed[start.pid]
    return found


def _check(number: int, sentence: str, wrong: Iterable[str]) -> Check:
    found = sorted(wrong)
    return Check(number, sentence, len(found), tuple(found[:MAX_EXAMPLES]))


def _flat(groups: Iterable[Iterable[str]]) -> set[str]:
    return {key for group in groups for key in group}
