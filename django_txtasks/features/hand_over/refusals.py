"""Checks of calls whose rows are handed over: no worker is there to do what an option promises."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django_txtasks.conf import get_config
from django_txtasks.exceptions import InvalidOption

if TYPE_CHECKING:
    from django_txtasks.core.enqueueing.calls import BoundFunction

NO_HOOKS = "{}"


def refuse_what_it_cannot_keep(bound: BoundFunction) -> None:
    """Raise InvalidOption if the call's queue is handed over, and the call has an option that only workers keep.

    The call of an external task is refused in a queue that is not handed over.
    """
    queue = bound.defaults.queue_name
    if queue not in get_config().hand_over:
        if bound.is_external:
            raise InvalidOption(
                f"{bound.defaults.task_name} is external, and the queue {queue!r} is for workers, which have no "
                "function of this name. Use a queue of TXTASKS['hand_over']."
            )
        return
    for option in _kept_by_workers(bound):
        raise InvalidOption(
            f"{bound.defaults.task_name} has {option}, but the queue {queue!r} is handed over to another system "
            f"(TXTASKS['hand_over']), where {option} would be lost. Leave it out, or use a queue of workers."
        )


def _kept_by_workers(bound: BoundFunction) -> list[str]:
    defaults, declaration = bound.defaults, bound.declaration
    found = {
        "unique_key=": "unique_key" in bound.values,
        "settle=": bound.values.get("settle") is not None,
        "lane=": "lane" in bound.values,
        "compensate=": "compensate" in declaration.hooks,
        "a hook": defaults.hooks != NO_HOOKS,
        "timeout=": defaults.timeout is not None,
        "atomic=True": declaration.atomic,
        "a batch": defaults.batch is not None,
    }
    return [option for option, is_there in found.items() if is_there]
