"""The steps of a worker process: its loop, and the slot in which a task runs."""

from __future__ import annotations

from collections.abc import Iterator

from model.arrows import (
    LET_GO_BY_A_BELIEVED_WORKER,
    abandon,
    announce,
    blame,
    bury,
    holds,
    record,
    unclaimed,
)
from model.rules import Case
from model.state import (
    AHEAD,
    BACK,
    CLAIMED,
    HUNG,
    INSIDE,
    NOTHING,
    PENDING,
    RAISED,
    READY,
    RUN_BEFORE,
    SUCCEEDED,
    Attempt,
    Process,
    State,
    WorkerRow,
    hinted,
    is_living,
    new_claim,
    new_worker_id,
    note,
    set_process,
    set_row,
    set_worker,
    unused,
    worker_row,
)

Steps = Iterator[tuple[str, State]]
"""Each has a label and the state after it. A crash before a COMMIT is the same as one before its step."""


def process(case: Case, s: State, place: int) -> Steps:
    me = s.processes[place]
    if s.left.crashes and me != Process():
        left = s.left.less("crashes")
        yield f"W{me.id} CRASHES", set_process(s, place, Process())._replace(left=left)
    if me.frozen:
        yield f"W{me.id} wakes up", set_process(s, place, me._replace(frozen=False))
        return
    if me.cut:
        yield f"W{me.id}'s links are back", set_process(s, place, me._replace(cut=False))
        return
    if s.left.cuts and me.id:
        left = s.left.less("cuts")
        after = set_process(s, place, me._replace(cut=True))
        yield f"W{me.id}'s LINKS ARE CUT", after._replace(left=left)
    if s.left.freezes and me.id:
        left = s.left.less("freezes")
        after = set_process(s, place, me._replace(frozen=True))
        yield f"W{me.id} FREEZES", after._replace(left=left)
    yield from slot_steps(case, s, place)
    if me.leaving:
        yield f"W{me.id} exits", set_process(s, place, Process())
        return
    if s.left.stops and me.attempt != NOTHING and me.id:
        yield let_go(case, s._replace(left=s.left.less("stops")), place)
    if me.stage == HUNG and me.id:
        yield let_go(case, s, place)
    if not me.id:
        worker = new_worker_id(s)
        after = set_process(s, place, me._replace(id=worker))
        yield f"W{worker} registers", set_worker(after, WorkerRow(worker))
        return
    begun = beat(s, me.id)
    if begun is None:
        yield f"W{me.id} finds that it was declared lost", declared_lost(case, s, place)
    elif begun != s:
        yield f"W{me.id} beats", begun
    if begun is not None or not case.rules.turn_begins_with_beat:
        yield from turn(case, s if begun is None else begun, place)


def beat(s: State, worker: int) -> State | None:
    """Return None if 0 rows were updated. The new number is one that no cleaner has seen."""
    row = worker_row(s, worker)
    if row is None or row.lost:
        return None
    seen = [sight.beat for sight in s.cleaners if sight.worker == worker]
    return set_worker(s, row._replace(beat=unused(seen, start=0)))


def declared_lost(case: Case, s: State, place: int) -> State:
    me = s.processes[place]
    if case.rules.new_id_when_lost:
        if me.stage in (AHEAD, BACK):
            me = me._replace(attempt=NOTHING, stage="")
        return set_process(s, place, me._replace(id=0, unsure=False))
    return set_worker(s, WorkerRow(me.id))


def let_go(case: Case, s: State, place: int) -> tuple[str, State]:
    """Its last transaction, as it has to stop or its slot hangs; the slot goes on until the process exits."""
    me, a = s.processes[place], s.processes[place].attempt
    is_hung = me.stage == HUNG
    label = f"W{me.id} {'gives up its slot' if is_hung else 'stops'} and lets {a.slot} go"
    worker, row = worker_row(s, me.id), s.rows[a.slot]
    s = set_process(s, place, me._replace(leaving=True, unsure=False))
    if worker is not None and case.rules.lost_before_it_lets_go:
        s = set_worker(s, worker._replace(lost=True))
    if row is None or not holds(case, row, a):
        return f"{label}: 0 rows", s
    is_believed = is_living(s, a.worker)
    s = blame(s, LET_GO_BY_A_BELIEVED_WORKER, unless=not (row.ran and is_believed))
    if is_hung:
        return label, abandon(case, s, a, row)
    if case.scenario.retries:
        return label, set_row(s, a.slot, unclaimed(row))
    return f"{label}: dead", announce(case, bury(case, s, a), a)


