"""The three tables in plain Python: what each arrow does to them when nothing happens at once."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from dataclasses import dataclass, field

MAX_ERRORS = 10

Fence = tuple[uuid.UUID, int, uuid.UUID]


@dataclass
class Row:
    """A live task; ``runs_again``: after a crash; ``stops``: of its workers, in a row; ``asked``: to stop."""

    queue: str
    priority: int
    runs_again: bool
    max_crashes: int
    due: bool
    status: str = "pending"
    attempt: int = 0
    worker: uuid.UUID | None = None
    failures: int = 0
    crashes: int = 0
    errors: int = 0
    stops: int = 0
    snoozes: int = 0
    asked: bool = False

    @property
    def is_due(self) -> bool:
        return self.status == "pending" and self.due

    @property
    def can_be_claimed(self) -> bool:
        return self.is_due and not self.asked

    def leave(self, status: str) -> None:
        self.status, self.worker = status, None

    def note_error(self) -> None:
        self.errors = min(self.errors + 1, MAX_ERRORS)


@dataclass
class WorkerRow:
    beat: int = 0
    lost: bool = False


@dataclass
class Tables:
    """Live tasks, finished ones that were kept (their outcome and attempt), and workers."""

    tasks: dict[uuid.UUID, Row] = field(default_factory=dict)
    finished: dict[uuid.UUID, tuple[str, int]] = field(default_factory=dict)
    workers: dict[uuid.UUID, WorkerRow] = field(default_factory=dict)

    def believes(self, worker: uuid.UUID) -> bool:
        return worker in self.workers and not self.workers[worker].lost

    def holds(self, fence: Fence) -> bool:
        """Return True if this attempt still holds its row."""
        task_id, number, worker = fence
        row = self.tasks.get(task_id)
        return row is not None and (row.status, row.attempt, row.worker) == (
            "claimed",
            number,
            worker,
        )

    def beat(self, worker: uuid.UUID) -> bool:
        if not self.believes(worker):
            return False
        self.workers[worker].beat += 1
        return True

    def would_lose(self, worker: uuid.UUID, beat: int) -> bool:
        return self.believes(worker) and self.workers[worker].beat == beat

    def lose(self, worker: uuid.UUID, beat: int) -> bool:
        if not self.would_lose(worker, beat):
            return False
        self.workers[worker].lost = True
        return True

    def claimable(self, queues: Iterable[str]) -> list[uuid.UUID]:
        """Ids of due tasks, higher priorities first."""
        ids = [key for key, row in self.tasks.items() if row.can_be_claimed and row.queue in queues]
        return sorted(ids, key=lambda key: -self.tasks[key].priority)

    def claim(self, task_id: uuid.UUID, worker: uuid.UUID) -> Fence:
        row = self.tasks[task_id]
        row.status, row.worker = "claimed", worker
        row.attempt += 1
        return task_id, row.attempt, worker

    def claims_of(self, worker: uuid.UUID) -> set[tuple[uuid.UUID, int]]:
        return {
            (key, row.attempt)
            for key, row in self.tasks.items()
            if row.status == "claimed" and row.worker == worker
        }

    def finish(self, task_id: uuid.UUID, outcome: str, *, keep: bool) -> None:
        row = self.tasks.pop(task_id)
        if keep:
            self.finished[task_id] = outcome, row.attempt

    def move(self, fence: Fence, arrow: str, *, later: bool) -> bool:
        """Take an attempt's own arrow other than finish; False = it holds nothing."""
        if not self.holds(fence):
            return False
        row = self.tasks[fence[0]]
        row.leave("dead" if arrow == "bury" else "pending")
        if arrow in ("retry", "snooze"):
            row.due = not later
        if arrow == "release" and later:  # the arguments do not fit: it waits, and nothing counts
            row.due = False
            row.note_error()
        row.snoozes += arrow == "snooze"
        if arrow in ("retry", "bury"):
            row.failures += 1
            row.stops = 0
            row.note_error()
        return True

    def cancel(self, ids: Iterable[uuid.UUID]) -> dict[uuid.UUID, str]:
        """Cancel what waits, ask what runs to stop; return what came of each."""
        return {key: self._cancel(key) for key in ids}

    def _cancel(self, task_id: uuid.UUID) -> str:
        row = self.tasks.get(task_id)
        if row is None or row.status == "dead":
            return "too late"
        if row.status == "claimed":
            row.asked = True
            return "asked"
        self.finish(task_id, "cancelled", keep=True)
        return "cancelled"

    def expire(self) -> None:
        """Remove what may not start any more."""
        for key in [
            key for key, row in self.tasks.items() if row.status == "pending" and row.asked
        ]:
            self.finish(key, "cancelled", keep=True)

    def orphans(self) -> set[Fence]:
        return {
            (key, row.attempt, row.worker)
            for key, row in self.tasks.items()
            if row.status == "claimed" and row.worker and not self.believes(row.worker)
        }

    def recover(self, fence: Fence, *, stopped: bool) -> str | None:
        """Return the arrow of a lost claim: at once after its first crash or a stop, later after others."""
        if not self.holds(fence):
            return None
        row = self.tasks[fence[0]]
        is_free = stopped and row.runs_again and row.stops < MAX_ERRORS - 1
        row.stops = min(row.stops + 1, MAX_ERRORS) if stopped else 0
        row.crashes += not is_free
        row.note_error()
        again = row.runs_again and row.crashes < row.max_crashes
        row.leave("pending" if again else "dead")
        if again:
            row.due = is_free or row.crashes == 1
        return "retry" if again else "bury"

    def unregister(self, worker: uuid.UUID) -> None:
        if not self.claims_of(worker):
            self.workers.pop(worker, None)

    def give_up(self, worker: uuid.UUID) -> None:
        if worker in self.workers:
            self.workers[worker].lost = True

    def forget_lost_workers(self) -> None:
        for worker, row in list(self.workers.items()):
            if row.lost:
                self.unregister(worker)

    def by_person(self, name: str, ids: Iterable[uuid.UUID]) -> set[uuid.UUID]:
        """Take a person's arrow where the row is in its state; return which did."""
        start, end = PERSON[name]
        moved = {key for key in ids if key in self.tasks and self.tasks[key].status == start}
        for key in moved:
            row = self.tasks[key]
            if end in ("cancelled", "discarded"):
                self.finish(key, end, keep=True)
                continue
            row.status = end
            if name in ("revive", "run_now"):
                row.due = True
            if name == "revive":
                row.failures = row.crashes = 0
                row.asked = False
        return moved


PERSON = {
    "hold": ("pending", "held"),
    "resume": ("held", "pending"),
    "run_now": ("pending", "pending"),
    "revive": ("dead", "pending"),
    "cancel": ("pending", "cancelled"),
    "discard": ("dead", "discarded"),
}
"""From which state to which state or outcome."""
