"""A call whose key an earlier call has taken writes no task."""

from __future__ import annotations

import uuid
from collections.abc import Sequence

from django_txtasks.enqueueing import once
from django_txtasks.enqueueing.calls import BoundFunction
from django_txtasks.enqueueing.parts import CallPart
from django_txtasks.lifecycle.enqueueing import NewTask


class TakesKeys(CallPart):
    """Takes the keys of new tasks, in the transaction that writes them."""

    def is_of(self, bound: BoundFunction) -> bool:
        return bound.once is not None

    def owners(
        self, alias: str, made: Sequence[tuple[BoundFunction, NewTask]]
    ) -> dict[uuid.UUID, uuid.UUID]:
        keys = [
            (bound.once_key, task.task_id) for bound, task in made if bound.once_key is not None
        ]
        taken = once.take(alias, keys)
        owners = {task_id: taken[key.digest] for key, task_id in keys}
        return {task_id: owner for task_id, owner in owners.items() if owner != task_id}


PARTS = (TakesKeys(),)