def slot_steps(case: Case, s: State, place: int) -> Steps:
    """The thread that runs the task function; it does not know of beats."""
    me, a = s.processes[place], s.processes[place].attempt
    if me.stage == AHEAD:
        yield f"{a.slot} is started", set_process(s, place, me._replace(stage=READY))
        if s.left.releases:
            left = s.left.less("releases")
            after = set_process(s, place, me._replace(stage=BACK))
            yield f"W{me.id} takes {a.slot} back from its slot", after._replace(left=left)
    elif me.stage == READY and case.rules.history_decides and s.past[a.instance].finishes:
        after = set_process(s, place, me._replace(stage=RUN_BEFORE))
        yield f"{a.slot} does not run: its id stands in history", after
    elif me.stage == READY:
        begun = run_begun(case, s, a)
        if case.scenario.poison:
            yield f"{a.slot} runs and KILLS W{a.worker}", set_process(begun, place, Process())
            return
        stage = INSIDE if case.scenario.atomic else SUCCEEDED
        yield f"{a.slot} runs in W{a.worker}", set_process(begun, place, me._replace(stage=stage))
        if case.scenario.raises:
            raised = me._replace(stage=RAISED)
            yield f"{a.slot} raises in W{a.worker}", set_process(begun, place, raised)
        if case.scenario.hangs:
            hung = me._replace(stage=HUNG)
            yield f"{a.slot} HANGS in W{a.worker}", set_process(begun, place, hung)
    elif me.stage == HUNG:
        stage = INSIDE if case.scenario.atomic else SUCCEEDED
        yield f"{a.slot} goes on in W{a.worker}", set_process(s, place, me._replace(stage=stage))
    elif me.stage == INSIDE:
        yield from end_atomic(case, s, place)


def run_begun(case: Case, s: State, a: Attempt) -> State:
    row, past = s.rows[a.slot], s.past[a.instance]
    if row and row.claim == a.claim:
        s = set_row(s, a.slot, row._replace(ran=True))
    runs = min(past.runs, case.scenario.most_runs) + 1
    return note(s, a.instance, runs=runs, abandoned=False)


def end_atomic(case: Case, s: State, place: int) -> Steps:
    """Effects and finish in one transaction; 0 rows roll both back."""
    me, a = s.processes[place], s.processes[place].attempt
    idle = me._replace(attempt=NOTHING, stage="")
    who = f"attempt {a.number} of {a.slot} by W{a.worker}"
    if case.rules.row_count_is_looked_at and not holds(case, s.rows[a.slot], a):
        yield f"{who} rolls back: ClaimLost", set_process(s, place, idle)
        return
    if s.left.failovers:
        yield f"{who} commits, and a FAILOVER LOSES it all", loses_end(s, place, a)
    effects = s.past[a.instance].effects + 1
    after = note(record(case, s, a, SUCCEEDED), a.instance, effects=effects)
    yield from commit(
        place, f"{who} commits effects and finish", after, idle, me._replace(stage=RAISED)
    )


