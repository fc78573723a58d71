"""The state of the model: the tables, two worker processes, cleaners, people, and the failures that may still
happen.

Numbers that only grow in reality (ids, beats) are the smallest that no process remembers, so that the
number of states stays finite. Ghosts are the model's own knowledge: no statement may read them.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import count
from typing import NamedTuple

from model.rules import Scenario

LOOKS, LEFT = -2, -1
"""A person who has seen no dead task yet, and one who has clicked; the others remember the task's id."""
PENDING, CLAIMED, DEAD = "pending", "claimed", "dead"
SILENT, ORPHAN, TOLD, LIVING = "silent", "orphan", "told", "living"
CUT_OFF, HARMLESS, LOOKED_FIRST = "cut off", "cut off, with no final claim", "no final claim"
AHEAD, BACK, READY, INSIDE = "ahead", "taken back", "ready", "inside"
SUCCEEDED, RAISED, HUNG = "succeeded", "raised", "hung"
RUN_BEFORE = "its id stands in history"


class Row(NamedTuple):
    """A live row. Ghosts: whose task it is, which claim holds it, whether that claim's run began."""

    instance: int
    status: str = PENDING
    attempt: int = 0
    worker: int = 0
    failures: int = 0
    crashes: int = 0
    compensated: bool = False
    claim: int = 0
    ran: bool = False


class Past(NamedTuple):
    """All ghosts: the real history of one task, independent of its row.

    ``abandoned``: its process was replaced during its last attempt, so it is unknown how far that attempt
    came.
    """

    committed: bool = False
    runs: int = 0
    effects: int = 0
    finishes: int = 0
    dead: bool = False
    compensated: bool = False
    abandoned: bool = False


class WorkerRow(NamedTuple):
    """Ghost: it was declared lost by two signs, before its lease was over."""

    id: int
    beat: int = 0
    lost: bool = False
    quickly: bool = False


class Attempt(NamedTuple):
    """The facts that a process or a cleaner remembers of a claim. Ghosts: instance and claim."""

    slot: int
    number: int
    worker: int
    instance: int
    claim: int


NOTHING = Attempt(-1, 0, 0, 0, 0)


class Process(NamedTuple):
    """A worker process with one slot.

    ``id`` 0 = it has to register; ``leaving``: only its slot continues; ``cut``: it lives, but both of its
    links are cut for a moment; ``ended``: row and attempt of its latest records.
    """

    id: int = 0
    attempt: Attempt = NOTHING
    stage: str = ""
    unsure: bool = False
    frozen: bool = False
    leaving: bool = False
    cut: bool = False
    ended: tuple[int, ...] = ()


class Left(NamedTuple):
    """How often each of these may still happen."""

    crashes: int
    freezes: int
    lost_answers: int
    releases: int
    stops: int
    cuts: int
    failovers: int
    copies: int

    def less(self, name: str) -> Left:
        return self._replace(**{name: getattr(self, name) - 1})


class Sight(NamedTuple):
    """A cleaner's earlier observation, which may be out of date."""

    kind: str = ""
    worker: int = 0
    beat: int = 0
    attempt: Attempt = NOTHING
    living: tuple[int, ...] = ()


class State(NamedTuple):
    """``rows`` by id; ``past`` by task; ``hints`` by id; ``broken``: a ghost, what a step has broken."""

    rows: tuple[Row | None, ...]
    past: tuple[Past, ...]
    workers: tuple[WorkerRow, ...]
    processes: tuple[Process, ...]
    cleaners: tuple[Sight, ...]
    hints: tuple[bool, ...]
    left: Left
    operators: tuple[int, ...]
    broken: frozenset[str] = frozenset()


def first(scenario: Scenario) -> State:
    """Nothing is enqueued, nothing runs."""
    left = Left(
        scenario.crashes,
        scenario.freezes,
        scenario.lost_answers,
        scenario.releases,
        scenario.stops,
        scenario.cuts,
        scenario.failovers,
        scenario.copies,
    )
    return State(
        rows=(None,) * scenario.tasks,
        past=(Past(),) * scenario.tasks,
        workers=(),
        processes=(Process(), Process()),
        cleaners=(Sight(),) * scenario.cleaners,
        hints=(False,) * scenario.tasks,
        left=left,
        operators=(LOOKS,) * scenario.revives,
    )


def put(items: tuple, place: int, item: object) -> tuple:
    return (*items[:place], item, *items[place + 1 :])


def unused(used: Iterable[int], start: int = 1) -> int:
    """Return the smallest number that no process remembers."""
    known = set(used)
    return next(number for number in count(start) if number not in known)


def remembered(s: State) -> list[Attempt]:
    return [p.attempt for p in s.processes] + [sight.attempt for sight in s.cleaners]


def new_worker_id(s: State) -> int:
    used = [w.id for w in s.workers] + [p.id for p in s.processes]
    used += [row.worker for row in s.rows if row] + [a.worker for a in remembered(s)]
    seen = [number for sight in s.cleaners for number in (sight.worker, *sight.living)]
    return unused(used + seen)


def new_claim(s: State) -> int:
    return unused([a.claim for a in remembered(s)] + [row.claim for row in s.rows if row])


def worker_row(s: State, worker: int) -> WorkerRow | None:
    return next((w for w in s.workers if w.id == worker), None)


def is_living(s: State, worker: int) -> bool:
    """Return True if the table shows this worker as living."""
    return any(w.id == worker and not w.lost for w in s.workers)


def set_worker(s: State, row: WorkerRow) -> State:
    others = [w for w in s.workers if w.id != row.id]
    return s._replace(workers=tuple(sorted([*others, row])))


def set_process(s: State, place: int, process: Process) -> State:
    return s._replace(processes=put(s.processes, place, process))


def set_row(s: State, slot: int, row: Row | None) -> State:
    return s._replace(rows=put(s.rows, slot, row))


def hinted(s: State, slot: int, there: bool) -> State:
    return s._replace(hints=put(s.hints, slot, there))


def note(s: State, instance: int, **changes: object) -> State:
    """Write into a task's past."""
    return s._replace(past=put(s.past, instance, s.past[instance]._replace(**changes)))


def tidy(s: State) -> State:
    """Forget lost workers that hold nothing. Processes are interchangeable, and so are cleaners and people."""
    held = {row.worker for row in s.rows if row}
    return s._replace(
        workers=tuple(w for w in s.workers if not w.lost or w.id in held),
        processes=tuple(sorted(s.processes)),
        cleaners=tuple(sorted(s.cleaners)),
        operators=tuple(sorted(s.operators)),
    )
