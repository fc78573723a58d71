"""A call whose key an earlier call has taken writes no task."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from django_txtasks.core.enqueueing.calls import (
    Asked,
    BoundFunction,
    checked_text,
    digest_of,
    option_of,
    text_of,
)
from django_txtasks.core.enqueueing.parts import CallPart
from django_txtasks.core.rows.enqueueing import NewTask
from django_txtasks.exceptions import InvalidOption
from django_txtasks.features.once import keys as once
from django_txtasks.features.once.keys import OnceKey

ONCE_FOR = timedelta(days=7)
"""Time for which a key is kept, if ``once_for`` is left out."""


class TakesKeys(CallPart):
    """Takes the keys of new tasks, in the transaction that writes them."""

    options = ("once", "once_for")

    def bind(self, bound: BoundFunction, said: Mapping[str, Any]) -> BoundFunction:
        declaration, ask = bound.declaration, option_of(bound, said, "once")
        keep = option_of(bound, said, "once_for")
        if keep is not None and ask is None and not declaration.intake:
            raise InvalidOption(
                f"{declaration.name} has once_for= without once=: say which calls are the same."
            )
        keep = keep or ONCE_FOR
        return bound.having(once_for=keep) if ask is None else bound.having(once=ask, once_for=keep)

    def is_of(self, bound: BoundFunction) -> bool:
        return "once" in bound.values

    def of_call(
        self, bound: BoundFunction, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> BoundFunction:
        """Return the function with the key of this call."""
        declaration = bound.declaration
        text = text_of(bound, Asked("once", bound.values["once"], "key of once"), args, kwargs)
        if text is None:
            return bound
        checked_text(bound, "once", text)
        digest = digest_of("once", declaration.oldest_name, text)
        key = OnceKey(digest, text, declaration.name, bound.values["once_for"])
        return bound.having(once_key=key)

    def owners(
        self, alias: str, made: Sequence[tuple[BoundFunction, NewTask]]
    ) -> dict[uuid.UUID, uuid.UUID]:
        keys = [
            (bound.values["once_key"], task.task_id)
            for bound, task in made
            if "once_key" in bound.values
        ]
        taken = once.take(alias, keys)
        owners = {task_id: taken[key.digest] for key, task_id in keys}
        return {task_id: owner for task_id, owner in owners.items() if owner != task_id}


PARTS = (TakesKeys(),)