def turn(case: Case, s: State, place: int) -> Steps:
    """The worker's loop: one transaction, which has begun with the beat."""
    me, a = s.processes[place], s.processes[place].attempt
    idle = me._replace(attempt=NOTHING, stage="")
    unsure = me._replace(unsure=case.rules.reconciles)
    if me.unsure:
        knows = me._replace(unsure=False) if in_step(s, me) else idle._replace(unsure=False)
        yield from commit(place, f"W{me.id} reconciles", reconcile(case, s, me), knows, me)
    elif me.stage in (SUCCEEDED, RAISED):
        label = f"W{me.id} records that attempt {a.number} of {a.slot} by W{a.worker} {me.stage}"
        if s.left.failovers:
            yield f"{label}, and a FAILOVER LOSES it", loses_end(s, place, a)
        yield from commit(place, label, record(case, s, a, me.stage), idle, unsure)
    elif me.stage == RUN_BEFORE:
        row = s.rows[a.slot]
        after = bury(case, s, a) if row is not None and holds(case, row, a) else s
        yield from commit(place, f"W{me.id} buries {a.slot}", after, idle, unsure)
    elif me.stage == BACK:
        after = record(case, s, a, BACK)
        yield from commit(place, f"W{me.id} releases {a.slot}", after, idle, unsure)
    elif not me.stage:
        yield from claim(case, s, place)


def commit(place: int, label: str, after: State, knows: Process, unknowing: Process) -> Steps:
    """The transaction commits, and its answer arrives or not. A crash before it = it never began."""
    yield label, set_process(after, place, knows)
    if after.left.lost_answers:
        left = after.left.less("lost_answers")
        after = set_process(after, place, unknowing)._replace(left=left)
        yield f"{label}, but the COMMIT's ANSWER IS LOST", after


def claim(case: Case, s: State, place: int) -> Steps:
    me = s.processes[place]
    for slot, row in enumerate(s.rows):
        if not row or row.status != PENDING or not (case.rules.scans or s.hints[slot]):
            continue
        for stage in (READY, AHEAD) if case.scenario.ahead else (READY,):
            number = row.attempt + case.rules.attempt_counted_in_claim
            a = Attempt(slot, number, me.id, row.instance, new_claim(s))
            claimed = row._replace(status=CLAIMED, attempt=number, worker=me.id, claim=a.claim)
            knows = me._replace(attempt=a, stage=stage)
            unknowing = me._replace(unsure=case.rules.reconciles)
            label = f"W{me.id} claims {slot}{' ahead' if stage == AHEAD else ''}, attempt {number}"
            after = set_row(s, slot, claimed)
            yield from commit(place, label, after, knows, unknowing)
            if s.hints[slot]:  # or the hint is delivered again
                yield from commit(place, label, hinted(after, slot, False), knows, unknowing)


def loses_end(s: State, place: int, a: Attempt) -> State:
    """The standby that takes over has the claim, and not its end; the session fails with the old server."""
    me = s.processes[place]._replace(
        attempt=NOTHING, stage="", unsure=True, ended=(a.slot, a.number)
    )
    return set_process(s, place, me)._replace(left=s.left.less("failovers"))


def reconcile(case: Case, s: State, me: Process) -> State:
    """Give back what the table says is mine and I do not know of; bury what I have ended, if it may run once."""
    for slot, row in enumerate(s.rows):
        if (
            row
            and row.worker == me.id
            and (slot, row.attempt) != (me.attempt.slot, me.attempt.number)
        ):
            has_ended = me.ended == (slot, row.attempt)
            if has_ended and case.scenario.atomic and not case.rules.repeats_no_atomic_end:
                finishes = s.past[row.instance].finishes + 1
                s = note(set_row(s, slot, None), row.instance, finishes=finishes)
            elif has_ended and case.rules.remembers_ends and not case.scenario.retries:
                a = Attempt(slot, row.attempt, row.worker, row.instance, row.claim)
                s = announce(case, bury(case, s, a), a)
            else:
                s = set_row(s, slot, unclaimed(row))
    return s


def in_step(s: State, me: Process) -> bool:
    """Return True if the worker's known claims are in the table; if not, an earlier COMMIT has moved them."""
    a = me.attempt
    if me.stage not in (AHEAD, BACK, SUCCEEDED, RAISED) or a.worker != me.id:
        return True  # there is none, it runs, or it is of my former id: its fence will tell
    row = s.rows[a.slot]
    return row is not None and (row.worker, row.attempt) == (me.id, a.number)
