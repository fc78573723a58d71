"""The ways out of claimed, and what each one's WHERE finds."""

from __future__ import annotations

from model.rules import Case
from model.state import BACK, CLAIMED, DEAD, PENDING, SUCCEEDED, Attempt, Row, State, note, set_row

MOVED_BY_ANOTHER = "only the attempt that holds a row moves it"
RESET_UNDER_A_LIVING_WORKER = "a cleaner moves only claims of lost workers"
LOST_THOUGH_IT_BEAT = "a worker that beats is not declared lost"
BURIED_ALIVE = "nothing that runs is buried before its worker's lease is over"
LET_GO_BY_A_BELIEVED_WORKER = "what runs is let go only by a worker that is declared lost"


def holds(case: Case, row: Row | None, a: Attempt) -> bool:
    """Return True if the WHERE of this attempt's arrow finds the row."""
    if row is None or not case.rules.finish_is_fenced:
        return row is not None
    return in_fence(case, row, a)


def in_fence(case: Case, row: Row, a: Attempt) -> bool:
    rules = case.rules
    return (
        row.status == CLAIMED
        and (row.attempt == a.number or not rules.fence_has_attempt)
        and (row.worker == a.worker or not rules.fence_has_worker)
    )


def record(case: Case, s: State, a: Attempt, how: str) -> State:
    """Finish, retry, bury or release; nothing if the row has moved on."""
    row = s.rows[a.slot]
    finishes = s.past[a.instance].finishes
    if row is None or not holds(case, row, a):
        told_done = how == SUCCEEDED and not case.rules.row_count_is_looked_at
        return note(s, a.instance, finishes=finishes + told_done)
    s = blame(s, MOVED_BY_ANOTHER, unless=row.claim == a.claim)
    if how == SUCCEEDED:
        return note(set_row(s, a.slot, None), a.instance, finishes=finishes + 1)
    if how == BACK:
        return set_row(s, a.slot, unclaimed(row))
    return fail(case, s, a, row)


def fail(case: Case, s: State, a: Attempt, row: Row) -> State:
    """Try it again; dead if this was its last attempt."""
    failures = row.failures + 1
    if failures < case.scenario.max_attempts:
        return set_row(s, a.slot, unclaimed(row, failures=failures))
    s = set_row(s, a.slot, unclaimed(row, status=DEAD, failures=failures))
    return note(s, a.instance, dead=True)


def abandon(case: Case, s: State, a: Attempt, row: Row) -> State:
    """Fail an attempt that no exception could end. If it was the last attempt, handle it as after a crash."""
    rules, scenario = case.rules, case.scenario
    s = note(s, a.instance, abandoned=True)
    if not rules.a_hang_is_a_failure:
        return set_row(s, a.slot, unclaimed(row))
    is_last = row.failures + 1 >= scenario.max_attempts or not scenario.retries
    if scenario.compensates and is_last and rules.a_last_hang_is_undone:
        return announce(case, bury(case, s, a), a)
    return fail(case, s, a, row)


def bury(case: Case, s: State, a: Attempt) -> State:
    row, undone = s.rows[a.slot], case.scenario.compensates
    assert row is not None
    return set_row(s, a.slot, unclaimed(row, status=DEAD, compensated=undone))


def announce(case: Case, s: State, a: Attempt) -> State:
    """The notice of a death, or the compensating task, which is a row of the same transaction."""
    return note(s, a.instance, dead=True, compensated=case.scenario.compensates)


def unclaimed(row: Row, **changes: object) -> Row:
    return row._replace(**{"status": PENDING, "worker": 0, "claim": 0, "ran": False, **changes})


def blame(s: State, rule: str, *, unless: bool) -> State:
    return s if unless else s._replace(broken=s.broken | {rule})
