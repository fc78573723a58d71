"""Everything that can happen, and what must hold whatever happens.

Each step is one committed transaction, or something outside of one. Slowness needs no step: any other
step may always come first. In labels W1, W2 are ids of workers, C is a cleaner, and tasks are numbers.
"""

from __future__ import annotations

from collections.abc import Callable

from model.arrows import (
    BURIED_ALIVE,
    LET_GO_BY_A_BELIEVED_WORKER,
    LOST_THOUGH_IT_BEAT,
    MOVED_BY_ANOTHER,
    RESET_UNDER_A_LIVING_WORKER,
    blame,
)
from model.checker import Verdict, check
from model.cleaner import cleaner
from model.rules import Case
from model.state import (
    DEAD,
    LEFT,
    LOOKS,
    PENDING,
    Row,
    State,
    first,
    hinted,
    note,
    put,
    set_row,
    tidy,
)
from model.worker import Steps, process

NO_LOSS = "no committed task is lost"
ONE_FINISH = "a task finishes at most once"
NOT_DONE_AND_DEAD = "no task is recorded both done and dead"
NOT_DONE_AND_COMPENSATED = "no task is recorded both done and compensated"
UNDONE = "what was abandoned at its last attempt is compensated, if it can be"
EFFECTS_ONCE = "an atomic task's effects are committed once, with its finish"
RUNS_BOUNDED = "a task runs once, and once more at most for each thing that goes wrong"
SEEN_IN_STEPS = (
    MOVED_BY_ANOTHER,
    RESET_UNDER_A_LIVING_WORKER,
    LOST_THOUGH_IT_BEAT,
    BURIED_ALIVE,
    LET_GO_BY_A_BELIEVED_WORKER,
)


def verdict(case: Case, only: str = "") -> Verdict:
    """Check every property, or ``only`` one of them, which is faster."""
    properties = {name: it for name, it in _properties(case).items() if only in ("", name)}
    return check(first(case.scenario), lambda s: steps(case, s), properties, _settled, until=only)


def steps(case: Case, s: State) -> Steps:
    for label, after in _steps(case, s):
        yield label, tidy(after)


def _steps(case: Case, s: State) -> Steps:
    yield from enqueue(case, s)
    yield from hints(case, s)
    for place in _different(s.processes):
        yield from process(case, s, place)
    for place in _different(s.cleaners):
        yield from cleaner(case, s, place)
    for place in _different(s.operators):
        yield from person(case, s, place)


def _different(actors: tuple) -> list[int]:
    """They are sorted: of some in the same state it is enough to try one."""
    return [n for n, actor in enumerate(actors) if n == 0 or actor != actors[n - 1]]


def enqueue(case: Case, s: State) -> Steps:
    task = sum(past.committed for past in s.past)
    slot = task if case.rules.fresh_ids else 0
    if task < len(s.past) and s.rows[slot] is None:
        after = note(set_row(s, slot, Row(task)), task, committed=True)
        yield f"task {task} is enqueued", after
        if case.scenario.hints:
            yield f"task {task} is enqueued and hinted", hinted(after, slot, True)
    if s.left.copies:
        yield from copy_from_history(s)


def copy_from_history(s: State) -> Steps:
    """Write a row whose id is in history, as raw SQL or a restored dump may."""
    for task, past in enumerate(s.past):
        if past.finishes and s.rows[task] is None:
            left = s.left.less("copies")
            yield (
                f"A ROW OF {task}'s id is written again",
                set_row(s, task, Row(task))._replace(left=left),
            )


def hints(case: Case, s: State) -> Steps:
    for slot, row in enumerate(s.rows):
        if s.hints[slot]:
            yield f"the hint for {slot} is lost, or dropped", hinted(s, slot, False)
        elif case.scenario.hints and case.rules.renotifies and row and row.status == PENDING:
            yield f"C renotifies {slot}", hinted(s, slot, True)


def person(case: Case, s: State, place: int) -> Steps:
    """Sees a dead task on a page, and revives it some time later."""
    slot = s.operators[place]
    if slot == LOOKS:
        for slot, row in enumerate(s.rows):
            if row and row.status == DEAD:
                yield (
                    f"a person sees {slot} dead",
                    s._replace(operators=put(s.operators, place, slot)),
                )
    elif slot != LEFT:
        yield revive(case, s._replace(operators=put(s.operators, place, LEFT)), slot)


def revive(case: Case, s: State, slot: int) -> tuple[str, State]:
    row = s.rows[slot]
    if row is None or (case.rules.revive_checks_status and row.status != DEAD):
        return f"a person revives {slot}: 0 rows", s
    if row.compensated and case.rules.compensated_is_final:
        return f"a person may not revive {slot}: it was compensated", s
    s = blame(s, MOVED_BY_ANOTHER, unless=row.status in (PENDING, DEAD))
    s = set_row(s, slot, Row(row.instance, attempt=row.attempt))
    return f"a person revives {slot}", note(s, row.instance, dead=False)


def _properties(case: Case) -> dict[str, Callable[[State], bool]]:
    """The ghosts know what happened, whatever the rows say."""
    most, atomic = case.scenario.most_runs, case.scenario.atomic
    undoes = case.scenario.compensates
    of_each_task = {
        ONE_FINISH: lambda past: past.finishes <= 1,
        NOT_DONE_AND_DEAD: lambda past: not (past.finishes and past.dead),
        NOT_DONE_AND_COMPENSATED: lambda past: not (past.finishes and past.compensated),
        EFFECTS_ONCE: lambda past: not atomic or past.effects == bool(past.finishes),
        RUNS_BOUNDED: lambda past: past.runs <= most,
        UNDONE: lambda past: past.compensated or not (past.dead and past.abandoned and undoes),
    }
    return {
        NO_LOSS: _nothing_is_lost,
        **{name: lambda s, name=name: name not in s.broken for name in SEEN_IN_STEPS},
        **{name: lambda s, it=it: all(map(it, s.past)) for name, it in of_each_task.items()},
    }


def _nothing_is_lost(s: State) -> bool:
    return all(
        past.finishes or not past.committed or any(row and row.instance == task for row in s.rows)
        for task, past in enumerate(s.past)
    )


def _settled(s: State) -> bool:
    """Everything was enqueued and is finished or dead, and every worker is idle."""
    return (
        all(past.committed for past in s.past)
        and all(row is None or row.status == DEAD for row in s.rows)
        and not any(p.stage or p.unsure or p.frozen or p.cut for p in s.processes)
    )
