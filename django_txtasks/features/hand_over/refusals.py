"""Checks of calls whose tasks other systems run, which may not keep the promise of an option."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django_txtasks.conf import get_config
from django_txtasks.exceptions import InvalidOption

if TYPE_CHECKING:
    from django_txtasks.core.enqueueing.calls import BoundFunction

NO_HOOKS = "{}"
TIMEOUT = "timeout="


def refuse_what_it_cannot_keep(bound: BoundFunction) -> None:
    """Raise InvalidOption if the call's queue is served elsewhere, where an option of the call is not kept.

    The call of an external task is refused in a queue of ``runworkers``.
    """
    queue, config = bound.defaults.queue_name, get_config()
    if queue not in config.queues_elsewhere:
        if bound.is_external:
            raise InvalidOption(
                f"{bound.defaults.task_name} is external, and the queue {queue!r} is for workers, which have no "
                "function of this name. Use a queue of TXTASKS['hand_over'] or TXTASKS['external_queues']."
            )
        return
    options = _kept_by_workers(bound)
    whose = "is handed over to another system (TXTASKS['hand_over']), where {} would be lost"
    if queue in config.external_queues:
        options = [one for one in options if one != TIMEOUT]  # the claim tells it to the worker
        whose = (
            "is for workers in other languages (TXTASKS['external_queues']), which do not keep {}"
        )
    for option in options:
        raise InvalidOption(
            f"{bound.defaults.task_name} has {option}, but the queue {queue!r} {whose.format(option)}. "
            "Leave it out, or use a queue of workers."
        )


def _kept_by_workers(bound: BoundFunction) -> list[str]:
    defaults, declaration = bound.defaults, bound.declaration
    found = {
        "unique_key=": "unique_key" in bound.values,
        "settle=": bound.values.get("settle") is not None,
        "lane=": "lane" in bound.values,
        "compensate=": "compensate" in declaration.hooks,
        "a hook": defaults.hooks != NO_HOOKS,
        TIMEOUT: defaults.timeout is not None,
        "atomic=True": declaration.atomic,
        "a batch": defaults.batch is not None,
    }
    return [option for option, is_there in found.items() if is_there]
