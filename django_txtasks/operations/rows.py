"""A row that may be chosen, its place in the order of the walk, and the moment of a call."""

from __future__ import annotations

import uuid
from typing import Any, NamedTuple


class Click(NamedTuple):
    """The moment of a call, by the database's clock, as text of the database.

    Attributes:
        end: the end of the span of ``spread``.
    """

    at: str
    end: str


class Place(NamedTuple):
    """The last row of a slice. Rows behind it, in the order of the walk, come next.

    Attributes:
        due_at: ``run_after`` at that time, as text of the database.
    """

    id: uuid.UUID
    status: str
    lane: str
    queue: str
    priority: int
    due_at: str

    @classmethod
    def from_json(cls, value: list[Any]) -> Place:
        """Return the place that ``as_json`` has given."""
        task_id, *rest = value
        return cls(uuid.UUID(task_id), *rest)

    def as_json(self) -> list[Any]:
        """Return the place for JSON."""
        return [str(self.id), *self[1:]]

    def is_in(self, part: dict[str, Any]) -> bool:
        """Return True if the row was in this part of an index, which may name lane, queue and priority."""
        own = {"lane": self.lane, "queue": self.queue, "priority": self.priority}
        return all(part.get(name, value) == value for name, value in own.items())


class Row(NamedTuple):
    """A task that may be chosen.

    Attributes:
        due_at: ``run_after`` as text of the database.
        status: a status, or the outcome of a finished task; empty: the task has no row.
        is_known: the task was already there at the click.
        errors: the JSON text; empty unless the filter ``error`` needs it.
    """

    id: uuid.UUID
    queue: str = ""
    task: str = ""
    lane: str = ""
    cause: int | None = None
    due_at: str = ""
    status: str = ""
    is_known: bool = False
    errors: str = ""
    priority: int = 0

    @property
    def place(self) -> Place:
        """The place of the row."""
        return Place(self.id, self.status, self.lane, self.queue, self.priority, self.due_at)
