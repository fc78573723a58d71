"""The steps of a cleaner: it looks, and acts some time later."""

from __future__ import annotations

from collections.abc import Iterator

from model.arrows import (
    BURIED_ALIVE,
    LOST_THOUGH_IT_BEAT,
    RESET_UNDER_A_LIVING_WORKER,
    announce,
    blame,
    bury,
    in_fence,
    unclaimed,
)
from model.rules import Case
from model.state import (
    CLAIMED,
    CUT_OFF,
    HARMLESS,
    LIVING,
    LOOKED_FIRST,
    ORPHAN,
    SILENT,
    TOLD,
    Attempt,
    Row,
    Sight,
    State,
    WorkerRow,
    is_living,
    put,
    set_row,
    set_worker,
    worker_row,
)
from model.worker import Steps


def cleaner(case: Case, s: State, place: int) -> Steps:
    sight = s.cleaners[place]
    if not sight.kind:
        for label, seen in sights(case, s):
            yield label, s._replace(cleaners=put(s.cleaners, place, seen))
        return
    gone = s._replace(cleaners=put(s.cleaners, place, Sight()))
    yield "C stops, or forgets what it saw", gone
    if sight.kind in (SILENT, HARMLESS):
        yield lose(case, gone, sight)
    elif sight.kind == CUT_OFF:
        if not case.rules.final_claims_wait:
            yield lose(case, gone, sight)
        elif not holds_final_claims(case, s, sight.worker):
            seen = sight._replace(kind=HARMLESS)
            label = f"C sees that W{sight.worker} holds no final claim"
            yield label, s._replace(cleaners=put(s.cleaners, place, seen))
    elif sight.kind == LOOKED_FIRST:
        for w in cut_off(s):
            if w.id == sight.worker:
                seen = Sight(HARMLESS, w.id, w.beat)
                label = f"C sees W{w.id} cut off"
                yield label, s._replace(cleaners=put(s.cleaners, place, seen))
    elif sight.kind == LIVING:
        yield from recover_in_one_statement(case, gone, sight)
    elif sight.kind == ORPHAN and not case.rules.notice_in_the_transaction:
        told = s._replace(cleaners=put(s.cleaners, place, sight._replace(kind=TOLD)))
        yield "C tells that the task is dead", announce(case, told, sight.attempt)
    else:
        yield recover(case, gone, sight)


def sights(case: Case, s: State) -> Iterator[tuple[str, Sight]]:
    """A worker is silent for a lease only if it is frozen or gone."""
    awake = {p.id for p in s.processes if not p.frozen}  # no link is cut for a whole lease
    for w in s.workers:
        if not w.lost and w.id not in awake:
            yield f"C sees W{w.id} silent", Sight(SILENT, w.id, w.beat)
    if not case.rules.claims_read_after_beat:
        for w in s.workers:
            if not w.lost and not holds_final_claims(case, s, w.id):
                yield f"C sees that W{w.id} holds no final claim", Sight(LOOKED_FIRST, w.id)
    elif case.scenario.cuts:
        for w in cut_off(s):
            yield f"C sees W{w.id} cut off", Sight(CUT_OFF, w.id, w.beat)
    if not case.rules.recovers_in_two_steps:
        living = tuple(w.id for w in s.workers if not w.lost)
        yield f"C's statement begins: it sees {living} living", Sight(LIVING, living=living)
        return
    for slot, row in enumerate(s.rows):
        if row and row.status == CLAIMED and not is_living(s, row.worker):
            label = f"C sees the orphan {slot}, attempt {row.attempt} by W{row.worker}"
            yield label, Sight(ORPHAN, attempt=attempt_of(slot, row))


def cut_off(s: State) -> list[WorkerRow]:
    """Workers of which both signals are seen: their links are cut, or they are gone."""
    connected = {p.id for p in s.processes if not p.cut}
    return [w for w in s.workers if not w.lost and w.id not in connected]


def holds_final_claims(case: Case, s: State, worker: int) -> bool:
    """Return True if the worker holds a claim whose recovery would make it dead or compensated."""
    held = [row for row in s.rows if row and row.status == CLAIMED and row.worker == worker]
    return any(not runs_again(case, row) for row in held)


def attempt_of(slot: int, row: Row) -> Attempt:
    return Attempt(slot, row.attempt, row.worker, row.instance, row.claim)


def lose(case: Case, s: State, sight: Sight) -> tuple[str, State]:
    row = worker_row(s, sight.worker)
    has_beaten = row is not None and row.beat != sight.beat
    if row is None or row.lost or (has_beaten and case.rules.lose_checks_beat):
        return f"C declares W{sight.worker} lost: 0 rows", s
    s = set_worker(s, row._replace(lost=True, quickly=sight.kind != SILENT))
    return f"C declares W{row.id} lost", blame(s, LOST_THOUGH_IT_BEAT, unless=not has_beaten)


def recover(case: Case, s: State, sight: Sight) -> tuple[str, State]:
    a, row = sight.attempt, s.rows[sight.attempt.slot]
    label = f"C recovers {a.slot}, attempt {a.number} by W{a.worker}"
    is_there = row is not None and row.status == CLAIMED
    if row is None or not is_there or (case.rules.recover_is_fenced and not in_fence(case, row, a)):
        return f"{label}: 0 rows", s
    rightly = row.claim == a.claim and not is_living(s, row.worker)
    s = blame(s, RESET_UNDER_A_LIVING_WORKER, unless=rightly)
    if runs_again(case, row):
        crashes = row.crashes + case.rules.crashes_are_counted
        return f"{label}: pending", set_row(s, a.slot, unclaimed(row, crashes=crashes))
    worker = worker_row(s, row.worker)
    runs = any(p.attempt.claim == row.claim for p in s.processes)
    s = blame(s, BURIED_ALIVE, unless=not (worker and worker.quickly and runs))
    s = bury(case, s, a)
    return f"{label}: dead", s if sight.kind == TOLD else announce(case, s, a)


def runs_again(case: Case, row: Row) -> bool:
    return case.scenario.retries and row.crashes + 1 < case.scenario.max_crashes


def recover_in_one_statement(case: Case, s: State, sight: Sight) -> Steps:
    """It has waited for a lock: it reads the row anew, and the workers as they were when it began."""
    for slot, row in enumerate(s.rows):
        if row and row.status == CLAIMED and row.worker not in sight.living:
            yield recover(case, s, sight._replace(attempt=attempt_of(slot, row)))
