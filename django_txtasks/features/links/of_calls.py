"""The links of a new task are written in its transaction."""

from __future__ import annotations

from collections.abc import Sequence

from django_txtasks.enqueueing.calls import BoundFunction
from django_txtasks.enqueueing.parts import CallPart
from django_txtasks.lifecycle.enqueueing import NewTask
from django_txtasks.links import rows


class WritesLinks(CallPart):
    """Writes a link from each new task to each of its subjects."""

    def is_of(self, bound: BoundFunction) -> bool:
        return bool(bound.subjects)

    def written(self, alias: str, made: Sequence[tuple[BoundFunction, NewTask]]) -> None:
        rows.add(alias, [(task.task_id, one) for bound, task in made for one in bound.subjects])


PARTS = (WritesLinks(),)
