"""The account of a storm: turns evidence into a verdict. It is pure, so that tests can make each check fail.

The words lost, unexpected, duplicated and recovered come from Jepsen's total-queue checker (K.
Kingsbury; ``jepsen.checker/total-queue``): an acknowledged enqueue is one whose COMMIT was answered; a
dequeue is a start of the task.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from itertools import product
from statistics import median

from django_txtasks.contrib.verify.evidence import Evidence
from django_txtasks.contrib.verify.keys import Keys
from django_txtasks.contrib.verify.plan import END, NAP_SECONDS, STEPS, answer_to
from django_txtasks.contrib.verify.verdict import Check, Verdict
from django_txtasks.core.ground.wording import counted

ATOMIC = ("atomic", "increment")
MAY_RUN_AGAIN = (
    *ATOMIC, "idempotent", "unique", "laned", "stepped", "sleeping", "waiting", "tick", "ended",
)  # fmt: skip
SUSPENDED = {"sleeping": 1, "waiting": 1}
"""Number of times that a task of such a kind gives its slot back before it continues."""
BATCHES = (
    "every batch reported its end exactly once, after its last member, and as failed if one is dead"
)


def judge(evidence: Evidence) -> Verdict:
    """Return the verdict on a storm that has calmed down."""
    keys = Keys(evidence)
    checks = [
        *_committed_run(evidence, keys),
        *_time_is_kept(evidence, keys),
        Check.of(1, BATCHES, _wrong_batches(evidence, keys)),
        *_refused_never_run(keys),
        *_none_runs_too_often(evidence, keys),
        *_crashes_are_settled(evidence, keys),
        *_nothing_is_left(evidence),
    ]
    reasons = Counter(row.reason for rows in evidence.dead.values() for row in rows)
    return Verdict(checks, _figures(evidence, keys), dict(reasons.most_common()))


def _committed_run(evidence: Evidence, keys: Keys) -> Iterable[Check]:
    yield Check.of(
        1,
        "every committed task has finished, or is dead with a reason (else it is lost)",
        keys.committed - keys.finished - keys.dead - keys.left,
    )
    yield Check.of(1, "nothing waits any more", (f"{k} {state}" for k, state in evidence.left))
    ran = set(evidence.finished)
    yield Check.of(1, "every finished task has left its effect", ran - set(keys.effects))
    yield Check.of(
        1,
        "every merged task names the task that ran instead, and that task has ended",
        keys.unserved - keys.left,
    )
    torn = (
        f"{group[0]} and {len(group) - 1} more"
        for group in evidence.promises.unknown
        if 0 < len(keys.there.intersection(group)) < len(group)
    )
    yield Check.of(1, "a commit whose answer was lost is wholly there or wholly absent", torn)


def _time_is_kept(evidence: Evidence, keys: Keys) -> Iterable[Check]:
    yield Check.of(
        1,
        "every tick of the schedule has exactly one task",
        (f"{tick} has {keys.records[tick]}" for tick in keys.ticks if keys.records[tick] != 1),
    )
    short = (f"{key} slept {nap:g} s" for key, nap in evidence.naps if nap < NAP_SECONDS / 2)
    yield Check.of(1, "no sleeping task went on before its time", short)
    brought = set(evidence.promises.brought)
    yield Check.of(
        1,
        "every task that waited got the value that was brought, and none waits for it any more",
        [
            *(f"{key} waits" for key in brought & keys.left),
            *(f"{key} got {got!r}" for key, got in evidence.answers if got != answer_to(key)),
        ],
    )


def _wrong_batches(evidence: Evidence, keys: Keys) -> Iterable[str]:
    ends = {end.key: end for end in evidence.ends}
    promised = evidence.promises.committed + evidence.promises.unknown
    for group in promised:
        key = group[-1]
        if not key.endswith(END) or keys.there.isdisjoint(group):
            continue
        if keys.records[key] != 1:
            yield f"{key} was told {counted(keys.records[key], 'time')}"
            continue
        end, dead = ends[key], keys.dead.intersection(group[:-1])
        if end.last_at is not None and end.told_at < end.last_at:
            yield f"{key} was told before its last member had finished"
        if end.failed != bool(dead):
            yield f"{key} was told failed={end.failed} with {len(dead)} dead"


def _refused_never_run(keys: Keys) -> Iterable[Check]:
    yield Check.of(2, "no rolled-back task has run or left a row", keys.refused & keys.there)
    yield Check.of(
        2,
        "no task ran that was never enqueued (else it is unexpected)",
        keys.there - keys.committed - keys.unknown - keys.refused,
    )


def _none_runs_too_often(evidence: Evidence, keys: Keys) -> Iterable[Check]:
    yield Check.of(
        3,
        "no task started more often than its author allows (else it is duplicated)",
        _duplicated(keys),
    )
    twice = Counter((start.key, start.attempt) for start in evidence.runs.starts)
    yield Check.of(3, "no attempt started twice", (f"{k}" for k, n in twice.items() if n > 1))
    atomic = {key for key, kind in evidence.effects if kind in ATOMIC}
    yield Check.of(
        3,
        "the effects of an atomic task are there exactly once, and never if it is not finished",
        {key for key in atomic if keys.effects[key] > 1 or key not in keys.finished},
    )
    yield Check.of(3, "every step has left its effect exactly once", _wrong_steps(evidence))
    sum_ = sum(kind == "increment" for _, kind in evidence.effects)
    wrong = [] if sum_ == evidence.counter else [f"the counter says {evidence.counter}, not {sum_}"]
    yield Check.of(3, "the counter is the sum of the increments", wrong)
    yield Check.of(3, "no more tasks of a lane had a place in it than may", evidence.overruns)
    itself = keys.merged & (set(keys.started) | set(keys.effects))
    yield Check.of(3, "no merged task has run by itself", itself)
    yield Check.of(
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


def _wrong_steps(evidence: Evidence) -> Iterable[str]:
    """Yield steps with two effects, and steps of finished tasks without one. Dead tasks may lack effects."""
    effects = Counter(effect for effect in evidence.effects if effect[1] in STEPS)
    whole = [key for key, rows in evidence.finished.items() if rows[0].kind == "stepped"]
    for key, step in {*effects, *product(whole, STEPS)}:
        if effects[key, step] != 1:
            yield f"{key} {step} has {effects[key, step]}"


def _duplicated(keys: Keys) -> Iterable[str]:
    """Yield tasks that started more often than allowed: once, once per failure, and per crash if declared so."""
    for key, starts in keys.started.items():
        row = keys.rows.get(key)
        if row is None:
            allowed = starts  # unexpected or left, which another check finds
        else:
            crashes = row.crashes if row.kind in MAY_RUN_AGAIN else 0
            allowed = 1 + row.failures + crashes + SUSPENDED.get(row.kind, 0)
        if starts > allowed:
            yield f"{key} started {counted(starts, 'time')}, {allowed} allowed"


def _crashes_are_settled(evidence: Evidence, keys: Keys) -> Iterable[Check]:
    unsettled = {
        start.key
        for start in evidence.runs.starts
        if start.pid in {kill.pid for kill in evidence.kills}
        and (start.key, start.attempt) not in evidence.runs.ended
    }
    yield Check.of(
        4,
        "every task of a killed worker was finished by another one, or is dead with a reason",
        unsettled & (keys.committed | keys.unknown) - keys.finished - keys.dead,
    )
    yield Check.of(
        4,
        "every dead task says why",
        (key for key, rows in evidence.dead.items() if not all(row.reason for row in rows)),
    )


def _nothing_is_left(evidence: Evidence) -> Iterable[Check]:
    sessions = [counted(evidence.sessions, "session")] if evidence.sessions else []
    yield Check.of(0, "no session, and so no lock, is left in the database", sessions)
    yield Check.of(0, "no process ended, or hung, by itself", evidence.surprises)
    yield Check.of(0, "txtasks_audit finds nothing", evidence.audit)


def _figures(evidence: Evidence, keys: Keys) -> dict[str, int | float]:
    latencies = second_starts(evidence)
    return {
        "committed": len(keys.committed),
        "refused": len(keys.refused),
        "unknown": len(keys.unknown),
        "finished": len(keys.finished),
        "async": evidence.asyncs,
        "dead": len(keys.dead),
        "merged": len(keys.merged),
        "left": len(keys.left),
        "ticks": len(keys.ticks),
        "passed ticks": keys.passed_ticks,
        "step effects": sum(kind in STEPS for _, kind in evidence.effects),
        "slept": len(evidence.naps),
        "waited": len(evidence.answers),
        "ended batches": len(evidence.ends),
        "failed batches": sum(end.failed for end in evidence.ends),
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
    """Return the seconds from kill to next start, for each task that a kill cut short."""
    killed = {kill.pid: kill.at for kill in evidence.kills}
    cut: dict[str, float] = {}
    found = []
    for start in evidence.runs.starts:  # ordered by time
        if start.key in cut:
            found.append(max(0.0, start.at - cut.pop(start.key)))
        if start.pid in killed and (start.key, start.attempt) not in evidence.runs.ended:
            cut[start.key] = killed[start.pid]
    return found
