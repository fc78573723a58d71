"""The counts of a call, for its caller."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from django_txtasks.operations.rows import Row

MAX_SAMPLES = 5
MAX_COUNTED = 10_000
"""Number up to which a dry run counts tasks, and any call the tasks that ``limit`` leaves over."""


@dataclass(frozen=True)
class Taken:
    """The tasks of one slice.

    Attributes:
        changed: by id the new task of ``again``; None for other verbs.
        refused: why other tasks stay as they are, by id.
    """

    changed: dict[uuid.UUID, uuid.UUID | None] = field(default_factory=dict)
    refused: dict[uuid.UUID, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Sample:
    """One of the first tasks that were changed.

    Attributes:
        state: the state before.
        new_id: the new task, of ``again``.
    """

    id: uuid.UUID
    task: str
    queue: str
    state: str
    new_id: uuid.UUID | None = None


@dataclass(frozen=True)
class Skipped:
    """Tasks that were not changed, with the reason and the first of them."""

    reason: str
    count: int
    example: uuid.UUID


@dataclass(frozen=True)
class Moved:
    """Counts of one call.

    Attributes:
        changed: tasks that were changed. In a dry run: that would be changed, counted up to 10,000.
        skipped: chosen tasks that stay as they are; ``reasons`` says why.
        left_over: tasks that match, too, but come after ``limit``, counted up to 10,000.
        has_more: True if more tasks may match: a count has reached 10,000, or the filter ``error`` has read the
            errors of 10,000 tasks and stopped.
        samples: the first five tasks.
        dry_run: True if nothing was changed.
    """

    changed: int = 0
    skipped: int = 0
    left_over: int = 0
    has_more: bool = False
    samples: tuple[Sample, ...] = ()
    reasons: tuple[Skipped, ...] = ()
    dry_run: bool = False

    def as_json(self) -> dict[str, Any]:
        """Return the counts for machines; ids are text."""
        found = asdict(self)
        for sample in found["samples"]:
            sample["id"] = str(sample["id"])
            sample["new_id"] = None if sample["new_id"] is None else str(sample["new_id"])
        for reason in found["reasons"]:
            reason["example"] = str(reason["example"])
        return found

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Moved:
        """Return the counts that ``as_json`` has given."""
        samples = [
            Sample(**{**one, "id": uuid.UUID(one["id"]), "new_id": _id_of(one["new_id"])})
            for one in value["samples"]
        ]
        reasons = [
            Skipped(**{**one, "example": uuid.UUID(one["example"])}) for one in value["reasons"]
        ]
        return cls(**{**value, "samples": tuple(samples), "reasons": tuple(reasons)})

    def plus(self, rows: Sequence[Row], taken: Taken) -> Moved:
        """Return the counts with one more slice."""
        some = [
            Sample(row.id, row.task, row.queue, row.status, taken.changed[row.id])
            for row in rows
            if row.id in taken.changed
        ]
        return replace(
            self,
            changed=self.changed + len(taken.changed),
            samples=(*self.samples, *some)[:MAX_SAMPLES],
        ).without(taken.refused)

    def without(self, refused: Mapping[uuid.UUID, str]) -> Moved:
        """Return the counts with these tasks as skipped, by id with the reason."""
        counts = Counter(refused.values())
        examples: dict[str, uuid.UUID] = {}
        for task_id, reason in refused.items():
            examples.setdefault(reason, task_id)
        known = {one.reason: one for one in self.reasons}
        for reason, count in counts.items():
            one = known.get(reason, Skipped(reason, 0, examples[reason]))
            known[reason] = replace(one, count=one.count + count)
        skipped = self.skipped + len(refused)
        return replace(self, skipped=skipped, reasons=tuple(known.values()))


def _id_of(text: str | None) -> uuid.UUID | None:
    return None if text is None else uuid.UUID(text)
