"""The links of a new task are written in its transaction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from django_txtasks.core.enqueueing.calls import BoundFunction
from django_txtasks.core.enqueueing.parts import CallPart
from django_txtasks.core.rows.enqueueing import NewTask
from django_txtasks.features.links import rows
from django_txtasks.features.links.subjects import subject_of


class WritesLinks(CallPart):
    """Writes a link from each new task to each of its subjects."""

    options = ("subject",)

    def bind(self, bound: BoundFunction, said: Mapping[str, Any]) -> BoundFunction:
        if "subject" not in said:
            return bound
        where = f"{bound.declaration.name} has subject="
        found = [subject_of(one, bound.alias, where) for one in said["subject"]]
        return bound.having(subjects=tuple(dict.fromkeys(found)))

    def is_of(self, bound: BoundFunction) -> bool:
        return bool(bound.values.get("subjects"))

    def written(self, alias: str, made: Sequence[tuple[BoundFunction, NewTask]]) -> None:
        rows.add(
            alias,
            [
                (task.task_id, one)
                for bound, task in made
                for one in bound.values.get("subjects", ())
            ],
        )


PARTS = (WritesLinks(),)
